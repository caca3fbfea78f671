// The table of items: task, output, expected answer and scores side by side, with modes, search, filters and keys.
import { h, put, onKeys, rowOf, select, empty, tag, segment } from "./dom.js";
import { fixed } from "./format.js";
import { virtualList } from "./virtual.js";

const MODES = [
  ["all", "All"],
  ["failing", "Failing"],
  ["regressed", "Regressed"],
  ["improved", "Improved"],
  ["changed", "Changed"],
];
const SPLITS = { val: "Validation", train: "Training", test: "Test" };
const words = (n) => n.toLocaleString("en");

// table: {columns: [name…], rows: [{item, split, type, cause, input, output, outputs, expected, scores}]}
// open(row, column, ids) shows a trajectory; find(text) returns the items whose full texts contain the text;
// state: the chosen options, as in the address; onstate(state) is called when they change; runs: columns are runs.
export function itemsTable(table, { title, open, find, state = {}, onstate, signal, keys = false, runs = false }) {
  const { columns, rows } = table;
  const several = columns.length > 1,
    exact = runs || columns.length <= 2,
    sides = rows.some((r) => r.outputs); // each column has its own output
  const splits = [...new Set(rows.map((r) => r.split))].sort((a, b) => b.localeCompare(a));
  const chosen = {
    split: splits.includes(state.split) ? state.split : splits[0],
    mode: state.mode || "all",
    q: state.q || "",
    type: state.type || "",
    cause: state.cause || "",
    a: place(state.a, columns[0] === "no skill" && columns.length > 2 ? 1 : 0),
    b: place(state.b, columns.length - 1),
  };
  let shown = [],
    hits = null,
    cell = null,
    asked = 0;
  const count = h("span", { class: "dim small", "aria-live": "polite" });
  const body = h("div", {});
  const heads = h("div", { class: "line heads", role: "row" });
  const scroll = h("div", { class: "tablebox" });
  const list = virtualList({ height: () => (window.innerWidth > 900 ? 66 : sides ? 92 + 24 * columns.length : 146), make: line, scroller: scroll, signal });
  const view = h(
    "div",
    {
      class: `items ${sides ? "columns" : several ? (columns.length > 2 ? "wide" : "") : "single"}`,
      role: "table",
      "aria-label": title,
      style: { "--n": columns.length },
    },
    h("div", { role: "rowgroup" }, heads),
    list.node,
  );
  list.node.setAttribute("role", "rowgroup");
  scroll.append(view);

  function place(name, preset) {
    const found = columns.indexOf(name);
    return found >= 0 ? found : preset;
  }

  // The newest score at or before a column, and the oldest at or after a column: not every version is measured on every item.
  const upTo = (row, i) => row.scores.findLastIndex((v, n) => n <= i && v !== null);
  const from = (row, i) => row.scores.findIndex((v, n) => n >= i && v !== null);
  // For runs and for the two sides of a measurement, no neighbouring column replaces a missing score.
  function ends(row) {
    if (exact) return { a: chosen.a, b: chosen.b, before: row.scores[chosen.a] ?? null, after: row.scores[chosen.b] ?? null };
    const b = upTo(row, chosen.b),
      a = from(row, chosen.a);
    return { a, b, before: a < b ? (row.scores[a] ?? null) : null, after: row.scores[b] ?? null };
  }
  const changed = (row, sign) => {
    const { before, after } = ends(row);
    return before !== null && after !== null && sign * (after - before) > 0;
  };
  const MODE = {
    all: () => true,
    failing: (row) => (ends(row).after ?? 1) < 0.5,
    regressed: (row) => changed(row, -1),
    improved: (row) => changed(row, 1),
    changed: (row) => new Set(row.scores.slice(chosen.a, chosen.b + 1).filter((v) => v !== null)).size > 1,
  };

  function mine() {
    const near = chosen.q.toLowerCase();
    const said = (row) =>
      [row.item, row.input, row.output, row.expected, ...(row.outputs || [])].some((t) => t.toLowerCase().includes(near));
    return rows.filter(
      (row) =>
        row.split === chosen.split &&
        (!chosen.type || row.type === chosen.type) &&
        (!chosen.cause || row.cause === chosen.cause) &&
        (!near || said(row) || hits?.has(row.item)),
    );
  }

  function refresh() {
    const pool = mine();
    shown = pool.filter(MODE[chosen.mode] || MODE.all);
    const whole = rows.filter((r) => r.split === chosen.split).length;
    const shared = rows.filter((r) => r.split === chosen.split && r.scores.every((v) => v !== null)).length;
    count.textContent = [
      `${words(shown.length)} of ${words(whole)} items`,
      several && ", least solved first",
      runs && `; ${words(shared)} of ${words(whole)} items are shared`,
    ]
      .filter(Boolean)
      .join("");
    drawModes(pool);
    put(body, shown.length ? scroll : empty("No item matches", "Choose another mode, or search for something else."));
    drawHeads();
    list.set(shown);
    onstate?.({
      split: splits.length > 1 ? chosen.split : "",
      mode: chosen.mode === "all" ? "" : chosen.mode,
      q: chosen.q,
      type: chosen.type,
      cause: chosen.cause,
      a: columns.length > 2 ? columns[chosen.a] : "",
      b: columns.length > 2 ? columns[chosen.b] : "",
    });
  }

  const modes = h("div", {});
  function drawModes(pool) {
    const usable = several ? MODES : MODES.slice(0, 2);
    const named = ([name, text]) => {
      const word = runs && name === "changed" ? "Different between runs" : text;
      return [name, `${word} ${words(pool.filter(MODE[name]).length)}`];
    };
    put(modes, segment(usable.map(named), chosen.mode, (mode) => set({ mode }), "Show"));
  }

  function set(next) {
    Object.assign(chosen, next);
    cell = null;
    drawFilters();
    refresh();
  }

  const search = h("input", {
    type: "search",
    placeholder: "Search tasks, outputs, answers",
    "aria-label": "Search items",
    value: chosen.q,
    oninput: () => {
      chosen.q = search.value.trim();
      hits = null;
      refresh();
      deeper();
    },
  });
  // The texts in the table are shortened; the server has the full texts.
  async function deeper() {
    const mineNow = ++asked;
    if (!find || chosen.q.length < 2) return;
    const found = await find(chosen.q).catch(() => null);
    if (found && mineNow === asked) {
      hits = new Set(found);
      refresh();
    }
  }

  const filters = h("div", { class: "row" });
  const choice = (name, label, values) =>
    (values.length > 1 || chosen[name]) &&
    select(label, [["", `Every ${label.toLowerCase()}`], ...values.map((v) => [v, v.slice(0, 60)])], chosen[name], (next) => set({ [name]: next }), {
      "data-key": `items-${name}`,
    });
  function drawFilters() {
    const own = rows.filter((r) => r.split === chosen.split);
    const kinds = (name) => [...new Set(own.map((r) => r[name]).filter(Boolean))].sort();
    const names = columns.map((text, i) => [i, sides ? letter(i) : text]);
    const column = (name, label) =>
      select(label, names, chosen[name], (next) => set({ [name]: Number(next) }), { "data-key": `items-${name}` });
    put(
      filters,
      splits.length > 1 &&
        segment(
          splits.map((s) => [s, SPLITS[s] || s]),
          chosen.split,
          (split) => set({ split, type: "", cause: "" }),
          "Split",
        ),
      choice("type", "Type", kinds("type")),
      choice("cause", "Cause", kinds("cause")),
      columns.length > 2 && [column("a", "From"), h("span", { class: "dim" }, "→"), column("b", "To")],
    );
  }

  function drawHeads() {
    const names = sides
      ? ["Item", "Task", "Expected", ...columns.map((name, i) => [h("b", {}, `${letter(i)} `), name])]
      : ["Item", "Task", "Output", "Expected", several ? "Score" : columns[0]];
    put(
      heads,
      names.map((name, i) => h("span", { role: "columnheader", title: sides ? columns[i - 3] : null }, name)),
      columns.length > 2 && !sides && h("span", { role: "columnheader" }, `${columns[0]} … ${columns.at(-1)}`),
    );
  }

  // Versions of one skill: the newest output, the scores of the two chosen versions, and a cell for each version.
  function versions(row) {
    const { a, b, before, after } = ends(row);
    const cell = (v, i) =>
      h("i", { class: heat(v), title: `${columns[i]}: ${v === null ? "not measured" : fixed(v)}`, data: { at: i } });
    return [
      h("span", { class: "c-output clamp mono", role: "cell" }, row.output),
      h("span", { class: "c-expected clamp mono", role: "cell" }, row.expected || "–"),
      h(
        "span",
        { class: "c-score", role: "cell" },
        several ? [mark(before, columns[a]), " → ", mark(after, columns[b])] : mark(after, ""),
        columns.length > 2 && a >= 0 && b >= 0 && h("span", { class: "small dim" }, `${columns[a]} → ${columns[b]}`),
      ),
      columns.length > 2 &&
        h(
          "span",
          { class: "c-strip", role: "cell" },
          h("span", { class: "cells", role: "img", "aria-label": spoken(row) }, row.scores.map(cell)),
        ),
    ];
  }

  // Runs, or two skills: the score and the output of each in its own column.
  const outputs = (row) => [
    h("span", { class: "c-expected clamp mono", role: "cell" }, row.expected || "–"),
    row.scores.map((v, i) =>
      h(
        "span",
        { class: "c-side", role: "cell", data: { at: i } },
        h("b", { class: "only-phone" }, letter(i)),
        mark(v, columns[i]),
        h("span", { class: "clamp mono" }, row.outputs[i] || "–"),
      ),
    ),
  ];

  function line(row, index) {
    const node = h(
      "div",
      {
        class: "line",
        role: "row",
        tabindex: "0",
        "data-key": row.id || row.item,
        onclick: (event) => show(row, Number(event.target.closest("[data-at]")?.dataset.at ?? ends(row).b)),
        onkeydown: (event) => key(event, row, index, node),
      },
      h(
        "span",
        { class: "c-item", role: "cell" },
        h("b", { class: "mono" }, row.item),
        h("span", { class: "small dim" }, [row.type, row.cause].filter(Boolean).join(" · ")),
      ),
      h("span", { class: "c-task clamp", role: "cell" }, row.input),
      sides ? outputs(row) : versions(row),
    );
    return node;
  }

  const spoken = (row) =>
    row.scores
      .map((v, i) => (v === null ? "" : `${columns[i]} ${fixed(v)}`))
      .filter(Boolean)
      .join(", ");

  function show(row, column) {
    open?.(row, Math.max(0, column), shown);
  }

  function key(event, row, index, node) {
    const down = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key],
      side = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Enter") show(row, cell?.row === row ? cell.at : ends(row).b);
    else if (down) list.focus(index + down);
    else if (side && several) {
      const now = cell?.row === row ? cell.at : side > 0 ? -1 : columns.length;
      cell = { row, at: Math.min(columns.length - 1, Math.max(0, now + side)) };
      for (const each of node.querySelectorAll("[data-at]")) each.classList.toggle("at", Number(each.dataset.at) === cell.at);
      node.setAttribute("aria-label", `${row.item}, ${columns[cell.at]}: ${said(row.scores[cell.at])}`);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  if (keys)
    onKeys(signal, (key) => {
      const move = { j: 1, k: -1 }[key];
      if (move) list.focus(list.index() + move);
      return Boolean(move);
    });

  drawFilters();
  refresh();
  deeper();
  return h(
    "section",
    { class: "panel itemtable" },
    h("div", { class: "row between pad" }, rowOf(h("h2", {}, title), count), search),
    h("div", { class: "row pad tools" }, modes, filters),
    sides && h("p", { class: "legend pad" }, columns.map((name, i) => h("span", {}, h("b", {}, `${letter(i)} `), name))),
    body,
  );
}

export const letter = (i) => "ABCDEF"[i];
const said = (v) => (v === null || v === undefined ? "not measured" : fixed(v));
const heat = (v) => (v === null ? "none" : `heat${Math.round(v * 4)}`);
const mark = (v, name) =>
  v === null
    ? tag("–", "grey")
    : h("span", { title: name }, tag(`${v >= 1 ? "✓ " : v <= 0 ? "✗ " : ""}${fixed(v)}`, v >= 1 ? "good" : v <= 0 ? "bad" : v >= 0.5 ? "part" : "warn"));

// Keeps the chosen options in the address, so that a person can send them to others.
export function inAddress(prefix = "") {
  const kept = (query) =>
    Object.fromEntries(
      ["split", "mode", "q", "type", "cause", "a", "b"].map((name) => [name, query.get(prefix + name) || ""]),
    );
  const write = (state) => {
    const [path, raw] = location.hash.split("?");
    const query = new URLSearchParams(raw || "");
    for (const [name, value] of Object.entries(state))
      if (value) query.set(prefix + name, value);
      else query.delete(prefix + name);
    const text = query.toString();
    history.replaceState(history.state, "", text ? `${path}?${text}` : path);
  };
  return { kept, write };
}
