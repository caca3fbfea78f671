// Compares two or more runs side by side; compares two skills line by line, and measures them on the same items.
import { h, put, scroller, table, rowOf, stackOf, twoColumns, panel, sheet, button, select, emptyPanel, attempt, segment } from "../dom.js";
import { get, post, of, path } from "../api.js";
import { ranged, score, gain, signed, chance, titled, money, span, whole, paidBy } from "../format.js";
import { lineChart } from "../chart.js";
import { sideBySide } from "../diffview.js";
import { loadChoices, skillPicker, searchBox, runName } from "../picker.js";
import { waitForLaunch } from "../launched.js";
import { itemsTable, inAddress, letter } from "../items.js";
import { openTrajectory } from "../trajectory.js";
import { measuredItems, resultFigures } from "./measured.js";

const COLORS = ["var(--accent)", "var(--good)", "var(--warn)", "var(--bad)", "var(--info)", "var(--edge)"];

export async function compareView(root, { query, signal }) {
  document.title = "Compare · SkillOpt";
  const choices = await loadChoices(signal);
  if (!choices.runs.length) {
    const start = h("a", { class: "button main", href: "#/new" }, "Start a run");
    const says = "Choose two runs, or two versions of one run, to see them side by side.";
    put(root, h("h1", {}, "Compare"), emptyPanel("Nothing to compare yet", says, start));
    return;
  }
  const chosen = (query.get("runs") || "")
    .split(",")
    .filter((id) => choices.runs.some((r) => r.id === id))
    .slice(0, 6);
  let against = "step";
  const nameOf = (id) => titled(choices.runs.find((r) => r.id === id));
  const top = h("div", { class: "stack" }),
    skills = h("div", { class: "stack" });
  put(root, h("div", { class: "head" }, h("h1", {}, "Compare")), stackOf(top, skills));

  async function drawRuns() {
    history.replaceState(history.state, "", `#/compare${chosen.length ? `?runs=${chosen.map(encodeURIComponent).join(",")}` : ""}`);
    const found = await Promise.all(chosen.map((id) => get(of(id), signal)));
    const adder = searchBox(
      "Add a run",
      choices.runs.filter((r) => !chosen.includes(r.id)).map((r) => [r.id, runName(r)]),
      (id) => {
        chosen.push(id);
        drawRuns();
      },
      { id: "add-run" },
    );
    const chart = h("div", {}),
      itemBox = h("div", {}),
      verdict = h("div", {});
    if (!chosen.length) {
      const says = h("p", {}, "Choose two to six runs, or select them in the list of runs. Two skills can be compared below.");
      put(top, panel("Runs", says, rowOf(adder)));
      return;
    }
    const without = (id) => {
      chosen.splice(chosen.indexOf(id), 1);
      drawRuns();
    };
    drawVerdict(verdict);
    put(
      top,
      verdict,
      sheet("Runs", scroller("Table", runTable(chosen, found, nameOf, without)), chosen.length < 6 && adder),
      h("section", { class: "panel pad" }, chart),
      configDifferences(chosen, found),
      itemBox,
    );
    drawChart(chart, found);
    attempt(itemBox, () => drawItems(itemBox, found));
  }

  // For two runs, first show whether one of them is better.
  async function drawVerdict(box) {
    if (chosen.length !== 2) return;
    try {
      const r = await post("/api/paired", { a: chosen[0], b: chosen[1] }, signal);
      put(box, h("section", { class: "panel pad stack tight paired" }, h("p", { class: "verdict" }, r.verdict), h("p", { class: "dim" }, `Paired test over the ${r.items} ${r.split === "test" ? "held-out" : "validation"} items of both: B − A ${signed(r.difference)}, ${chance(r.p)}.`)));
    } catch (error) {
      if (error.name !== "AbortError") put(box, h("p", { class: "note" }, error.message));
    }
  }

  // The chart shows the scores against steps, paid rollouts, or dollars.
  function drawChart(box, found) {
    const [xname, xformat] = { step: ["step", String], rollouts: ["rollouts", whole], usd: ["cost", money] }[against];
    const chart = lineChart({ title: `Validation score by ${xname}`, format: score, ceil: 1, xname, xformat });
    const points = found.map((f) => pointsBy(f, against));
    const unknown = found.filter((f, i) => f.curves.scores.length && !points[i].length).length;
    put(
      box,
      h(
        "div",
        { class: "head" },
        h("h2", {}, "Validation score"),
        segment(
          [
            ["step", "by step"],
            ["rollouts", "by rollouts"],
            ["usd", "by cost"],
          ],
          against,
          (next) => {
            against = next;
            drawChart(box, found);
          },
          "Against",
        ),
      ),
      chart.node,
      h("p", { class: "legend" }, chosen.map((id, i) => h("span", {}, h("i", { class: "line", style: { color: COLORS[i] } }), h("b", {}, `${letter(i)} `), nameOf(id)))),
      unknown ? h("p", { class: "dim small" }, `${unknown} of the runs have no known price.`) : null,
    );
    chart.update({
      series: points.map((own, i) => ({ name: `${letter(i)} ${nameOf(chosen[i])}`, color: COLORS[i], step: true, points: own })),
    });
  }

  async function drawItems(box, found) {
    if (chosen.length < 2) return;
    put(box, h("p", { class: "wait" }, "Reading items…"));
    const tables = await Promise.all(chosen.map((id) => get(of(id, "/items"), signal)));
    const versions = found.map((f) => f.summary?.best.version);
    const table = joined(tables, versions, chosen.map(nameOf));
    const { kept, write } = inAddress("i-");
    put(
      box,
      table.rows.length
        ? itemsTable(table, {
            title: "Items under the best skill of each run",
            state: kept(query),
            onstate: write,
            signal,
            runs: true,
            open: (row, column) => row.scores[column] !== null && openTrajectory(chosen[column], { item: row.item, version: versions[column] }),
          })
        : null,
    );
  }

  const a = skillPicker(
      "Left skill",
      choices,
      { run: chosen[0] || choices.runs[0].id, version: chosen.length > 1 ? "best" : 0 },
      diff,
    ),
    b = skillPicker("Right skill", choices, { run: chosen[1] || chosen[0] || choices.runs[0].id }, diff);
  const out = h("div", {}),
    wrong = h("div", {}),
    measured = h("div", {});
  const split = select("Split", ["val", "test", "train"]);
  const repeats = h("input", {
    "aria-label": "Samples of each item",
    type: "text",
    inputmode: "numeric",
    value: "1",
    size: 3,
  });
  const go = button("Measure both", async () => {
    go.disabled = true;
    put(wrong);
    put(measured, h("p", { class: "dim" }, "Measuring both…"));
    const run = a.run || b.run,
      tasks = run ? { run } : { config: choices.configs[0] };
    const wish = { a: a.value, b: b.value, split: split.value, repeats: Number(repeats.value) || 0, ...tasks };
    const done = await attempt(wrong, async () => {
      const status = await waitForLaunch(await post("/api/compare", wish), { ended: true, signal });
      const found = await get(`/api/measured/${path(status.written)}`, signal);
      put(
        measured,
        h("a", { href: `#/measured/${path(status.written)}` }, "Address of this comparison"),
        resultFigures(found),
        measuredItems(status.written, found.table, { signal }),
      );
      return true;
    });
    if (!done) put(measured);
    go.disabled = false;
  });
  put(
    skills,
    h(
      "section",
      { class: "panel pad stack" },
      h("h2", {}, "Skills"),
      twoColumns(a.node, b.node),
      rowOf(
        go,
        h("span", { class: "dim" }, "on"),
        split,
        repeats,
        h("span", { class: "dim" }, "sample(s) of each item"),
      ),
      wrong,
      measured,
    ),
    h("section", { class: "panel" }, out),
  );

  let asked = 0;
  async function diff() {
    const mine = ++asked;
    await null;
    go.disabled = !a.value || !b.value;
    if (go.disabled) return;
    await attempt(out, async () => {
      const found = await post("/api/diff", { a: a.value, b: b.value }, signal);
      if (mine === asked) put(out, sideBySide(found.blocks));
    });
  }
  await drawRuns();
}

