// The costs of a run: calls, tokens and money by role and stage, next to the plan; time by stage; edits by stage.
import { h, put, scroller, table, twoColumns, panel, sheet } from "../dom.js";
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
    const unusable = Object.entries(dropped).map(([why, n]) => `${n} ${why.replaceAll("_", " ")}`);
    put(
      box,
      sheet(
        "Calls, tokens, money",
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
      twoColumns(
        panel("Time by stage", bars(seconds, span)),
        panel(
          "What became of the edits",
          bars(funnel, whole),
          unusable.length > 0 && h("p", { class: "dim small" }, "Not usable: ", unusable.join(", ")),
        ),
      ),
      versions.length > 1 && panel("Score against cost, by version", use.node),
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

// Named values as bars; the largest bar has the full width.
function bars(values, format) {
  const most = Math.max(1e-9, ...Object.values(values));
  const line = ([name, value]) =>
    h(
      "div",
      {},
      h("span", {}, name.replaceAll("_", " ")),
      h("span", { class: "of" }, h("i", { style: { width: `${(value / most) * 100}%` } })),
      h("span", { class: "n" }, format(value)),
    );
  return h("div", { class: "bars" }, Object.entries(values).map(line));
}

// Each version's validation score against the tokens of a call, from the fewest to the most tokens.
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
  const line = (name, role, figure, format) => {
    const planned = h("span", { class: "dim" }, estimate(figure, format));
    return [name, h("span", { class: "dim" }, role), planned, format(figure.real)];
  };
  const roles = Object.keys(plan.calls);
  const rows = [
    line("steps", "", { low: plan.steps.planned, high: plan.steps.planned, real: plan.steps.real }, whole),
    ...roles.map((role) => line("calls", role, plan.calls[role] ?? {}, whole)),
    ...roles.map((role) => line("tokens", role, plan.tokens[role] ?? {}, whole)),
    ...roles.map((role) => line("cost", role, plan.usd[role] ?? {}, money)),
    line("time", "", plan.seconds, span),
  ];
  return sheet("Planned (estimate) and real", scroller("Table", table(["", "role", "planned", "real"], rows, { from: 2 })));
}
