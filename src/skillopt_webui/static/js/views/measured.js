// One measurement outside of a training (an evaluation, a comparison, a check): what was measured, its result, its items.
import { h, put, tag, empty, scroller } from "../dom.js";
import { get, path } from "../api.js";
import { score, ranged, signed, whole, span, money, chance } from "../format.js";
import { itemsTable, inAddress } from "../items.js";
import { openTrajectory, openNamed } from "../trajectory.js";

const WORD = { evaluations: "Evaluation", comparisons: "Comparison", checks: "Check" };
const SPLIT = { val: "validation", train: "training", test: "test" };

// A skill as people know it: its file, or the run and version that it is from.
const named = (skill) => {
  const parts = (skill.where || skill.path || skill.name || "").split("/"),
    file = parts.at(-1);
  if (!file) return "the empty skill";
  if (file === "best_skill.md") return `${parts.at(-2)} best`;
  const version = /^skill_v(\d+)\.md$/.exec(file) || /^v?(\d+)\.md$/.exec(file);
  return version ? `${parts.at(-3)} v${Number(version[1])}` : file;
};

export function titleOf(kind, id, r) {
  const what = r.base ? `${named(r.skill)} against ${named(r.base)}` : r.a ? `${named(r.b)} against ${named(r.a)}` : named(r.skill);
  return `${WORD[kind]}: ${what} on ${id.split("/")[2]}, ${SPLIT[r.split] || r.split} split`;
}

export async function measuredView(root, { parts, query, signal }) {
  document.title = "Measured · SkillOpt";
  const id = parts.slice(0, 4).join("/");
  const found = await get(`/api/measured/${path(id)}`, signal);
  put(
    root,
    h("div", { class: "crumb" }, h("a", { href: "#/evaluate" }, "Evaluate"), " / ", parts[2]),
    h("div", { class: "head" }, h("h1", {}, titleOf(found.kind, id, found.result))),
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

const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.filter(Boolean).map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v))));

// What a result says, whatever it is of: the sentence first, then the figures that it rests on.
export function resultFigures(r) {
  const spent = r.telemetry?.paid || r.spent || r.paid;
  return h(
    "div",
    { class: "stack tight" },
    h("p", { class: "verdict" }, r.base && [tag(r.verdict, { better: "good", "no worse": "good", worse: "bad" }[r.verdict] || "warn"), " "], r.says || r.verdict),
    facts([
      ...sides(r),
      r.difference !== undefined && ["difference [95 %]", `${signed(r.difference)}${r.difference_interval ? ` [${signed(r.difference_interval[0])} to ${signed(r.difference_interval[1])}]` : ""}`],
      r.p !== undefined && ["paired test", chance(r.p)],
      ["items", whole(r.measured ?? r.items)],
      r.repeats > 1 && ["samples of each", whole(r.repeats)],
      r.majority && ["always the same answer", score(r.majority.score)],
      r.test_reads && ["test split read", r.test_reads === 1 ? "once" : `${r.test_reads} times`],
      r.seconds !== undefined && ["time", span(r.seconds)],
      spent?.usd !== undefined && ["cost", money(spent.usd)],
    ]),
    r.same_skill || r.same_text ? h("p", { class: "dim" }, "Both are the same skill: what differs is the target's noise.") : null,
    byType(r.by_type),
  );
}

function sides(r) {
  if (r.base) return [[`base: ${named(r.base)}`, ranged(r.scores.base.score, r.scores.base.interval)], [`skill: ${named(r.skill)}`, ranged(r.scores.skill.score, r.scores.skill.interval)]];
  if (r.a) return [[`left: ${named(r.a)}`, ranged(r.a.score, r.a.interval)], [`right: ${named(r.b)}`, ranged(r.b.score, r.b.interval)]];
  return [[`${r.split} score (${r.metric})`, ranged(r.score, r.interval)], ["skill", `${named(r.skill)}, ${whole(r.skill.tokens)} tokens`], r.metric !== "hard" && ["hard", score(r.hard)], r.metric !== "soft" && ["soft", score(r.soft)]];
}

function byType(types) {
  const rows = Object.entries(types || {});
  if (rows.length < 2) return null;
  const cells = rows.map(([name, t]) => h("tr", {}, h("td", {}, name || "no type"), h("td", { class: "n" }, score(t.score)), h("td", { class: "n" }, whole(t.items))));
  return scroller("By type", h("table", { class: "narrow" }, h("thead", {}, h("tr", {}, ["type", "score", "items"].map((t, i) => h("th", { class: i ? "n" : "" }, t)))), h("tbody", {}, cells)));
}