// The points of a curve against the costs of the run at each step; no points if a price is unknown.
function pointsBy(found, against) {
  if (against === "step") return found.curves.scores;
  const paid = new Map(found.steps.map((r) => [r.step, paidBy(r)[against]]));
  const points = found.curves.scores.map(([x, y]) => [x < 1 ? 0 : paid.get(Math.floor(x)), y]);
  return points.some(([x]) => x === null || x === undefined) ? [] : points;
}

// The items that the runs have measured with their best versions, with a column for each run.
function joined(tables, versions, names) {
  const rows = new Map();
  tables.forEach((table, n) => {
    const column = table.columns.indexOf(`v${versions[n]}`);
    for (const row of table.rows) {
      const kept = rows.get(row.item) || { ...row, scores: names.map(() => null), outputs: names.map(() => "") };
      kept.scores[n] = row.scores[column] ?? null;
      kept.outputs[n] = row.output;
      rows.set(row.item, kept);
    }
  });
  const measured = [...rows.values()].filter((row) => row.scores.some((v) => v !== null));
  return { columns: names, rows: measured };
}

function runTable(ids, found, nameOf, remove) {
  const usd = (s) => (Object.values(s.cost_usd).includes(null) ? null : s.cost_usd.target + s.cost_usd.optimizer + (s.cost_usd.judge ?? 0));
  const rows = [
    [
      "validation",
      (s) => [
        score(s.initial.val),
        " → ",
        h("b", {}, ranged(s.best.val, s.best.val_interval)),
        h("span", { class: "dim" }, ` ${gain(s.best.val, s.initial.val)}`),
      ],
    ],
    [
      "test",
      (s) =>
        s.best.test == null
          ? "not read yet"
          : [score(s.initial.test), " → ", h("b", {}, ranged(s.best.test, s.best.test_interval))],
    ],
    ["skill tokens", (s) => whole(s.best.tokens)],
    ["steps accepted", (s) => `${s.steps.accepted} of ${s.steps.run}`],
    ["edits accepted", (s) => `${s.edits.accepted} of ${s.edits.proposed}`],
    ["rollouts to best", (s) => whole(s.rollouts_to_best)],
    ["calls", (s) => whole(s.calls.target + s.calls.optimizer + (s.calls.judge ?? 0))],
    ["cost", (s) => money(usd(s))],
    ["time", (s) => span(s.seconds)],
    ["persistent failures", (s) => whole(s.persistent_failures.length)],
  ];
  const head = (id, i) =>
    h(
      "span",
      { class: "row" },
      h("span", { class: "tag", style: { color: COLORS[i] } }, h("span", { class: "dot" }), letter(i)),
      h("a", { href: `#/run/${path(id)}/overview` }, nameOf(id)),
      ids.length > 1 && h("button", { class: "icon", "aria-label": `Remove ${id}`, onclick: () => remove(id) }, "✕"),
    );
  const line = ([name, f]) => [h("span", { class: "dim" }, name), ...found.map((r) => h("span", { class: "num" }, r.summary ? f(r.summary) : "–"))];
  return table(["", ...ids.map(head)], rows.map(line), { class: "sheet" });
}

function configDifferences(ids, found) {
  if (found.length < 2) return null;
  const keys = [...new Set(found.flatMap((f) => Object.keys(f.config || {})))].filter(
    (k) => new Set(found.map((f) => JSON.stringify(f.config?.[k]))).size > 1,
  );
  return sheet(
    `Config: ${keys.length ? `${keys.length} keys differ` : "no key differs"}`,
    keys.length
      ? scroller(
          "Table",
          table(
            null,
            keys.map((k) => [k, ...found.map((f) => JSON.stringify(f.config?.[k] ?? null))]),
            { class: "mono small" },
          ),
        )
      : null,
  );
}
