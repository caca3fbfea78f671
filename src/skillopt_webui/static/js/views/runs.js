// The table of runs, with the settings that differ; search, sort, filter, groups, selection, CSV, names and notes.
import { h, put, onKeys, every, rowOf, fieldOf, button, select, emptyPanel, tag, menu, question, calm } from "../dom.js";
import { get, post, of, path } from "../api.js";
import { score, ranged, money, span, ago, tone } from "../format.js";
import { spark } from "../chart.js";
import { virtualList } from "../virtual.js";

const MOST = 6;
const FIRST = ["train.", "models.", "optimizer.", "gradient.", "evaluation.", "env."];
const kept = { search: "", status: "", benchmark: "", sort: "", down: true, group: "", keys: null, ticked: new Set(), folded: new Set() };
const short = (key) => key.slice(key.indexOf(".") + 1);
const said = (value) => (value === null || value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));

export async function runsView(root, { query, signal }) {
  for (const name of ["search", "status", "benchmark", "sort", "group"]) if (query.has(name)) kept[name] = query.get(name);
  if (query.has("up")) kept.down = false;
  let rows = [],
    folders = [],
    stamp = "",
    keys = [],
    groups = {},
    trials = [],
    found = [];
  const sparks = new Map(),
    wanted = new Set(),
    stale = new Set();
  const count = h("span", { class: "dim", "aria-live": "polite" });
  const picked = h("div", { class: "row picks", "aria-live": "polite" });
  const chooser = menu("Columns", "chooser");
  const filter = (name, label, choices = []) => select(label, choices, kept[name], (value) => set({ [name]: value }));
  const groupings = [
    ["", "No groups"],
    ["group", "Seeds and sweeps"],
  ];
  const status = filter("status", "Status"),
    benchmark = filter("benchmark", "Benchmark"),
    grouping = filter("group", "Groups", groupings);
  const search = h("input", {
    type: "search",
    placeholder: "Search names, tags, notes, models, settings",
    "aria-label": "Search",
    value: kept.search,
    oninput: () => set({ search: search.value }),
  });
  const heads = h("div", { class: "line heads", role: "row" });
  const scroll = h("div", { class: "tablebox" });
  const list = virtualList({
    height: () => (window.innerWidth <= 900 ? 124 : 62),
    make: (row) => (row.head ? groupLine(row) : line(row)),
    onshown: askSparks,
    scroller: scroll,
    signal,
  });
  list.node.setAttribute("role", "rowgroup");
  const table = h(
    "div",
    { class: "wide", role: "table", "aria-label": "Runs" },
    h("div", { role: "rowgroup" }, heads),
    list.node,
  );
  scroll.append(table);
  scroll.classList.add("panel", "runs");
  const body = h("div", {});
  put(
    root,
    h(
      "div",
      { class: "head" },
      rowOf(h("h1", {}, "Runs"), count),
      rowOf(
        h("button", { onclick: download }, "Export CSV"),
        h("a", { class: "button main", href: "#/new" }, "New run"),
      ),
    ),
    h("div", { class: "filters" }, search, status, benchmark, grouping, chooser.node),
    picked,
    body,
  );

  function set(next) {
    Object.assign(kept, next);
    address();
    refresh();
  }

  // Filters, order and groups are in the address.
  function address() {
    const state = Object.entries({ search: kept.search, status: kept.status, benchmark: kept.benchmark, sort: kept.sort, group: kept.group, up: kept.sort && !kept.down ? "1" : "" }).filter(([, v]) => v);
    history.replaceState(history.state, "", `#/runs${state.length ? `?${new URLSearchParams(state)}` : ""}`);
  }

  // The settings that a person chose, else the settings that differ between the shown runs.
  function columns() {
    if (kept.keys) return keys.filter((key) => kept.keys.has(key));
    const rank = (key) => FIRST.findIndex((begin) => key.startsWith(begin)) + FIRST.length * (key === "train.seed" ? -1 : 0);
    const differ = keys.filter((key) => new Set(found.map((r) => said(r.config?.[key]))).size > 1);
    return differ.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b)).slice(0, window.innerWidth > 1850 ? 5 : window.innerWidth > 1700 ? 4 : window.innerWidth > 1480 ? 2 : 1);
  }

  const cells = (row) => [
    h("span", { class: "n c-score", role: "cell" }, row.best_val == null ? "–" : [`${score(row.initial_val)} → `, h("b", {}, ranged(row.best_val, row.val_interval))]),
    h("span", { class: "n c-test", role: "cell" }, row.best_test == null ? "–" : ranged(row.best_test, row.test_interval)),
    h("span", { class: "n c-rest", role: "cell" }, row.calls === 0 ? "–" : money(row.usd)),
    h("span", { class: "n c-rest", role: "cell" }, time(row)),
  ];

  // The values that a sweep gave to a run, and whether it won.
  function sweptTags(id) {
    const own = trials.filter((t) => t.kind === "sweeps").flatMap((t) => t.rows.filter((r) => r.run === id));
    return own.map((r) => [tag(r.name, "grey"), r.winner && tag("winner", "good")]);
  }

  const time = (row) => (row.since ? span(Math.max(0, Math.round(Date.now() / 1000 - row.since))) : row.seconds ? span(row.seconds) : "–");

  function line(row) {
    const tick = h("input", {
      type: "checkbox",
      "aria-label": `Compare ${row.labels.name || row.name}`,
      checked: kept.ticked.has(row.id),
      onchange: () => {
        if (tick.checked) kept.ticked.add(row.id);
        else kept.ticked.delete(row.id);
        drawPicked();
      },
    });
    return h(
      "div",
      { class: "line run", role: "row", "data-key": row.id },
      h("span", { role: "cell", class: "c-tick" }, tick),
      h(
        "span",
        { class: "c-name", role: "cell" },
        h(
          "a",
          { href: `#/run/${path(row.id)}/overview`, "data-key": `run-${row.id}` },
          h("b", { title: row.labels.name || null }, row.labels.name || row.benchmark),
          h("span", { class: "mono small dim" }, row.name),
        ),
        h(
          "span",
          { class: "small tags" },
          kept.group && sweptTags(row.id),
          row.labels.tags.map((t) => tag(t, "info")),
          row.labels.note && h("span", { class: "dim", title: row.labels.note }, row.labels.note),
        ),
      ),
      h("span", { class: "c-status", role: "cell", title: row.reason || null }, tag(row.word, tone(row))),
      columns().map((key) => h("span", { class: "c-key mono small", role: "cell", title: key }, said(row.config?.[key]))),
      h("span", { class: "c-spark", role: "cell" }, spark(sparks.get(row.id) || [], row.planned_steps)),
      cells(row),
      h("span", { class: "n c-rest far dim", role: "cell" }, ago(row.changed)),
      h(
        "span",
        { role: "cell", class: "c-edit" },
        h("button", { class: "icon", "aria-label": `Name, tags and note of ${row.name}`, onclick: () => edit(row) }, "✎"),
      ),
    );
  }

  function groupLine({ head, key, title, own, about, address }) {
    const open = !kept.folded.has(key);
    const fold = () => {
      if (open) kept.folded.add(key);
      else kept.folded.delete(key);
      refresh();
    };
    return h(
      "div",
      { class: "line group", role: "row", "data-key": `group-${key}` },
      h("span", { role: "cell" }, h("button", { class: "icon", "data-key": `fold-${key}`, "aria-expanded": String(open), "aria-label": `${open ? "Fold" : "Unfold"} ${title}`, onclick: fold }, open ? "▾" : "▸")),
      h("span", { class: "c-name", role: "cell", "aria-colspan": columns().length + 3 }, address ? h("a", { href: address }, h("b", {}, title)) : h("b", {}, title), h("span", { class: "small dim" }, `${about}; ${own.length} ${open ? "shown" : "folded"}`)),
      cells(head),
      h("span", { role: "cell", class: "far" }),
      h("span", { role: "cell", class: "c-edit" }),
    );
  }

  const COLUMNS = () => [
    ["", "", null],
    ["run", "Run", (r) => r.labels.name || r.id],
    ["status", "Status", (r) => r.word],
    ...columns().map((key) => [key, short(key), (r) => r.config?.[key] ?? ""]),
    ["", "Curve", null],
    ["best_val", "Validation [95 %]", (r) => r.best_val ?? -1],
    ["best_test", "Test [95 %]", (r) => r.best_test ?? -1],
    ["usd", "Cost", (r) => r.usd ?? -1],
    ["seconds", "Time", (r) => r.seconds ?? -1],
    ["changed", "Changed", (r) => r.changed],
    ["", "", null],
  ];
  const RIGHT = new Set(["best_val", "best_test", "usd", "seconds", "changed"]);

  function drawHeads() {
    table.style.setProperty("--keys", "minmax(70px, 110px) ".repeat(columns().length));
    table.style.setProperty("--span", columns().length + 3);
    table.style.setProperty("--least", `${1283 + 82 * columns().length}px`);
    put(
      heads,
      COLUMNS().map(([key, text]) =>
        h(
          "span",
          {
            role: "columnheader",
            class: `${key === "changed" ? "far" : ""} ${RIGHT.has(key) ? "n" : ""}`,
            "aria-sort": key && kept.sort === key ? (kept.down ? "descending" : "ascending") : null,
          },
          key
            ? h(
                "button",
                {
                  "data-key": `sort-${key}`,
                  title: key,
                  onclick: () => set({ down: kept.sort === key ? !kept.down : true, sort: key }),
                },
                text,
                kept.sort === key ? (kept.down ? " ↓" : " ↑") : "",
              )
            : text,
        ),
      ),
    );
  }

  function drawChooser() {
    put(
      chooser.inside,
      keys.length ? null : h("p", { class: "dim" }, "No setting differs."),
      keys.map((key) =>
        h(
          "label",
          { class: "row mono small" },
          h("input", {
            type: "checkbox",
            "data-key": `col-${key}`,
            checked: columns().includes(key),
            onchange: (event) => {
              const now = new Set(columns());
              if (event.target.checked) now.add(key);
              else now.delete(key);
              set({ keys: now });
            },
          }),
          key,
        ),
      ),
    );
  }

  function drawPicked() {
    for (const id of kept.ticked) if (!rows.some((r) => r.id === id)) kept.ticked.delete(id);
    const n = kept.ticked.size,
      fits = n >= 2 && n <= MOST;
    const clear = () => {
      kept.ticked.clear();
      refresh();
    };
    put(
      picked,
      n > 0 && [
        h("span", {}, `${n} selected`),
        fits
          ? h("a", { class: "button main", href: `#/compare?runs=${[...kept.ticked].map(encodeURIComponent).join(",")}` }, "Compare them")
          : h("span", { class: "dim" }, `select two to ${MOST} to compare them`),
        button("Clear", clear, { class: "plain" }),
      ],
    );
  }

  function options(select, name, values) {
    put(
      select,
      h("option", { value: "" }, `Every ${name}`),
      values.map((v) => h("option", { value: v, selected: v === kept[name] }, v)),
    );
  }

  function sorted(list) {
    const column = COLUMNS().find(([key]) => key && key === kept.sort);
    if (!column) return list;
    const sign = kept.down ? -1 : 1;
    return [...list].sort((a, b) => {
      const x = column[2](a),
        y = column[2](b);
      return x < y ? -sign : x > y ? sign : 0;
    });
  }

  // The groups: sweeps and replicates first, then runs that differ only in their seed, then all other runs.
  function grouped(list) {
    if (!kept.group) return list;
    const lines = [],
      taken = new Set();
    const add = (head) => {
      lines.push(head, ...(kept.folded.has(head.key) ? [] : head.own));
      for (const row of head.own) taken.add(row.id);
    };
    for (const t of trials) {
      const own = list.filter((row) => t.rows.some((r) => r.run === row.id)),
        won = t.rows.find((r) => r.winner);
      const about = t.mean ? `${t.mean.name}, 95 % interval` : won ? `winner: ${won.name}` : t.says[0];
      const figures = t.mean || won || {};
      if (own.length) add({ head: { ...figures, calls: 0, seconds: null }, key: t.id, title: t.title, own, about, address: `#/trials/${path(t.id)}` });
    }
    const by = new Map();
    for (const row of list) if (!taken.has(row.id)) by.set(row.group, [...(by.get(row.group) || []), row]);
    for (const [name, own] of by) {
      if (!groups[name]) continue;
      const { runs: ended } = groups[name],
        title = `${own[0].benchmark}: seeds ${own.map((r) => r.seed).join(", ")}`,
        about = ended > 1 ? `mean of ${ended} finished runs, 95 % interval` : `${ended || "none"} finished`;
      add({ head: groups[name], key: name, title, own, about });
    }
    return [...lines, ...list.filter((row) => !taken.has(row.id))];
  }

  function refresh() {
    const words = kept.search.toLowerCase().split(/\s+/).filter(Boolean);
    found = rows.filter(
      (r) =>
        (!kept.status || r.word === kept.status) &&
        (!kept.benchmark || r.benchmark === kept.benchmark) &&
        words.every((w) => r.text.includes(w)),
    );
    found = sorted(found);
    const all = rows.length.toLocaleString("en");
    count.textContent = rows.length ? (found.length === rows.length ? all : `${found.length.toLocaleString("en")} of ${all}`) : "";
    drawHeads();
    drawChooser();
    drawPicked();
    if (!rows.length) put(body, noRuns(folders));
    else if (!found.length) put(body, emptyPanel("No run matches", button("Show all runs", showAll)));
    else if (scroll.parentNode !== body) put(body, scroll);
    list.set(grouped(found));
  }

  function showAll() {
    Object.assign(kept, { search: "", status: "", benchmark: "" });
    search.value = status.value = benchmark.value = "";
    set({});
  }

  function edit(row) {
    const name = h("input", { id: "l-name", value: row.labels.name }),
      tags = h("input", { id: "l-tags", value: row.labels.tags.join(", "), placeholder: "baseline, paper" }),
      note = h("textarea", { id: "l-note", rows: 4, value: row.labels.note });
    const content = [
      fieldOf("l-name", "Name", name),
      fieldOf("l-tags", "Tags, separated by commas", tags),
      fieldOf("l-note", "Note", note),
    ];
    question(`${row.benchmark} / ${row.name}`, content, "Save", async () => {
      await post(of(row.id, "/labels"), { name: name.value, tags: tags.value.split(","), note: note.value });
      await load();
    });
  }

  // The shown runs in their order, with every setting that differs.
  function download() {
    const fields = ["id", "status", "seed", "initial_val", "best_val", "val_low", "val_high", "best_test", "test_low", "test_high", "tokens", "usd", "calls", "seconds", "steps"];
    const labels = ["name", "tags", "note"];
    const lines = [
      [...labels, ...fields, ...keys],
      ...found.map((r) => [...labels.map((l) => r.labels[l]), ...fields.map((f) => cell(r, f)), ...keys.map((k) => r.config?.[k])]),
    ];
    const text = lines.map((cells) => cells.map(csvCell).join(",")).join("\r\n");
    const url = URL.createObjectURL(new Blob([`${text}\r\n`], { type: "text/csv" }));
    const link = h("a", { href: url, download: "runs.csv" });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  async function askSparks(shown) {
    const ids = shown.map((r) => r.id).filter((id) => id && (!sparks.has(id) || stale.has(id)) && !wanted.has(id));
    if (!ids.length) return;
    ids.forEach((id) => wanted.add(id));
    const answer = await post("/api/sparks", { ids }, signal).catch(() => ({}));
    for (const id of ids) {
      sparks.set(id, answer[id] || []);
      wanted.delete(id);
      stale.delete(id);
    }
    for (const node of list.node.children)
      if (answer[node.dataset.key]) put(node.querySelector(".c-spark"), spark(answer[node.dataset.key], rows.find((r) => r.id === node.dataset.key)?.planned_steps));
  }

  async function load() {
    const answer = await get(`/api/runs?since=${stamp}`, signal);
    if (answer.same && !count.querySelector(".tag")) return;
    if (answer.same) return refresh();
    const before = new Map(rows.map((r) => [r.id, r.changed]));
    ({ rows, folders, stamp, keys, groups } = answer);
    trials = (await get("/api/trials", signal)).rows;
    for (const r of rows) {
      const settings = Object.entries(r.config || {}).map(([key, value]) => `${key}=${said(value)}`);
      r.text = `${r.id} ${r.labels.name} ${r.labels.tags.join(" ")} ${r.labels.note} ${r.target} ${r.optimizer} ${r.word} seed${r.seed} ${settings.join(" ")}`.toLowerCase();
      if (before.get(r.id) !== r.changed) stale.add(r.id);
    }
    calm(() => {
      options(status, "status", [...new Set(rows.map((r) => r.word))].sort());
      options(benchmark, "benchmark", [...new Set(rows.map((r) => r.benchmark))].sort());
      refresh();
    });
  }

  onKeys(signal, (key, event) => {
    const move = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1 }[key];
    if (!move || (key.startsWith("Arrow") && !list.node.contains(event.target))) return false;
    const at = [...list.node.children].findIndex((node) => node.contains(document.activeElement));
    list.reveal(list.indexOf(at < 0 ? null : list.node.children[at]) + move, ".c-name a");
    return true;
  });

  address();
  await load();
  const lost = (error) => error.name !== "AbortError" && put(count, tag("server away, trying again", "warn"));
  every(2500, () => load().catch(lost), signal);
}

// An interval becomes two cells.
const cell = (r, name) => (/_(low|high)$/.test(name) ? r[`${name.split("_")[0]}_interval`]?.[name.endsWith("low") ? 0 : 1] : r[name]);

// A cell that a spreadsheet reads as text and never as a formula; only numbers stay as they are.
function csvCell(value) {
  const text = Array.isArray(value) ? value.join(" ") : said(value);
  const safe = typeof value !== "number" && /^(\s*[=+\-@＝＋－＠]|[\t\r\n])/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const noRuns = (folders) =>
  emptyPanel(
    "No runs yet",
    `There is nothing under ${folders.join(", ")}.`,
    "The simulated world shows the whole loop in a few seconds, without a key.",
    h("a", { class: "button main", href: "#/new" }, "Start a first run"),
  );
