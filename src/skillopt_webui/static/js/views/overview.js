// The first look at a run: the curves, what happened last, and the epochs' ends.
import { h, put, tag, longText, empty } from "../dom.js";
import { get, of, path } from "../api.js";
import { score, whole, clock, eventLine, gateLine, verdictMark } from "../format.js";
import { lineChart } from "../chart.js";

export async function overviewTab(root, run, { signal }) {
  const pick = (step) => {
    if (step) location.hash = `#/run/${path(run.id)}/steps?n=${step}`;
  };
  const about = (step) => {
    const row = run.data.steps.find((r) => r.step === step);
    return row ? [`${verdictMark[row.verdict]}, v${row.version}`] : ["initial skill"];
  };
  const val = lineChart({ title: "Validation score by step", format: score, ceil: 1, onpick: pick, details: about });
  const length = lineChart({ title: "Skill length in tokens by step", format: whole, height: 190, onpick: pick });
  const rate = lineChart({ title: "Learning rate by step", format: (v) => v.toFixed(1), height: 190, onpick: pick });
  const log = h("ol", { class: "log", tabindex: "0", "aria-label": "Latest events" }),
    epochs = h("div", { class: "stack tight" });
  const legend = h(
    "div",
    { class: "legend" },
    key("var(--accent)", "current skill, validation", true),
    key("var(--edge)", "batch, training", true),
    key("var(--good)", "accepted"),
    key("var(--bad)", "rejected"),
    key("var(--warn)", "indecisive"),
  );
  const charts = h(
    "div",
    { class: "stack" },
    h(
      "section",
      { class: "panel pad" },
      h("div", { class: "head" }, h("h2", {}, "Validation score"), legend),
      val.node,
    ),
    h(
      "div",
      { class: "two" },
      h(
        "section",
        { class: "panel pad" },
        h("h2", {}, "Skill length ", h("span", { class: "dim small" }, "tokens")),
        length.node,
      ),
      h(
        "section",
        { class: "panel pad" },
        h("h2", {}, "Learning rate ", h("span", { class: "dim small" }, "edits a step")),
        rate.node,
      ),
    ),
  );
  put(
    root,
    h(
      "div",
      { class: "stack" },
      charts,
      h(
        "div",
        { class: "two" },
        h("section", { class: "panel" }, h("h2", { class: "pad" }, "Latest"), log),
        h("section", { class: "panel pad stack tight" }, h("h2", {}, "Epochs"), epochs),
      ),
    ),
  );

  function draw(what) {
    drawLog();
    if (what === "event") return;
    const { steps, summary } = run.data;
    const initial = summary?.initial.val ?? steps[0]?.before ?? 0;
    const reach = run.data.pid ? run.data.started?.steps : 0;
    const ends = steps.filter((r) => r.epoch_end).map((r) => r.step + 0.5);
    val.update({
      series: [
        {
          name: "validation",
          color: "var(--accent)",
          step: true,
          points: [[0, initial], ...steps.map((r) => [r.step, r.score])],
        },
        { name: "batch", color: "var(--edge)", thin: true, points: steps.map((r) => [r.step, r.train]) },
      ],
      marks: steps.filter((r) => r.verdict !== "skipped").map((r) => [r.step, r.after ?? r.at_most, r.verdict]),
      lines: ends,
      reach,
    });
    length.update({
      series: [
        {
          name: "tokens",
          color: "var(--accent)",
          step: true,
          points: [[0, summary?.initial.tokens ?? 0], ...steps.map((r) => [r.step, r.tokens])],
        },
      ],
      lines: ends,
      reach,
    });
    rate.update({
      series: [{ name: "rate", color: "var(--info)", points: steps.map((r) => [r.step, r.rate]) }],
      lines: ends,
      reach,
    });
    drawEpochs(steps);
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
        ? lines.map(([e, text]) =>
            h(
              "li",
              {},
              h("time", {}, clock(e.time)),
              h(
                "span",
                {
                  class:
                    e.decision === "accept" ? "good" : e.kind === "run_stopped" || e.kind === "retrying" ? "warn" : "",
                },
                text,
              ),
            ),
          )
        : h("li", {}, h("span"), "Nothing yet."),
    );
  }

  const opened = new Set();
  function drawEpochs(steps) {
    const reach = run.data.pid ? run.data.started?.steps : 0;
    const ends = steps.filter((r) => r.epoch_end).map((r) => r.epoch_end);
    put(
      epochs,
      ends.length
        ? ends.map(({ epoch, slow_update: slow, meta_skill: meta }) => {
            const inside = h("div", { class: "stack tight" });
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
                  if (!inside.childNodes.length)
                    put(inside, epochDetail(run, await get(of(run.id, `/epochs/${epoch}`), signal)));
                },
              },
              h(
                "summary",
                { "data-key": `epoch-${epoch}` },
                `Epoch ${epoch} `,
                slow
                  ? tag(
                      `slow update: ${slow.decision === "accept" ? "accepted" : slow.decision === "skipped" ? "no guidance" : slow.decision}`,
                      slow.decision,
                    )
                  : tag("no slow update", "grey"),
                " ",
                meta && tag("meta skill", "info"),
              ),
              inside,
            );
          })
        : empty(
            "No epoch has ended yet",
            h("p", {}, "The slow update and the meta skill appear here at the end of each epoch."),
          ),
    );
  }

  run.listeners.add(draw);
  draw();
}

const key = (color, text, line) => h("span", {}, h("i", { class: line ? "line" : "", style: { color } }), text);

function epochDetail(run, { comparison, gate, memory }) {
  const parts = [];
  if (comparison) {
    parts.push(
      h(
        "p",
        { class: "small dim" },
        `Version ${comparison.before_version} against ${comparison.after_version} on the same items: `,
        Object.entries(comparison.counts)
          .map(([name, n]) => `${n} ${name.replaceAll("_", " ")}`)
          .join(", ") || comparison.lost,
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
