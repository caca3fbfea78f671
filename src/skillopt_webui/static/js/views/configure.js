// Configure and launch: the form of the config's schema and its YAML in step, questions before the start, the start.
import { h, put, tag, errorBox, say, dialog } from "../dom.js";
import { get, post } from "../api.js";
import { whole, money, span, range } from "../format.js";
import { fieldRow } from "../field.js";
import { waitForLaunch } from "../launched.js";

const FIRST = ["env", "models", "train", "optimizer", "gradient", "evaluation", "budget", "hardware", "notes"];
const OPEN = new Set(["env", "models", "train"]);

export async function configureView(root, { query, signal }) {
  document.title = "New run · SkillOpt";
  const { files, sections, folders } = await get("/api/configs", signal);
  let state = null, pending = null, typed = false, busy = false, timer = 0;
  const rows = new Map();

  const source = h("select", { id: "source", onchange: () => load(source.value) }, h("option", { value: "" }, "Defaults"), files.map((f) => h("option", { value: `path:${f}` }, f)));
  const yaml = h("textarea", { class: "code", id: "yaml", rows: 22, spellcheck: "false", "aria-label": "Config as YAML", oninput: () => change(null) });
  const yamlWrong = h("div", {}), findings = h("div", { class: "stack findings" }), launchWrong = h("div", {}), fresh = h("input", { type: "checkbox", id: "fresh" });
  const launch = h("button", { class: "main", id: "launch", onclick: start }, "Launch");
  const asks = [["preview", "Preview data"], ["plan", "Plan"], ["doctor", "Doctor"], ["connection", "Test connection"]].map(([name, text]) => h("button", { "data-ask": name, onclick: (event) => ask(name, event.currentTarget) }, text));
  const form = h("div", { class: "stack" });

  put(root, h("div", { class: "head" }, h("h1", {}, "New run"), h("div", { class: "row" }, h("label", { for: "source" }, "Start from"), source)),
    h("div", { class: "config" }, form, h("aside", { class: "stack" },
      h("section", { class: "panel pad stack tight start" }, h("div", { class: "row" }, launch, h("label", { class: "row small", for: "fresh" }, fresh, "a fresh run, even if one of this config exists")), launchWrong, h("div", { class: "row" }, asks),
        h("p", { class: "dim small" }, "Plan, doctor and preview cost nothing; a connection test asks each model one short question.")),
      findings,
      h("section", { class: "panel pad stack tight yaml" }, h("div", { class: "row between" }, h("h2", {}, "YAML"), h("div", { class: "row" }, h("button", { class: "plain", onclick: copy }, "Copy"), h("button", { class: "plain", onclick: save }, "Save as…"))), yamlWrong, yaml))));

  for (const name of FIRST.filter((n) => sections.some((s) => s.name === n)).concat(sections.map((s) => s.name).filter((n) => !FIRST.includes(n)))) {
    const section = sections.find((s) => s.name === name);
    const counter = h("span", { class: "dim small" });
    const fields = section.fields.map((field) => {
      const row = fieldRow(field, (raw) => change({ [field.key]: raw }));
      rows.set(field.key, row);
      return row.node;
    });
    const node = h("details", { class: "panel sect", open: OPEN.has(name), "data-section": name }, h("summary", {}, h("span", { class: "grow" }, name), counter), h("div", { class: "fields" }, fields));
    rows.set(`#${name}`, { node, counter, keys: section.fields.map((f) => f.key) });
    form.append(node);
  }

  async function load(value) {
    const [kind, ...rest] = value.split(":");
    show(await post("/api/configs/load", value ? { [kind]: rest.join(":") } : {}, signal), true);
    put(findings);
  }

  // One check at a time; what is changed meanwhile goes with the next, so that nothing is lost or written over.
  function change(set) {
    if (set) pending = { ...pending, ...set };
    else typed = true;
    clearTimeout(timer);
    timer = setTimeout(check, 180);
  }

  async function check() {
    if (busy || (!pending && !typed)) return;
    const sent = pending;
    pending = null;
    typed = false;
    busy = true;
    try {
      const next = await post("/api/configs/check", { yaml: yaml.value, set: sent }, signal);
      if (typed) pending = { ...sent, ...pending };
      else show(next, sent !== null);
    } catch (error) { if (error.name !== "AbortError") put(launchWrong, errorBox(error)); }
    busy = false;
    check();
  }

  function show(next, writeYaml) {
    state = next;
    if (writeYaml && document.activeElement !== yaml) yaml.value = next.yaml;
    put(yamlWrong, next.problem ? h("p", { class: "wrong error", role: "alert" }, next.problem) : null);
    yaml.setAttribute("aria-invalid", String(Boolean(next.problem)));
    if (next.values) {
      const given = new Set(next.set || []);
      for (const [key, row] of rows) {
        if (key.startsWith("#")) continue;
        row.show(next.values[key], next.errors[key] || "", given.has(key));
      }
      for (const [key, section] of rows) {
        if (!key.startsWith("#")) continue;
        const wrong = section.keys.filter((k) => next.errors[k]).length, set = section.keys.filter((k) => given.has(k)).length;
        put(section.counter, wrong ? h("span", { class: "bad" }, `${wrong} to mend`) : set ? `${set} set` : "defaults");
        if (wrong) section.node.open = true;
      }
    }
    launch.disabled = !next.valid;
    for (const button of asks) button.disabled = !next.valid;
    put(launchWrong, next.valid ? null : complaints(next));
  }

  // What keeps the run from starting; each leads to its field.
  function complaints({ problem, errors }) {
    const toField = (key) => { const field = document.getElementById(`f-${key}`); field?.closest("details")?.setAttribute("open", ""); field?.focus(); field?.scrollIntoView({ block: "center" }); };
    return h("ul", { class: "small" }, problem && h("li", { class: "bad" }, "The YAML has to be mended first."),
      Object.entries(errors).slice(0, 6).map(([key, text]) => h("li", {}, h("button", { class: "plain mono", onclick: () => toField(key) }, key), " ", h("span", { class: "bad" }, text.slice(0, 160)))));
  }

  async function ask(name, button) {
    button.disabled = true;
    put(findings, h("section", { class: "panel pad dim" }, "Asking…"));
    try { put(findings, FINDINGS[name](await post(`/api/configs/${name}`, { yaml: yaml.value }, signal))); } catch (error) { if (error.name !== "AbortError") put(findings, errorBox(error)); }
    button.disabled = !state?.valid;
  }

  async function start() {
    launch.disabled = true;
    launch.textContent = "Starting…";
    put(launchWrong);
    try {
      const status = await waitForLaunch(await post("/api/launch", { yaml: yaml.value, fresh: fresh.checked, title: source.value.replace("path:", "") }, signal), { signal });
      if (!status.run) throw new Error(status.log);
      location.hash = `#/run/${status.run}/overview`;
    } catch (error) { if (error.name !== "AbortError") put(launchWrong, errorBox(error)); }
    launch.textContent = "Launch";
    launch.disabled = !state?.valid;
  }

  async function copy() { await navigator.clipboard?.writeText(yaml.value); say("Copied."); }

  function save() {
    const name = h("input", { id: "config-name", placeholder: "my-run", "aria-label": "Name" }), wrong = h("div", {});
    dialog("box", "Save as a config file", h("div", { class: "stack" }, h("p", { class: "dim" }, `A new file in ${folders[0]}.`), name, wrong), { foot: (close) => [h("button", { onclick: close }, "Cancel"), h("button", { class: "main", onclick: async () => {
      try { const { path } = await post("/api/configs/save", { name: name.value, yaml: yaml.value }); close(); say(`Saved as ${path}.`); source.append(h("option", { value: `path:${path}` }, path)); source.value = `path:${path}`; } catch (error) { put(wrong, errorBox(error)); }
    } }, "Save")] });
  }

  const given = query.get("run") ? `run:${query.get("run")}` : files.includes(query.get("config")) ? `path:${query.get("config")}` : files.includes("configs/sim/default.yaml") && !query.get("config") ? "path:configs/sim/default.yaml" : "";
  if (given.startsWith("run:")) source.append(h("option", { value: given }, `the config of ${given.split("/").at(-1)}`));
  source.value = given;
  await load(given);
}

