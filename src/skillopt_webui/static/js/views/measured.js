// One measurement outside of a training (an evaluation, a comparison, a check): its skills, its result, its items.
import { h, put, scroller, table, stackOf, closeStack, empty } from "../dom.js";
import { get, path } from "../api.js";
import { score, ranged, signed, whole, span, money, chance } from "../format.js";
import { itemsTable, inAddress } from "../items.js";
import { openTrajectory, openNamed } from "../trajectory.js";

const WORD = { evaluations: "Evaluation", comparisons: "Comparison", checks: "Check" };
const SPLIT = { val: "validation", train: "training", test: "test" };

// A skill's name for people: its file, or its run and version; `names` are the names that people gave to runs.
function named(skill, names) {
  const parts = (skill.path || skill.where || skill.name || "").replace(/\/SKILL\.md$/, "").split("/"),
    file = parts.at(-1),
    run = (folder) => names[folder] || folder;
  if (!file) return "the empty skill";
  if (/^best_skill(\.md)?$/.test(file)) return `${run(parts.at(-2))} best`;
  const version = /^skill_v(\d+)(\.md)?$/.exec(file) || /^v?(\d+)\.md$/.exec(file);
  if (version) return `${run(parts.at(-3))} v${Number(version[1])}`;
  const edited = /^edited_v(\d+)_\w+(\.md)?$/.exec(file);
  if (edited) return `an edit of v${edited[1]}`;
  return skill.path && skill.where?.endsWith(")") ? `${file} at ${skill.where}` : file; // the skill is from a commit
}

export function titleOf(kind, id, r, names) {
  const [skill, base] = r.a ? [r.b, r.a] : [r.skill, r.base];
  const what = `${named(skill, names)}${base ? ` against ${named(base, names)}` : ""}`;
  return `${WORD[kind]}: ${what} on ${id.split("/")[2]}, ${SPLIT[r.split] || r.split} split`;
}

export async function measuredView(root, { parts, query, signal }) {
  document.title = "Measured · SkillOpt";
  const id = parts.slice(0, 4).join("/");
  const found = await get(`/api/measured/${path(id)}`, signal);
  put(
    root,
    h("div", { class: "crumb" }, h("a", { href: "#/evaluate" }, "Evaluate"), " / ", parts[2]),
    h("div", { class: "head" }, h("h1", {}, titleOf(found.kind, id, found.result, found.names))),
    stackOf(h("section", { class: "panel pad" }, resultFigures(found)), measuredItems(id, found.table, { query, signal })),
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

// Any result: its sentence first, then the figures behind the sentence.
export function resultFigures({ result: r, names, table: items }) {
  const spent = r.telemetry?.paid || r.spent || r.paid;
  return closeStack(
    h("p", { class: "verdict" }, r.says || r.verdict),
    facts([
      ...sides(r, names),
      r.difference !== undefined && ["difference [95 %]", `${signed(r.difference)}${r.difference_interval ? ` [${signed(r.difference_interval[0])} to ${signed(r.difference_interval[1])}]` : ""}`],
      r.p !== undefined && ["paired test", chance(r.p)],
      ["items", whole(r.measured ?? r.items)],
      r.repeats > 1 && ["samples of each", whole(r.repeats)],
      r.majority && ["always the same answer", score(r.majority.score)],
      r.test_reads && ["test split read", r.test_reads === 1 ? "once" : `${r.test_reads} times`],
      r.seconds !== undefined && ["time", span(r.seconds)],
      spent?.usd !== undefined && ["cost", money(spent.usd)],
    ]),
    r.same_skill || r.same_text ? h("p", { class: "dim" }, "Both are the same skill: the differences are the target's noise.") : null,
    r.by_type ? byType(r.by_type) : items && byTypeOfBoth(items),
  );
}

function sides(r, names) {
  const side = (label, skill, { score: value, interval }) => [`${label}: ${named(skill, names)}`, ranged(value, interval)];
  if (r.base) return [side("base", r.base, r.scores.base), side("skill", r.skill, r.scores.skill)];
  if (r.a) return [side("left", r.a, r.a), side("right", r.b, r.b)];
  return [
    [`${r.split} score (${r.metric})`, ranged(r.score, r.interval)],
    ["skill", `${named(r.skill, names)}, ${whole(r.skill.tokens)} tokens`],
    r.metric !== "hard" && ["hard", score(r.hard)],
    r.metric !== "soft" && ["soft", score(r.soft)],
  ];
}

function byType(types) {
  const rows = Object.entries(types || {});
  if (rows.length < 2) return null;
  const cells = rows.map(([name, t]) => [name || "no type", score(t.score), whole(t.items)]);
  return scroller("By type", table(["type", "score", "items"], cells, { class: "narrow", from: 1 }));
}

// For two skills: the means over the items that both have done.
function byTypeOfBoth({ columns, rows }) {
  const groups = new Map();
  for (const row of rows.filter((row) => row.scores.length === 2 && !row.scores.includes(null)))
    groups.set(row.type, [...(groups.get(row.type) || []), row.scores]);
  if (groups.size < 2) return null;
  const mean = (pairs, side) => pairs.reduce((sum, pair) => sum + pair[side], 0) / pairs.length;
  const cells = [...groups]
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([name, pairs]) => [name || "no type", score(mean(pairs, 0)), score(mean(pairs, 1)), whole(pairs.length)]);
  return scroller("By type", table(["type", ...columns, "items"], cells, { class: "narrow", from: 1 }));
}
