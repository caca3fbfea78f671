// The first look at a run: the verdict with its figures, one chart, what the best skill does that the first did not.
import { h, put, tag, longText, empty } from "../dom.js";
import { get, of, path } from "../api.js";
import { fixed, score, ranged, whole, money, span, clock, eventLine, gateLine, paidBy } from "../format.js";
import { lineChart } from "../chart.js";

export async function overviewTab(root, run, { signal }) {
  const pick = (x) => {
    if (x >= 1) location.hash = `#/run/${path(run.id)}/steps?n=${Math.floor(x)}`;
  };
  const val = lineChart({ title: "Validation score and skill length by step", format: score, ceil: 1, onpick: pick });
  const rate = lineChart({ title: "Learning rate by step", format: (v) => fixed(v, 1), height: 170, onpick: pick });
  const verdict = h("div", {}),
    gains = h("div", {}),
    epochs = h("div", { class: "stack tight" });
  const log = h("ol", { class: "log", tabindex: "0", "aria-label": "Latest events" });
  const logHead = h("div", { class: "row between pad" });
  put(
    root,
    h(
      "div",
      { class: "stack" },
      verdict,
      h(
        "section",
        { class: "panel pad" },
        h(
          "div",
          { class: "head" },
          h("h2", {}, "Validation score and skill length"),
          h(
            "div",
            { class: "legend" },
            key("var(--accent)", "validation, current skill", "line"),
            key("var(--edge)", "training batch", "line"),
            key("var(--wash)", "skill tokens", "block"),
            key("var(--good)", "● accepted"),
            key("var(--bad)", "✕ rejected"),
            key("var(--warn)", "◇ indecisive"),
            key("var(--guide)", "◆ guidance"),
          ),
        ),
        val.node,
      ),
      gains,
      h(
        "div",
        { class: "two" },
        h("section", { class: "panel" }, logHead, log),
        h(
          "div",
          { class: "stack" },
          h(
            "section",
            { class: "panel pad" },
            h("h2", {}, "Learning rate ", h("span", { class: "dim small" }, "edits a step")),
            rate.node,
          ),
          h("section", { class: "panel pad stack tight" }, h("h2", {}, "Epochs"), epochs),
        ),
      ),
    ),
  );

  function draw(what) {
    drawLog();
    if (what === "event") return;
    const { curves, steps } = run.data;
    const reach = run.data.pid ? run.data.started?.steps : 0;
    put(verdict, verdictPanel(run));
    val.update({
      series: [
        { name: "validation", color: "var(--accent)", step: true, points: curves.scores },
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
    put(logHead, h("h2", {}, "Latest"), h("a", { href: `#/run/${path(run.id)}/log` }, "All events"));
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
    put(
      epochs,
      ends.length
        ? ends.map((end) => epochRow(run, end, opened, signal))
        : empty(
            "No epoch has ended yet",
            h("p", {}, "The slow update and the meta skill appear here at the end of each epoch."),
          ),
    );
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

// The sentence, every skill that was measured with its interval, and while it runs what it will still take.
function verdictPanel(run) {
  const { summary: s, verdict } = run.data;
  const estimate = remaining(run.data);
  if (s?.initial.val == null)
    return h(
      "section",
      { class: "panel pad" },
      h("p", { class: "verdict" }, run.data.pid ? "The initial skill is being measured." : "Nothing was measured."),
    );
  const rows = [
    ...Object.entries(s.baselines || {}).map(([name, side]) => [
      name.replaceAll("_", " ") + (side.answer === undefined ? "" : ` (always “${side.answer}”)`),
      side,
    ]),
    [`initial skill (${s.initial.kind})`, s.initial],
    ["best skill", s.best],
    s.best.val_remeasured != null && [
      "best skill, measured again",
      { val: s.best.val_remeasured, val_interval: s.best.val_remeasured_interval },
    ],
  ].filter(Boolean);
  return h(
    "section",
    { class: "panel pad stack tight" },
    h("p", { class: "verdict" }, verdict),
    estimate &&
      h(
        "p",
        { class: "dim" },
        `About ${estimate.usd === null ? "" : `${money(estimate.usd)}, `}${span(estimate.seconds)} and ${whole(estimate.calls)} calls more to the end (${estimate.steps} steps), if they take as much as those before.`,
      ),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": "Measured skills" },
      h(
        "table",
        { class: "measured" },
        h(
          "thead",
          {},
          h("tr", {}, ["", "validation", "", "test", "", "tokens"].map((t) => h("th", {}, t))),
        ),
        h(
          "tbody",
          {},
          rows.map(([name, side]) =>
            h(
              "tr",
              {},
              h("td", {}, name),
              ["val", "test"].map((split) => [
                h("td", { class: "num" }, side[split] == null ? (split === "test" ? "sealed" : "–") : ranged(side[split], side[`${split}_interval`])),
                h("td", { class: "to-scale" }, bar(side[split], side[`${split}_interval`])),
              ]),
              h("td", { class: "num" }, side.tokens === undefined ? "" : whole(side.tokens)),
            ),
          ),
        ),
      ),
    ),
  );
}

// What the remaining steps will take if they take as much as those before; null unless the run is at work.
function remaining({ pid, steps: done, started }) {
  const steps = (started?.steps ?? 0) - done.length;
  if (!pid || !done.length || steps <= 0) return null;
  const share = steps / done.length,
    { usd, calls } = paidBy(done.at(-1)),
    seconds = done.flatMap((record) => Object.values(record.telemetry.seconds)).reduce((a, b) => a + b, 0);
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
  return h(
    "section",
    { class: "panel pad stack tight" },
    h("h2", {}, "What the best skill does that the initial one did not"),
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
  return h(
    "details",
    {
      open: opened.has(epoch),
      ontoggle: async (event) => {
        if (!event.target.open) {
          opened.delete(epoch);
          return;
        }
        opened.add(epoch);
        if (!inside.childNodes.length) put(inside, epochDetail(await get(of(run.id, `/epochs/${epoch}`), signal)));
      },
    },
    h(
      "summary",
      { "data-key": `epoch-${epoch}` },
      `Epoch ${epoch} `,
      slow ? tag(`slow update: ${outcome}`, slow.decision) : tag("no slow update", "grey"),
      " ",
      meta && tag("meta skill", "info"),
    ),
    inside,
  );
}

function epochDetail({ comparison, gate, memory }) {
  const parts = [];
  if (comparison) {
    const counts = Object.entries(comparison.counts).map(([name, n]) => `${n} ${name.replaceAll("_", " ")}`);
    parts.push(
      h(
        "p",
        { class: "small dim" },
        `Version ${comparison.before_version} against ${comparison.after_version} on the same items: `,
        counts.join(", ") || comparison.lost,
      ),
    );
    if (comparison.guidance)
      parts.push(h("div", { class: "note" }, h("b", {}, "Guidance: "), longText(comparison.guidance)));
    if (gate) parts.push(h("p", { class: "small" }, gateLine(gate)));
  }
  if (memory !== null && memory !== undefined)
    parts.push(
      h(
        "div",
        { class: "note" },
        h("b", {}, "Meta skill (notes for the optimizer, never in the skill): "),
        longText(memory || "empty"),
      ),
    );
  return parts;
}
