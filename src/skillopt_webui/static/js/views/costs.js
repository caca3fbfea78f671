// What a run took: calls, tokens and money by role and stage, next to the plan; time by stage; how many edits reached each stage.
import { h, put, scroller, table } from "../dom.js";
import { get, of } from "../api.js";
import { money, whole, span, estimate, score } from "../format.js";
import { lineChart } from "../chart.js";

export async function costsTab(root, run, { signal }) {
  const box = h("div", { class: "stack" });
  const use = lineChart({
    title: "Validation score against tokens of a call, by version",
    format: score,
    xformat: whole,
    xname: "tokens per call",
    yname: "score",
    ceil: 1,
  });
  put(root, box);
  async function draw() {
    const { rows, versions, seconds, funnel, dropped, plan } = await get(of(run.id, "/costs"), signal);
    const longest = Math.max(1e-9, ...Object.values(seconds)),
      most = Math.max(1, funnel.proposed);
    put(
      box,
      h(
        "section",
        { class: "panel" },
        h("h2", { class: "pad" }, "Calls, tokens, money"),
        scroller(
          "Table",
          table(
            ["role", "stage", "calls", "prompt tokens", "reply tokens", "cached", "cost", plan ? "planned calls (estimate)" : false],
            rows.map((r) => {
              const p = plan?.by_stage?.[r.role]?.[r.stage];
              const figures = [r.calls, r.prompt, r.completion, r.cached].map(whole);
              const planned = plan ? h("span", { class: "dim" }, p ? estimate(p) : "–") : false;
              return [r.role, r.stage.replaceAll("_", " "), ...figures, money(r.usd), planned];
            }),
            { from: 2 },
          ),
        ),
      ),
      h(
        "div",
        { class: "two" },
        h(
          "section",
          { class: "panel pad stack tight" },
          h("h2", {}, "Time by stage"),
          h(
            "div",
            { class: "bars" },
            Object.entries(seconds).map(([name, s]) =>
              h(
                "div",
                {},
                h("span", {}, name.replaceAll("_", " ")),
                h("span", { class: "of" }, h("i", { style: { width: `${(s / longest) * 100}%` } })),
                h("span", { class: "n" }, span(s)),
              ),
            ),
          ),
        ),
        h(
          "section",
          { class: "panel pad stack tight" },
          h("h2", {}, "What became of the edits"),
          h(
            "div",
            { class: "bars" },
            Object.entries(funnel).map(([name, n]) =>
              h(
                "div",
                {},
                h("span", {}, name),
                h("span", { class: "of" }, h("i", { style: { width: `${(n / most) * 100}%` } })),
                h("span", { class: "n" }, whole(n)),
              ),
            ),
          ),
          Object.keys(dropped).length
            ? h(
                "p",
                { class: "dim small" },
                "Not usable: ",
                Object.entries(dropped)
                  .map(([why, n]) => `${n} ${why.replaceAll("_", " ")}`)
                  .join(", "),
              )
            : null,
        ),
      ),
      versions.length > 1 &&
        h("section", { class: "panel pad stack tight" }, h("h2", {}, "Score against cost, by version"), use.node),
      plan && planTable(plan),
    );
    use.update(byTokens(versions));
  }
  run.listeners.add((what) => {
    if (what !== "event") draw().catch(() => {});
  });
  await draw();
  return null;
}

// Each version's validation score over the tokens of a call, from the cheapest to the dearest.
function byTokens(versions) {
  const sorted = [...versions].sort((a, b) => a.tokens - b.tokens);
  return {
    series: [{ name: "score", color: "var(--accent)", thin: true, points: sorted.map((v) => [v.tokens, v.score]) }],
    marks: sorted.map((v) => ({
      x: v.tokens,
      score: v.score,
      kind: "accept",
      said: `Version: v${v.version}, ${whole(v.tokens)} tokens per call`,
    })),
  };
}

function planTable(plan) {
  const rows = [["steps", null, { low: plan.steps.planned, high: plan.steps.planned, real: plan.steps.real }, whole]];
  for (const [name, format] of [
    ["calls", whole],
    ["tokens", whole],
    ["usd", money],
  ])
    for (const role of Object.keys(plan.calls))
      rows.push([name === "usd" ? "cost" : name, role, plan[name][role] ?? {}, format]);
  rows.push(["time", null, plan.seconds, span]);
  return h(
    "section",
    { class: "panel" },
    h("h2", { class: "pad" }, "Planned (estimate) and real"),
    scroller(
      "Table",
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", {}, ""),
            h("th", {}, "role"),
            h("th", { class: "n" }, "planned"),
            h("th", { class: "n" }, "real"),
          ),
        ),
        h(
          "tbody",
          {},
          rows.map(([name, role, row, format]) =>
            h(
              "tr",
              {},
              h("td", {}, name),
              h("td", { class: "dim" }, role || ""),
              h("td", { class: "n dim" }, estimate(row, format)),
              h("td", { class: "n" }, format(row.real)),
            ),
          ),
        ),
      ),
    ),
  );
}
