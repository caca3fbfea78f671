// The overview of a run: the verdict with its figures, a chart, and the items that only the best skill solves.
import { h, put, longText, scroller, table, stackOf, twoColumns, panel, sheet, empty, tag } from "../dom.js";
import { get, of, path } from "../api.js";
import { fixed, score, signed, ranged, whole, money, span, clock, eventLine, gateLine, paidBy } from "../format.js";
import { lineChart } from "../chart.js";
import { nowLine, firstScore } from "./live.js";
import { figures } from "./run.js";

export async function overviewTab(root, run, { signal }) {
  const pick = (x) => {
    if (x >= 1) location.hash = `#/run/${path(run.id)}/steps?n=${Math.floor(x)}`;
  };
  const val = lineChart({ title: "Validation score and skill length by step", format: score, ceil: 1, yname: "score", onpick: pick });
  const rate = lineChart({ title: "Learning rate by step", format: (v) => fixed(v, 1), height: 170, onpick: pick });
  const verdict = h("div", {}),
    gains = h("div", {}),
    why = h("div", {}),
    now = h("div", {}),
    skills = h("div", {}),
    small = h("dl", { class: "nums panel pad only-small", tabindex: "0", "aria-label": "Figures" }),
    epochs = h("div", { class: "stack tight" });
  const log = h("ol", { class: "log", tabindex: "0", "aria-label": "Latest events" });
  const legend = h(
    "div",
    { class: "legend" },
    key("var(--accent)", "validation, current skill", "line"),
    key("var(--edge)", "training batch", "line"),
    key("var(--wash)", "skill tokens", "block"),
    key("var(--good)", "● accepted"),
    key("var(--bad)", "✕ rejected"),
    key("var(--warn)", "◇ indecisive"),
    key("var(--guide)", "◆ guidance"),
  );
  const curveHead = h("div", { class: "head" }, h("h2", {}, "Validation score and skill length"), legend);
  const rateHead = h("h2", {}, "Learning rate ", h("span", { class: "dim small" }, "edits per step"));
  put(
    root,
    stackOf(
      why,
      small,
      verdict,
      h("div", { class: "curve" }, h("section", { class: "panel pad" }, now, curveHead, val.node), skills),
      gains,
      twoColumns(
        sheet("Latest", log, h("a", { href: `#/run/${path(run.id)}/log` }, "All events")),
        stackOf(h("section", { class: "panel pad" }, rateHead, rate.node), panel("Epochs", epochs)),
      ),
    ),
  );

  function draw(what) {
    put(now, nowLine(run));
    put(small, figures(run));
    if (what === "now") return;
    drawLog();
    if (what === "event") return;
    put(why, whyNot(run));
    put(skills, measuredPanel(run));
    const { curves, steps, status } = run.data,
      first = firstScore(run),
      scores = !curves.scores.length && first !== undefined ? [[0, first]] : curves.scores;
    const reach = status === "finished" ? 0 : run.data.started?.steps;
    put(verdict, verdictPanel(run));
    val.update({
      series: [
        { name: "validation", color: "var(--accent)", step: true, points: scores },
        { name: "batch", color: "var(--edge)", thin: true, points: curves.batches },
      ],
      area: { name: "tokens", points: curves.lengths },
      marks: curves.marks,
      lines: curves.ends,
      reach,
    });
    rate.update({ series: [{ name: "rate", color: "var(--info)", points: curves.rates }], lines: curves.ends, reach });
    drawEpochs(steps);
    drawGains();
  }

  let shown = null;
  async function drawGains() {
    const version = run.data.summary?.best.version;
    if (version === undefined || version === shown) return;
    shown = version;
    if (!version) return;
    const asked = ["/items", `/skills/${version}`].map((what) => get(of(run.id, what), signal));
    const found = await Promise.all(asked).catch(() => null);
    if (found) put(gains, gainsPanel(run, version, ...found));
  }

  function drawLog() {
    const lines = run.events
      .map((e) => [e, eventLine(e)])
      .filter(([, text]) => text)
      .slice(-40)
      .reverse();
    put(
      log,
      lines.length
        ? lines.map(([e, text]) => h("li", {}, h("time", {}, clock(e.time)), h("span", { class: tone(e) }, text)))
        : h("li", {}, h("span"), "Nothing yet."),
    );
  }

  const opened = new Set();
  function drawEpochs(steps) {
    const ends = steps.filter((r) => r.epoch_end).map((r) => r.epoch_end);
    const says = "The slow update and the meta skill appear here at the end of each epoch.";
    put(epochs, ends.length ? ends.map((end) => epochRow(run, end, opened, signal)) : empty("No epoch has ended yet", says));
  }

  run.listeners.add(draw);
  draw();
}