const FINDINGS = {
  preview: (p) => h("section", { class: "panel pad stack tight" }, h("h2", {}, `Data: ${p.name}`),
    p.overlap ? errorBox({ message: p.overlap }) : h("p", { class: "good" }, "✓ The splits are disjoint, by id and by content."),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "split"), h("th", { class: "n" }, "items"), h("th", {}, "types"))), h("tbody", {}, Object.entries(p.splits).map(([name, s]) => h("tr", {}, h("td", {}, name), h("td", { class: "n" }, whole(s.size)), h("td", { class: "small dim" }, Object.entries(s.types).map(([t, n]) => `${t}: ${n}`).join(", ")))))),
    Object.entries(p.splits).map(([name, s]) => h("details", {}, h("summary", {}, `First items of ${name}`), h("ul", { class: "stack tight" }, s.items.map((i) => h("li", { class: "edit" }, h("div", { class: "row" }, h("code", {}, i.id), i.type && tag(i.type, "grey")), i.context && h("div", { class: "text small dim" }, i.context), h("div", { class: "text small" }, i.question), h("div", { class: "small" }, h("b", {}, "Answers: "), i.answers.join(" · "))))))))
  ,
  plan: (p) => h("section", { class: "panel pad stack tight" }, h("h2", {}, "Plan ", tag("estimate", "grey")), h("p", {}, `${p.steps} steps in ${p.epochs} epochs over ${p.items.train} training, ${p.items.val} validation and ${p.items.test} test items.`),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, ""), h("th", { class: "n" }, "target"), h("th", { class: "n" }, "optimizer"))), h("tbody", {},
      [["calls", (r) => range(p.calls[r])], ["tokens", (r) => range(p.tokens[r])], ["cost", (r) => range(p.usd[r], money)]].map(([name, f]) => h("tr", {}, h("td", {}, name), h("td", { class: "n" }, f("target")), h("td", { class: "n" }, f("optimizer")))))),
    h("p", {}, h("b", {}, `Time: ${range(p.seconds, span)}`), h("span", { class: "dim small" }, `, with target calls of ${range(p.call_seconds.target, span)} and optimizer calls of ${range(p.call_seconds.optimizer, span)}`)),
    h("details", {}, h("summary", {}, "By stage"), h("table", {}, h("tbody", {}, p.lines.map((l) => h("tr", {}, h("td", {}, l.role), h("td", {}, l.stage.replaceAll("_", " ")), h("td", { class: "n" }, range(l.calls)))))))),
  doctor: (d) => checks("Doctor", d.checks),
  connection: (d) => checks("Connection", d.checks),
};

function checks(title, list) {
  const failed = list.filter((c) => c.status === "fail").length, warned = list.filter((c) => c.status === "warn").length;
  return h("section", { class: "panel pad stack tight" }, h("h2", {}, `${title} `, tag(failed ? `${failed} failed` : warned ? `${warned} warnings` : "all well", failed ? "fail" : warned ? "warn" : "pass")),
    h("ul", { class: "checks" }, list.map((c) => h("li", {}, h("span", {}, tag(c.status)), h("div", {}, h("b", {}, c.name), ": ", c.says, c.fix && h("div", { class: "small dim" }, `→ ${c.fix}`))))));
}
