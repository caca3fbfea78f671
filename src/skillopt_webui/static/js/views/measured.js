// One measurement outside of a training (an evaluation, a comparison, a check): its result, and its items.
import { h, put, tag, empty } from "../dom.js";
import { get, path } from "../api.js";
import { fixed, score, ranged, signed, whole, span, money } from "../format.js";
import { itemsTable, inAddress } from "../items.js";
import { openTrajectory, openNamed } from "../trajectory.js";

const WORD = { evaluations: "Evaluation", comparisons: "Comparison", checks: "Check" };

export async function measuredView(root, { parts, query, signal }) {
  document.title = "Measured · SkillOpt";
  const id = parts.slice(0, 4).join("/");
  const found = await get(`/api/measured/${path(id)}`, signal);
  put(
    root,
    h("div", { class: "crumb" }, h("a", { href: "#/evaluate" }, "Evaluate"), " / ", parts[2]),
    h("div", { class: "head" }, h("h1", {}, WORD[found.kind], " ", h("span", { class: "mono" }, parts[3]))),
    h("div", { class: "stack" }, h("section", { class: "panel pad" }, resultFigures(found.result)), measuredItems(id, found.table, { query, signal })),
  );
  openNamed({ api: `/api/measured/${path(id)}` }, query);
}

export function measuredItems(id, table, { query = new URLSearchParams(), signal } = {}) {
  const api = `/api/measured/${path(id)}`,
    { kept, write } = inAddress();
  if (!table.rows.length) return h("div", { class: "panel" }, empty("No trajectories were kept"));
  return itemsTable(table, {
    title: "Items",
    state: kept(query),
    onstate: write,
    signal,
    keys: true,
    find: async (q) => (await get(`${api}/items/search?q=${encodeURIComponent(q)}`, signal)).items,
    open: (row, column, rows) => openTrajectory({ api }, { item: row.item, column }, rows.map((r) => r.item)),
  });
}

const figuresOf = (pairs) =>
  h(
    "dl",
    { class: "figures" },
    pairs.filter(Boolean).map(([k, v]) => h("div", { class: "figure" }, h("dt", {}, k), h("dd", {}, v))),
  );

// What a result says, whatever it is of.
export function resultFigures(r) {
  if (r.base) return checkFigures(r);
  return r.a ? comparisonFigures(r) : evalFigures(r);
}

function evalFigures(r) {
  const figures = figuresOf([
    [`${r.split} score (${r.metric})`, ranged(r.score, r.interval)],
    ["hard", score(r.hard)],
    ["soft", score(r.soft)],
    ["items", whole(r.items)],
    ["skill", `${whole(r.skill.tokens)} tokens`],
    r.majority && ["always the same answer", score(r.majority.score)],
    r.test_reads && ["test read", `${r.test_reads} times`],
    r.seconds !== undefined && ["time", span(r.seconds)],
    r.paid?.usd !== undefined && ["cost", money(r.paid.usd)],
  ]);
  return h("div", { class: "stack tight" }, r.verdict && h("p", { class: "verdict" }, r.verdict), figures);
}

function comparisonFigures(r) {
  const [low, high] = r.difference_interval || [r.difference, r.difference];
  return h(
    "div",
    { class: "stack tight" },
    r.verdict && h("p", { class: "verdict" }, r.verdict),
    figuresOf([
      [r.a.name ? `left: ${r.a.name}` : "left", ranged(r.a.score, r.a.interval)],
      [r.b.name ? `right: ${r.b.name}` : "right", ranged(r.b.score, r.b.interval)],
      ["right minus left", `${signed(r.difference)} [${signed(low)} to ${signed(high)}]`],
      ["paired test, p", fixed(r.p, 4)],
      ["items", whole(r.items)],
    ]),
    h(
      "p",
      {},
      r.p < 0.05
        ? tag(r.difference > 0 ? "the right one is better" : "the left one is better", "good")
        : tag("no clear difference", "grey"),
      r.same_skill ? " Both are the same skill: what differs is the target's noise." : "",
    ),
  );
}

function checkFigures(r) {
  const kind = { better: "good", "no worse": "good", worse: "bad" }[r.verdict] || "warn";
  const side = (name) => [name, ranged(r.scores[name]?.score, r.scores[name]?.interval)];
  const difference = typeof r.difference === "number" ? r.difference : r.difference?.mean;
  return h(
    "div",
    { class: "stack tight" },
    h("p", { class: "verdict" }, tag(r.verdict, kind), ` on the ${r.split} split`),
    figuresOf([side("base"), side("skill"), difference !== undefined && ["difference", signed(difference)]]),
  );
}