const tone = (e) => (e.decision === "accept" ? "good" : e.kind === "run_stopped" || e.kind === "retrying" ? "warn" : "");
const key = (color, text, kind = "") => {
  if (kind) return h("span", {}, h("i", { class: kind, style: { color } }), text);
  const [mark, ...rest] = text.split(" ");
  return h("span", {}, h("b", { style: { color } }, `${mark} `), rest.join(" "));
};

// The note on top if a run ended before its last step or waits: the reason and what to do; red if something failed.
function whyNot({ id, data: { status, word, reason, remedy, letters } }) {
  if (letters)
    return h(
      "p",
      { class: "note warn-note", role: "alert" },
      h("b", {}, `${letters === 1 ? "1 letter waits" : `${letters} letters wait`} for a reply. `),
      h("a", { href: `#/run/${path(id)}/letters` }, "Read and answer"),
    );
  if (!reason) return null;
  if (status === "finished") return h("p", { class: "note" }, `Ended early: ${reason}.`);
  if (reason === "interrupted") return h("p", { class: "note" }, "Paused by Pause or Ctrl-C. Resume continues the run.");
  return h(
    "div",
    { class: word === "failed" ? "error" : "note warn-note stack tight", role: "alert" },
    h("p", {}, h("b", {}, `${word[0].toUpperCase()}${word.slice(1)}: `), reason.slice(0, 4000)),
    remedy && h("p", {}, remedy),
  );
}

// While the run works, the header has the figures; this text says how far the run is and estimates the rest.
function verdictPanel(run) {
  const { summary: s, verdict, pid } = run.data,
    estimate = remaining(run.data);
  if (s?.initial.val == null)
    return h("section", { class: "panel pad" }, h("p", { class: "verdict" }, pid ? beforeFirst(run) : "Nothing was measured."));
  const luck = s.best.val_remeasured != null && s.best.version > 0;
  return panel(
    null,
    h("p", { class: "verdict" }, pid ? soFar(s) : verdict),
    luck &&
      h("p", {}, `Selection bias: the gate saw ${score(s.best.val)} in validation, fresh samples give ${score(s.best.val_remeasured)} (${signed(-s.best.winners_curse)}).`),
    estimate &&
      h(
        "p",
        { class: "dim" },
        `Estimate for the remaining ${estimate.steps} steps, from the finished steps: ${estimate.usd === null ? "" : `${money(estimate.usd)}, `}${whole(estimate.calls)} calls, ${span(estimate.seconds)}${run.data.human_paced ? ", without the time that replies take" : ""}.`,
      ),
  );
}

// The summary is written after the first step; earlier measurements are in the events.
function beforeFirst(run) {
  const first = firstScore(run);
  return first === undefined ? "The initial skill is being measured." : `The initial skill has ${score(first)} in validation; the first step is under way.`;
}

const soFar = (s) =>
  s.best.test != null
    ? `Test ${score(s.initial.test)} → ${score(s.best.test)}.`
    : `So far validation ${score(s.initial.val)} → ${score(s.best.val)}; the test split is not read yet.`;

// Every skill that was measured, with its interval.
function measuredPanel({ data: { measured, summary } }) {
  if (summary?.initial.val == null) return null;
  const cells = (row, split) => [
    row[split] == null ? (split === "test" && summary.best.test == null ? "not read yet" : "–") : ranged(row[split], row[`${split}_interval`]),
    bar(row[split], row[`${split}_interval`]),
  ];
  const rows = measured.map((row) => [
    [h("b", {}, row.name), row.detail && h("div", { class: "small dim" }, row.detail), row.tokens != null && h("div", { class: "small dim" }, `${whole(row.tokens)} tokens`)],
    ...cells(row, "val"),
    ...cells(row, "test"),
  ]);
  const heads = ["", "validation", "", "test", ""];
  return sheet("Measured skills", scroller("Measured skills", table(heads, rows, { class: "measured" })));
}

