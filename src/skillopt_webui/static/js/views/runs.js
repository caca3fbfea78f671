// All runs: live ones first; search, sort, filter. Only visible lines exist.
import { h, put, tag, empty, calm } from "../dom.js";
import { get, post, path } from "../api.js";
import { score, signed, money, span, ago } from "../format.js";
import { spark } from "../chart.js";
import { virtualList } from "../virtual.js";

const COLUMNS = [
  ["run", "Run", (r) => r.id],
  ["status", "Status", (r) => r.status],
  ["models", "Models", (r) => r.target],
  [null, "Validation", null],
  ["best", "Initial → best", (r) => r.best ?? -1],
  ["usd", "Cost", (r) => r.usd ?? -1],
  ["seconds", "Time", (r) => r.seconds ?? -1],
  ["steps", "Steps", (r) => r.steps ?? -1],
  ["changed", "Changed", (r) => r.changed],
];
const FAR = new Set(["steps", "changed"]),
  RIGHT = new Set(["best", "usd", "seconds", "steps", "changed"]);
const kept = { search: "", status: "", benchmark: "", sort: "", down: true };

export async function runsView(root, { signal }) {
  let rows = [],
    folders = [],
    stamp = "";
  const sparks = new Map(),
    wanted = new Set(),
    stale = new Set();
  const count = h("span", { class: "dim", "aria-live": "polite" });
  const search = h("input", {
    type: "search",
    placeholder: "Search runs, models, benchmarks",
    "aria-label": "Search",
    value: kept.search,
    oninput: () => {
      kept.search = search.value;
      refresh();
    },
  });
  const status = h("select", {
    "aria-label": "Status",
    onchange: () => {
      kept.status = status.value;
      refresh();
    },
  });
  const benchmark = h("select", {
    "aria-label": "Benchmark",
    onchange: () => {
      kept.benchmark = benchmark.value;
      refresh();
    },
  });
  const heads = h("div", { class: "line heads", role: "row" });
  const list = virtualList({
    height: () => (window.innerWidth <= 900 ? 104 : 56),
    make: line,
    onshown: askSparks,
    signal,
  });
  const table = h("div", { class: "panel runs", role: "table", "aria-label": "Runs" }, heads, list.node);
  const body = h("div", {});
  put(
    root,
    h(
      "div",
      { class: "head" },
      h("div", { class: "row" }, h("h1", {}, "Runs"), count),
      h("a", { class: "button main", href: "#/new" }, "New run"),
    ),
    h("div", { class: "filters" }, search, status, benchmark),
    body,
  );

  function line(row) {
    const mark = h("span", { class: "c-spark", role: "cell" }, spark(sparks.get(row.id) || []));
    const gain = row.best != null && row.initial != null ? row.best - row.initial : null;
    return h(
      "a",
      { class: "line", role: "row", href: `#/run/${path(row.id)}/overview`, "data-key": row.id },
      h(
        "span",
        { class: "cut c-name", role: "cell" },
        h("b", {}, row.benchmark),
        h("br"),
        h("span", { class: "dim mono small" }, row.run),
      ),
      h("span", { class: "c-status", role: "cell" }, tag(row.status)),
      h(
        "span",
        { class: "cut c-models small", role: "cell", title: `target ${row.target}\noptimizer ${row.optimizer}` },
        row.target || "–",
        h("br"),
        h("span", { class: "dim" }, row.optimizer),
      ),
      mark,
      h(
        "span",
        { class: "n c-score", role: "cell" },
        row.best == null ? "–" : [`${score(row.initial)} → `, h("b", {}, score(row.best))],
        gain !== null && h("span", { class: `small ${gain > 0 ? "good" : "dim"}` }, ` ${signed(gain)}`),
      ),
      h("span", { class: "n c-rest", role: "cell" }, row.usd === undefined ? "–" : money(row.usd)),
      h("span", { class: "n c-rest", role: "cell" }, span(row.seconds)),
      h(
        "span",
        { class: "n c-rest far", role: "cell" },
        row.steps === undefined ? "–" : row.planned ? `${row.steps} / ${row.planned}` : row.steps,
      ),
      h("span", { class: "n c-rest far dim", role: "cell" }, ago(row.changed)),
    );
  }

  function drawHeads() {
    put(
      heads,
      COLUMNS.map(([key, text]) =>
        h(
          "span",
          { role: "columnheader", class: `${FAR.has(key) ? "far" : ""} ${RIGHT.has(key) ? "n" : ""}` },
          key
            ? h(
                "button",
                {
                  "data-key": `sort-${key}`,
                  "aria-sort": kept.sort === key ? (kept.down ? "descending" : "ascending") : null,
                  onclick: () => {
                    kept.down = kept.sort === key ? !kept.down : true;
                    kept.sort = key;
                    refresh();
                  },
                },
                text,
                kept.sort === key ? (kept.down ? " ↓" : " ↑") : "",
              )
            : h("span", { class: "dim small" }, text),
        ),
      ),
    );
  }

  function options(select, name, values) {
    if (select.options.length === values.length + 1 && values.every((v, i) => select.options[i + 1].value === v))
      return;
    put(
      select,
      h("option", { value: "" }, `Every ${name}`),
      values.map((v) => h("option", { value: v }, v)),
    );
    select.value = values.includes(kept[name]) ? kept[name] : "";
  }

  function refresh() {
    const words = kept.search.toLowerCase().split(/\s+/).filter(Boolean);
    let found = rows.filter(
      (r) =>
        (!kept.status || r.status === kept.status) &&
        (!kept.benchmark || r.benchmark === kept.benchmark) &&
        words.every((w) => r.text.includes(w)),
    );
    const column = COLUMNS.find(([key]) => key && key === kept.sort);
    if (column) {
      const value = column[2],
        sign = kept.down ? -1 : 1;
      found = [...found].sort((a, b) => {
        const x = value(a),
          y = value(b);
        return x < y ? -sign : x > y ? sign : 0;
      });
    }
    count.textContent = rows.length
      ? found.length === rows.length
        ? `${rows.length.toLocaleString("en")}`
        : `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`
      : "";
    drawHeads();
    if (!rows.length)
      put(
        body,
        h(
          "div",
          { class: "panel" },
          empty(
            "No runs yet",
            h("p", {}, `There is nothing under ${folders.join(", ")}.`),
            h("p", {}, "The simulated world shows the whole loop in a few seconds, without a key."),
            h("a", { class: "button main", href: "#/new" }, "Start a first run"),
          ),
        ),
      );
    else if (!found.length)
      put(
        body,
        h(
          "div",
          { class: "panel" },
          empty(
            "Nothing fits",
            h(
              "button",
              {
                onclick: () => {
                  Object.assign(kept, { search: "", status: "", benchmark: "" });
                  search.value = status.value = benchmark.value = "";
                  refresh();
                },
              },
              "Show all runs",
            ),
          ),
        ),
      );
    else if (table.parentNode !== body) put(body, table);
    list.set(found);
  }

  async function askSparks(shown) {
    const ids = shown.map((r) => r.id).filter((id) => (!sparks.has(id) || stale.has(id)) && !wanted.has(id));
    if (!ids.length) return;
    ids.forEach((id) => wanted.add(id));
    const found = await post("/api/sparks", { ids }, signal).catch(() => ({}));
    for (const id of ids) {
      sparks.set(id, found[id] || []);
      wanted.delete(id);
      stale.delete(id);
    }
    for (const node of list.node.children)
      if (found[node.dataset.key]) put(node.querySelector(".c-spark"), spark(found[node.dataset.key]));
  }

  async function load() {
    const answer = await get(`/api/runs?since=${stamp}`, signal);
    if (answer.same) return;
    const before = new Map(rows.map((r) => [r.id, r.changed]));
    ({ rows, folders, stamp } = answer);
    for (const r of rows) {
      r.text = `${r.id} ${r.target} ${r.optimizer} ${r.status} seed${r.seed}`.toLowerCase();
      if (before.get(r.id) !== r.changed) stale.add(r.id);
    }
    calm(() => {
      options(status, "status", [...new Set(rows.map((r) => r.status))].sort());
      options(benchmark, "benchmark", [...new Set(rows.map((r) => r.benchmark))].sort());
      refresh();
    });
  }

  document.addEventListener(
    "keydown",
    (event) => {
      if (event.target.closest("input, textarea, select, dialog") || event.ctrlKey || event.metaKey) return;
      if (event.key === "j" || event.key === "k") {
        list.focus(list.index() + (event.key === "j" ? 1 : -1));
        event.preventDefault();
      }
    },
    { signal },
  );

  await load();
  const timer = setInterval(() => {
    if (!document.hidden)
      load().catch((error) => {
        if (error.status) put(count, error.message);
      });
  }, 2500);
  signal.addEventListener("abort", () => clearInterval(timer));
}
