// Any skill on any split, in a separate process; and earlier measurements.
import { h, put, tag, errorBox, empty, say } from "../dom.js";
import { get, post } from "../api.js";
import { score, ranged, ago, whole, span, money } from "../format.js";
import { loadChoices, skillPicker } from "../picker.js";
import { lastWords } from "../launched.js";
import { comparisonResult } from "./compare.js";

export async function evaluateView(root, { query, signal }) {
  document.title = "Evaluate · SkillOpt";
  const choices = await loadChoices(signal);
  const list = h("div", { class: "stack" }),
    wrong = h("div", {});
  if (!choices.runs.length && !choices.files.length) {
    put(
      root,
      h("h1", {}, "Evaluate"),
      h(
        "div",
        { class: "panel" },
        empty("No skill to measure yet", h("a", { class: "button main", href: "#/new" }, "Start a run")),
      ),
    );
    return;
  }
  const picker = skillPicker(
    "Skill",
    choices,
    { run: query.get("run") || "", version: query.get("v") || "best" },
    tasks,
  );
  const split = h(
    "select",
    { id: "split" },
    h("option", { value: "val" }, "validation"),
    h("option", { value: "test" }, "test (the reading is counted)"),
    h("option", { value: "train" }, "training"),
  );
  const config = h("select", { id: "tasks" });
  const go = h(
    "button",
    {
      class: "main",
      onclick: async () => {
        go.disabled = true;
        put(wrong);
        try {
          await post("/api/evaluate", { skill: picker.value, split: split.value, ...tasksOf() });
          say("Measuring.");
          await load();
        } catch (error) {
          put(wrong, errorBox(error));
        }
        go.disabled = false;
      },
    },
    "Measure",
  );

  function tasks() {
    const kept = config.value;
    put(
      config,
      picker.run && h("option", { value: "" }, "those of its run"),
      choices.configs.map((c) => h("option", { value: c }, c)),
    );
    if ([...config.options].some((o) => o.value === kept)) config.value = kept;
  }
  const tasksOf = () => (config.value ? { config: config.value } : { run: picker.run });
  tasks();
  put(
    root,
    h("div", { class: "head" }, h("h1", {}, "Evaluate")),
    h(
      "div",
      { class: "stack" },
      h(
        "section",
        { class: "panel pad stack" },
        h(
          "div",
          { class: "two" },
          picker.node,
          h("div", { class: "field" }, h("label", { for: "split" }, "Split"), split),
          h("div", { class: "field" }, h("label", { for: "tasks" }, "Tasks and target of"), config),
        ),
        wrong,
        h("div", { class: "row" }, go),
      ),
      list,
    ),
  );

  let known = "";
  async function load() {
    const { launches } = await get("/api/launches", signal);
    const shown = launches.filter((l) => l.kind !== "train"),
      now = JSON.stringify(shown.map((l) => [l.id, l.state]));
    if (now === known) return;
    known = now;
    put(
      list,
      h("h2", {}, "Measured from this page"),
      shown.length ? shown.map((l) => card(l, load)) : h("p", { class: "dim" }, "Nothing yet."),
    );
  }
  await load();
  const timer = setInterval(() => {
    if (!document.hidden) load().catch(() => {});
  }, 1200);
  signal.addEventListener("abort", () => clearInterval(timer));
}

function card(launch, load) {
  const r = launch.result;
  return h(
    "section",
    { class: "panel pad stack tight" },
    h(
      "div",
      { class: "row between" },
      h("h3", {}, launch.title),
      h(
        "span",
        { class: "row" },
        tag(
          launch.state === "running" ? "running" : launch.code === 0 ? "done" : "failed",
          launch.state === "running" ? "live" : launch.code === 0 ? "good" : "bad",
        ),
        h("span", { class: "dim small" }, ago(launch.started)),
        launch.state === "running" &&
          h(
            "button",
            {
              class: "plain",
              onclick: async () => {
                await post(`/api/launches/${launch.id}/stop`).catch((error) => say(error.message, true));
                load();
              },
            },
            "Stop",
          ),
      ),
    ),
    launch.state !== "running" && launch.code !== 0 && h("div", { class: "error" }, lastWords(launch)),
    r && launch.kind === "eval" && evalResult(r),
    r && launch.kind === "compare" && comparisonResult(r),
  );
}

function evalResult(r) {
  return h(
    "dl",
    { class: "figures" },
    [
      [`${r.split} score (${r.metric})`, ranged(r.score, r.interval)],
      ["hard", score(r.hard)],
      ["soft", score(r.soft)],
      ["items", whole(r.items)],
      ["skill", `${whole(r.skill.tokens)} tokens`],
      r.majority && ["always the same answer", score(r.majority.score)],
      r.test_reads && ["test read", `${r.test_reads} times`],
      r.seconds !== undefined && ["time", span(r.seconds)],
      r.cost_usd !== undefined && ["cost", money(r.cost_usd)],
    ]
      .filter(Boolean)
      .map(([k, v]) => h("div", { class: "figure" }, h("dt", {}, k), h("dd", {}, v))),
  );
}
