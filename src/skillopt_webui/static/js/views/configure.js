// The view that configures and launches a run: a form and its YAML, which change together, questions, and the start.
import { h, put, stored, copyButton, rowOf, rowBetween, bullets, button, errorBox, attempt, question } from "../dom.js";
import { get, post } from "../api.js";
import { fieldRow } from "../field.js";
import { waitForLaunch } from "../launched.js";
import { FINDINGS } from "./findings.js";

const FIRST = ["env", "models", "train", "optimizer", "gradient", "evaluation", "budget", "hardware", "notes"];
const SIMULATED = "configs/sim/default.yaml";
const MAIN = {
  "train.init_skill": "Initial skill",
  "models.target_model": "Target",
  "models.optimizer_model": "Optimizer",
  "budget.max_usd": "Budget in dollars",
};

export async function configureView(root, { query, signal }) {
  document.title = "New run · SkillOpt";
  const { files, sections, templates } = await get("/api/configs", signal);
  const waiting = (await get("/api/harvests", signal)).rows.reduce((sum, row) => sum + row.waiting, 0);
  let state = null,
    pending = null,
    typed = false,
    busy = false,
    edited = false,
    timer = 0;
  const rows = new Map();

  const option = (value, text) => h("option", { value }, text);
  const source = h(
    "select",
    { id: "source", onchange: () => replace(source.value) },
    files.length > 0 && h("optgroup", { label: "config files" }, files.map((f) => option(`path:${f}`, f))),
    h("optgroup", { label: "templates" }, templates.map((t) => option(`template:${t}`, t)), option("", "the defaults")),
  );
  const yaml = h("textarea", {
    class: "code",
    id: "yaml",
    rows: 22,
    spellcheck: "false",
    "aria-label": "Config as YAML",
    oninput: () => change(null),
  });
  const yamlWrong = h("div", {}),
    findings = h("div", { class: "stack findings" }),
    launchWrong = h("div", {}),
    fresh = h("input", { type: "checkbox", id: "fresh" });
  const launch = h("button", { class: "main", id: "launch", onclick: start }, "Launch");
  const asks = [
    ["preview", "Preview data"],
    ["doctor", "Doctor"],
    ["connection", "Test connection"],
  ].map(([name, text]) => h("button", { "data-ask": name, onclick: (event) => ask(name, event.currentTarget) }, text));
  const form = h("div", { class: "stack" }),
    plan = h("div", { class: "stack findings", "aria-label": "Plan" });
  let everything = false,
    from_ = "";
  const find = h("input", { type: "search", id: "find", "aria-label": "Search settings", oninput: () => filter() });
  const turnAll = () => {
    everything = !everything;
    find.value = "";
    filter();
  };
  const all = button("Show all settings", turnAll, { class: "plain" });

  put(
    root,
    h(
      "div",
      { class: "head" },
      h("h1", {}, "New run"),
      waiting > 0 &&
        h("a", { href: "#/harvest" }, `${waiting} harvested ${waiting === 1 ? "rule waits" : "rules wait"} for review`),
    ),
    h(
      "div",
      { class: "config" },
      form,
      h(
        "aside",
        { class: "stack" },
        h(
          "section",
          { class: "panel pad stack tight start" },
          rowOf(
            launch,
            h("label", { class: "row small", for: "fresh" }, fresh, "a fresh run, even if one of this config exists"),
          ),
          launchWrong,
          rowOf(asks),
          h(
            "p",
            { class: "dim small" },
            "Plan, doctor and preview cost nothing; a connection test asks each model one short question.",
          ),
        ),
        plan,
        findings,
        h(
          "section",
          { class: "panel pad stack tight yaml" },
          rowBetween(
            h("h2", {}, "YAML"),
            copyButton(() => yaml.value),
          ),
          yamlWrong,
          yaml,
        ),
      ),
    ),
  );

  for (const name of FIRST.filter((n) => sections.some((s) => s.name === n)).concat(
    sections.map((s) => s.name).filter((n) => !FIRST.includes(n)),
  )) {
    const section = sections.find((s) => s.name === name);
    const counter = h("span", { class: "dim small" });
    const fields = section.fields.map((field) => {
      const row = fieldRow(field, (raw) => change({ [field.key]: raw }), MAIN[field.key]);
      rows.set(field.key, row);
      return row.node;
    });
    const node = h(
      "details",
      { class: "panel sect", open: true, "data-section": name },
      h("summary", {}, h("span", { class: "grow" }, name), counter),
      h("div", { class: "fields" }, fields),
    );
    rows.set(`#${name}`, { node, counter, keys: section.fields.map((f) => f.key) });
    form.append(node);
  }
  const tasks = h(
    "div",
    { class: "field" },
    h("div", { class: "name" }, h("label", { for: "source" }, "Tasks and settings from")),
    source,
    h("div", { class: "doc-line" }, "A config file or a template; everything else can be changed."),
  );
  const first = Object.keys(MAIN).map((key) => rows.get(key).node);
  form.prepend(
    h("section", { class: "panel essentials" }, h("div", { class: "fields" }, tasks, first)),
    rowOf(h("span", { class: "grow" }, find), all),
  );
  const settings = [...rows.keys()].filter((key) => !key.startsWith("#"));
  find.placeholder = `Search ${settings.length - first.length} more settings`;
  filter();

  // A field that is not among the first appears if it matches the search, has an error, or all fields are shown.
  function filter() {
    const words = find.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const found = (key) => words.every((word) => `${key} ${rows.get(key).doc}`.toLowerCase().includes(word));
    all.textContent = everything ? "Hide settings" : "Show all settings";
    for (const [name, section] of rows) {
      if (!name.startsWith("#")) continue;
      let any = false;
      for (const key of section.keys.filter((k) => !(k in MAIN))) {
        const fits = (words.length ? found(key) : everything) || Boolean(state?.errors[key]);
        rows.get(key).node.hidden = !fits;
        any ||= fits;
      }
      section.node.hidden = !any;
    }
  }

  function replace(value) {
    if (!edited) return load(value);
    source.value = from_;
    const discard = () => {
      source.value = value;
      load(value);
    };
    const says = h("p", {}, "Another start replaces what you have changed in this form.");
    return question("Discard your changes?", says, "Discard them", discard, { no: "Keep editing", kind: "danger" });
  }

  // The plan follows the form; only the answer to the newest question is shown.
  let asking = 0,
    later = 0,
    planned = "";
  function askPlan() {
    clearTimeout(later);
    if (!state?.valid || state.yaml === planned) return;
    later = setTimeout(async () => {
      const mine = ++asking;
      planned = state.yaml;
      if (!plan.childNodes.length) put(plan, h("section", { class: "panel pad dim" }, "Planning…"));
      try {
        const answer = await post("/api/configs/plan", { yaml: planned }, signal);
        if (mine === asking) put(plan, FINDINGS.plan(answer));
      } catch (error) {
        if (error.name !== "AbortError" && mine === asking) put(plan, errorBox(error));
      }
    }, 900);
  }

  // When this returns, everything typed has been checked, so that the launched config is the one that is shown.
  async function settled() {
    while (busy || pending || typed) {
      clearTimeout(timer);
      if (busy) await new Promise((done) => setTimeout(done, 30));
      else await check();
    }
  }

  async function load(value) {
    forget();
    edited = false;
    from_ = value;
    const [kind, ...rest] = value.split(":");
    show(await post("/api/configs/load", value ? { [kind]: rest.join(":") } : {}, signal), true);
    put(findings);
  }

  // One check runs at a time; changes made meanwhile go into the next check, so that no change is lost.
  function change(set) {
    edited = true;
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
    await attempt(launchWrong, async () => {
      const next = await post("/api/configs/check", { yaml: yaml.value, set: sent }, signal);
      if (typed) pending = { ...sent, ...pending };
      else show(next, sent !== null);
    });
    busy = false;
    check();
  }

  function show(next, writeYaml) {
    state = next;
    if (writeYaml && document.activeElement !== yaml) yaml.value = next.yaml;
    if (edited) keep(source.value, yaml.value);
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
        const wrong = section.keys.filter((k) => next.errors[k]).length,
          set = section.keys.filter((k) => given.has(k)).length;
        put(section.counter, wrong ? h("span", { class: "bad" }, `${wrong} to fix`) : set ? `${set} set` : "defaults");
      }
    }
    filter();
    askPlan();
    launch.disabled = !next.valid;
    for (const button of asks) button.disabled = !next.valid;
    put(launchWrong, next.valid ? null : complaints(next));
  }

  // The problems that prevent the start of the run; a click on a problem leads to its field.
  function complaints({ problem, errors }) {
    const toField = (key) => {
      const field = document.getElementById(`f-${key}`);
      field?.closest("details")?.setAttribute("open", "");
      field?.focus();
      field?.scrollIntoView({ block: "center" });
    };
    const complaint = ([key, text]) => [
      button(key, () => toField(key), { class: "plain mono" }),
      " ",
      h("span", { class: "bad" }, text.slice(0, 160)),
    ];
    const first = problem ? [h("span", { class: "bad" }, "Fix the YAML first.")] : [];
    return bullets([...first, ...Object.entries(errors).slice(0, 6).map(complaint)]);
  }

  async function ask(name, button) {
    button.disabled = true;
    put(findings, h("section", { class: "panel pad dim" }, "Asking…"));
    await attempt(findings, async () => {
      put(findings, FINDINGS[name](await post(`/api/configs/${name}`, { yaml: yaml.value }, signal)));
    });
    button.disabled = !state?.valid;
  }

  async function start() {
    launch.disabled = true;
    launch.textContent = "Starting…";
    put(launchWrong);
    await settled();
    if (!state?.valid) {
      launch.textContent = "Launch";
      return;
    }
    const wish = { yaml: yaml.value, fresh: fresh.checked, title: source.value.replace(/^[a-z]+:/, "") };
    await attempt(launchWrong, async () => {
      const status = await waitForLaunch(await post("/api/launch", wish, signal), { signal });
      if (!status.run) throw new Error(status.log);
      if (status.already) put(launchWrong, finishedAlready(status.run));
      else {
        forget();
        location.hash = `#/run/${status.run}/overview`;
      }
    });
    launch.textContent = "Launch";
    launch.disabled = !state?.valid;
  }

  // Nothing was started, because a run with the same config, data and initial skill is already finished.
  function finishedAlready(run) {
    const again = () => {
      fresh.checked = true;
      start();
    };
    return h(
      "div",
      { class: "note stack tight", role: "alert" },
      h("p", {}, h("b", {}, "Nothing was started: "), "a run of this config is already finished, and it is unchanged."),
      rowOf(
        h("a", { class: "button", href: `#/run/${run}/overview` }, "Open the finished run"),
        button("Start a fresh run", again),
      ),
    );
  }

  const given = query.get("run")
    ? `run:${query.get("run")}`
    : files.includes(query.get("config"))
      ? `path:${query.get("config")}`
      : files.includes(SIMULATED)
        ? `path:${SIMULATED}`
        : `template:${templates[0]}`;
  const draft = kept();
  const asked = query.has("run") || query.has("config");
  const from = draft && (!asked || draft.source === given) ? draft.source : given;
  if (from.startsWith("run:")) source.append(h("option", { value: from }, `the config of ${from.split("/").at(-1)}`));
  source.value = from;
  if (from !== draft?.source || query.has("feedback")) {
    await load(from);
    if (query.has("feedback")) {
      const { path } = await get(`/api/runs/${query.get("run")}/comments`, signal);
      change({ "gradient.feedback": path.replace(/\/comments\.jsonl$/, "") });
      find.value = "gradient.feedback";
      filter();
    }
    return;
  }
  from_ = from;
  yaml.value = draft.yaml;
  edited = true;
  show(await post("/api/configs/check", { yaml: draft.yaml, set: null }, signal), true);
  const discard = button("Discard them", () => load(source.value));
  put(findings, h("p", { class: "note row between" }, "Your changes from before are still here.", discard));
}

// The changes in the form, until they are launched or discarded; only this tab has them.
const DRAFT = "skillopt-draft";
const keep = (source, yaml) => stored.set(DRAFT, JSON.stringify({ source, yaml }));
const kept = () => JSON.parse(stored.get(DRAFT) || "null");
const forget = () => stored.set(DRAFT, "");