// The estimated costs of the remaining steps, from those of the finished steps; null unless the run is running.
const READER = new Set(["reflect", "aggregate", "slow_update", "meta_skill"]);
function remaining({ pid, steps: done, started, human_paced: paced }) {
  const steps = (started?.steps ?? 0) - done.length;
  if (!pid || !done.length || steps <= 0) return null;
  const share = steps / done.length,
    { usd, calls } = paidBy(done.at(-1)),
    counted = ([stage]) => !paced || !READER.has(stage), // waiting for a person says nothing about the rest
    seconds = done.flatMap((record) => Object.entries(record.telemetry.seconds).filter(counted)).reduce((sum, [, each]) => sum + each, 0);
  return { steps, usd: usd === null ? null : usd * share, seconds: seconds * share, calls: calls * share };
}

function bar(value, interval) {
  if (value === null || value === undefined) return null;
  const [low, high] = interval || [value, value];
  return h(
    "span",
    { class: "range", "aria-hidden": "true" },
    h("i", { style: { left: `${low * 100}%`, width: `${(high - low) * 100}%` } }),
    h("b", { style: { left: `${value * 100}%` } }),
  );
}

const LINES = 8;
function gainsPanel(run, version, table, skill) {
  const [before, after] = ["v0", `v${version}`].map((name) => table.columns.indexOf(name));
  const changed = table.rows
    .filter((row) => row.split === "val" && row.scores[before] != null && row.scores[after] != null)
    .map((row) => row.scores[after] - row.scores[before]);
  const improved = changed.filter((by) => by > 0),
    regressed = changed.filter((by) => by < 0);
  const lines = skill.lines
    .filter(([text, seq]) => seq && text.trim())
    .map(([text, seq]) => ({ text, step: skill.entries[seq].step }));
  const items = (mode) => `#/run/${path(run.id)}/items?split=val&mode=${mode}&a=v0&b=v${version}`;
  const count = (n) => (n === 1 ? "1 validation item" : `${n} validation items`);
  return panel(
    "What the best skill does that the initial skill did not",
    h(
      "p",
      {},
      h("a", { href: items("improved") }, `It scores higher on ${count(improved.length)}`),
      regressed.length ? [" and ", h("a", { href: items("regressed") }, `lower on ${count(regressed.length)}`)] : " and lower on none",
      `. ${lines.length === 1 ? "1 line is" : `${lines.length} lines are`} new in version ${version}:`,
    ),
    h(
      "ul",
      { class: "newlines" },
      lines.slice(0, LINES).map((l) => h("li", {}, h("span", { class: "dim small" }, `step ${l.step}`), h("code", {}, l.text))),
    ),
    h(
      "a",
      { href: `#/run/${path(run.id)}/skill?v=${version}` },
      lines.length > LINES ? `All ${lines.length}, with the evidence for each` : "The evidence for each",
    ),
  );
}

function epochRow(run, { epoch, slow_update: slow, meta_skill: meta }, opened, signal) {
  const inside = h("div", { class: "stack tight" });
  const outcome = { accept: "accepted", skipped: "no guidance" }[slow?.decision] || slow?.decision;
  const turned = async ({ target }) => {
    if (!target.open) return opened.delete(epoch);
    opened.add(epoch);
    if (!inside.childNodes.length) put(inside, epochDetail(await get(of(run.id, `/epochs/${epoch}`), signal)));
  };
  const tags = [slow ? tag(`slow update: ${outcome}`, slow.decision) : tag("no slow update", "grey"), " ", meta && tag("meta skill", "info")];
  const summary = h("summary", { "data-key": `epoch-${epoch}` }, `Epoch ${epoch} `, tags);
  return h("details", { open: opened.has(epoch), ontoggle: turned }, summary, inside);
}

function epochDetail({ comparison, gate, memory }) {
  const note = (title, text) => h("div", { class: "note" }, h("b", {}, `${title}: `), longText(text));
  const counts = Object.entries(comparison?.counts || {}).map(([name, n]) => `${n} ${name.replaceAll("_", " ")}`);
  const versions = comparison && `Version ${comparison.before_version} against ${comparison.after_version} on the same items: `;
  return [
    comparison && h("p", { class: "small dim" }, versions, counts.join(", ") || comparison.lost),
    comparison?.guidance && note("Guidance", comparison.guidance),
    comparison && gate && h("p", { class: "small" }, gateLine(gate)),
    memory != null && note("Meta skill (notes for the optimizer, never in the skill)", memory || "empty"),
  ];
}
