// The view that measures any skill on any split, in a separate process, and lists earlier measurements.
import { h, put, every, rowOf, rowBetween, stackOf, twoColumns, panel, fieldOf, button, select, emptyPanel, attempt, say, tag } from "../dom.js";
import { get, post, path } from "../api.js";
import { ago } from "../format.js";
import { loadChoices, skillPicker } from "../picker.js";
import { lastWords } from "../launched.js";
import { resultFigures, titleOf } from "./measured.js";

export async function evaluateView(root, { query, signal }) {
  document.title = "Evaluate · SkillOpt";
  const choices = await loadChoices(signal);
  const list = h("div", { class: "stack" }),
    wrong = h("div", {});
  if (!choices.runs.length && !choices.files.length) {
    const start = h("a", { class: "button main", href: "#/new" }, "Start a run");
    put(root, h("h1", {}, "Evaluate"), emptyPanel("No skill to measure yet", start));
    return;
  }
  const readings = [
    ["val", "validation"],
    ["test", "test (the reading is counted)"],
    ["train", "training"],
  ];
  const split = select(null, readings, "val", null, { id: "split" });
  const config = h("select", { id: "tasks" });
  const measure = async () => {
    go.disabled = true;
    put(wrong);
    await attempt(wrong, async () => {
      await post("/api/evaluate", { skill: picker.value, split: split.value, ...tasksOf() });
      say("Measuring.");
      await load();
    });
    tasks();
  };
  const go = button("Measure", measure, { class: "main" });

  let picker = null;
  picker = skillPicker(
    "Skill",
    choices,
    { run: query.get("run") || "", version: query.get("v") || "best" },
    tasks,
  );
  function tasks() {
    const kept = config.value;
    put(
      config,
      picker?.run && h("option", { value: "" }, "those of its run"),
      choices.configs.map((c) => h("option", { value: c }, c)),
    );
    if ([...config.options].some((o) => o.value === kept)) config.value = kept;
    go.disabled = !picker?.value || !config.options.length;
  }
  const tasksOf = () => (config.value ? { config: config.value } : { run: picker.run });
  tasks();
  put(
    root,
    h("div", { class: "head" }, h("h1", {}, "Evaluate")),
    stackOf(
      h(
        "section",
        { class: "panel pad stack" },
        twoColumns(
          picker.node,
          fieldOf("split", "Split", split),
          fieldOf("tasks", "Tasks and target of", config),
        ),
        wrong,
        rowOf(go),
      ),
      list,
    ),
  );

  const state = { shown: PAGE, open: PAGE, search: "" };
  const search = h("input", {
    type: "search",
    hidden: true,
    placeholder: "Search measurements",
    "aria-label": "Search measurements",
    oninput: () => {
      state.search = search.value.toLowerCase();
      state.shown = state.open = PAGE;
      draw();
    },
  });
  let known = "",
    launches = [],
    rows = [],
    names = {},
    asked = 0;
  async function load() {
    const mine = ++asked;
    const [started, measured] = await Promise.all([get("/api/launches", signal), get("/api/measured", signal)]);
    if (mine !== asked) return;
    launches = started.launches;
    ({ rows, names } = measured);
    const now = JSON.stringify([launches.map((l) => [l.id, l.state]), rows.map((r) => [r.id, r.changed])]);
    if (now !== known) draw();
    known = now;
  }
  const more = (what, all, shown) => {
    const grow = () => {
      state[shown] += PAGE;
      draw();
    };
    return all.length > state[shown] && button(`Show more ${what}`, grow, { "data-key": `more-${what}` });
  };
  const head = (title, shown, all) =>
    h("h2", {}, title, " ", h("span", { class: "dim small" }, `${shown} of ${all}`));
  const about = (r) => JSON.stringify([titleOf(r.kind, r.id, r.result, names), r.id]).toLowerCase();
  function draw() {
    const fits = rows.filter((r) => about(r).includes(state.search)),
      open = launches.filter((l) => l.title.toLowerCase().includes(state.search));
    search.hidden = rows.length <= PAGE && launches.length <= PAGE && !state.search;
    put(
      list,
      open.length > 0 && head("At work or failed", Math.min(state.open, open.length), open.length),
      open.slice(0, state.open).map((l) => card(l, load)),
      more("commands", open, "open"),
      head("Measured", Math.min(state.shown, fits.length), fits.length),
      fits.length ? fits.slice(0, state.shown).map((r) => row(r, names)) : h("p", { class: "dim" }, "Nothing yet."),
      more("results", fits, "shown"),
    );
  }
  list.before(search);
  await load();
  every(1200, () => load().catch(() => {}), signal);
}

const PAGE = 20;

// A result, with a link to its items.
function row({ id, kind, changed, result }, names) {
  return panel(
    null,
    rowBetween(
      h("h3", {}, titleOf(kind, id, result, names)),
      h(
        "span",
        { class: "row" },
        h("span", { class: "dim small" }, ago(changed)),
        h("a", { class: "button", href: `#/measured/${path(id)}` }, "Items"),
      ),
    ),
    resultFigures({ result, names }),
  );
}

// A command that is running or has failed.
function card(launch, load) {
  const running = launch.state === "running";
  const stop = async () => {
    await post(`/api/launches/${launch.id}/stop`).catch((error) => say(error.message, true));
    load();
  };
  return panel(
    null,
    rowBetween(
      h("h3", {}, launch.title),
      h(
        "span",
        { class: "row" },
        tag(running ? "running" : "failed", running ? "running" : "bad"),
        h("span", { class: "dim small" }, ago(launch.started)),
        running && button("Stop", stop, { class: "plain" }),
      ),
    ),
    !running && h("div", { class: "error" }, lastWords(launch)),
  );
}
