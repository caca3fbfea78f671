// Every step: the edits that were proposed, merged, in conflict, selected and applied, with reasons; the gate's evidence by item.
import { h, put, longText, copyButton, onKeys, rowOf, rowBetween, closeStack, panel, fold, bullets, emptyPanel, errorBox, attempt, tag } from "../dom.js";
import { get, of, path } from "../api.js";
import { score, fixed, verdictMark, gateLine, span } from "../format.js";
import { itemsTable, inAddress } from "../items.js";
import { virtualList } from "../virtual.js";
import { openTrajectory } from "../trajectory.js";
import { rendered } from "./letters.js";
import { editCard } from "../edit.js";

export async function stepsTab(root, run, { query, signal }) {
  const pane = h("div", { class: "panel steps", tabindex: "-1", "aria-label": "Steps" }),
    detail = h("div", { class: "stack" });
  let chosen = Number(query.get("n")) || null,
    token = 0,
    count = -1;
  const list = virtualList({
    height: () => 44,
    scroller: pane,
    signal,
    make: (row) =>
      h(
        "a",
        {
          href: `#/run/${path(run.id)}/steps?n=${row.step}`,
          "data-key": `step-${row.step}`,
          "aria-current": String(row.step === chosen),
        },
        h("b", { class: "num" }, row.step),
        h("span", { class: "small dim num" }, `epoch ${row.epoch} · ${score(row.val)}`),
        tag(verdictMark[row.verdict], row.verdict),
      ),
  });
  put(pane, list.node);
  put(root, h("div", { class: "split" }, pane, detail));

  function fill() {
    const rows = [...run.data.steps].reverse();
    if (rows.length === count) return;
    count = rows.length;
    if (!rows.length) {
      put(root, emptyPanel("No step is finished yet", "Each step appears here as soon as its gate has decided."));
      count = -1;
      return;
    }
    if (!pane.isConnected) put(root, h("div", { class: "split" }, pane, detail));
    list.set(rows);
    if (!chosen) show(rows[0].step);
  }

  async function show(number) {
    chosen = number;
    const mine = ++token;
    list.redraw();
    try {
      const step = await get(of(run.id, `/steps/${number}`), signal);
      if (mine === token) put(detail, ...stepDetail(run, step, chosen, query, signal));
    } catch (error) {
      if (error.name !== "AbortError" && mine === token) put(detail, errorBox(error));
    }
  }

  const go = (move) => {
    const at = run.data.steps.findIndex((r) => r.step === chosen),
      next = run.data.steps[at + move];
    if (next) location.hash = `#/run/${path(run.id)}/steps?n=${next.step}`;
  };
  onKeys(signal, (key) => {
    const move = { "[": -1, "]": 1, j: -1, k: 1 }[key];
    if (move) go(move);
    return Boolean(move);
  });

  run.listeners.add((what) => {
    if (what !== "event") fill();
  });
  const wanted = chosen;
  fill();
  if (wanted) {
    show(wanted); // not awaited, because the user may choose another step meanwhile
    const at = run.data.steps.length - run.data.steps.findIndex((r) => r.step === chosen) - 1;
    pane.scrollTop = Math.max(0, at * 44 - pane.clientHeight / 2);
  }
  return (options) => {
    const n = Number(options.get("n"));
    if (n && n !== chosen) show(n);
  };
}

const { kept, write } = inAddress();

function stepDetail(run, step, number, query, signal) {
  const { record, aggregate, ranked, skipped, patches } = step,
    edits = record.edits;
  const cite = (ids) => (id) => openTrajectory(run.id, { id }, ids);
  const skips = new Map(skipped.map((s) => [s.edit_id, s]));
  const applied = new Set(record.applied.map((e) => e.id));
  const pending = new Set((record.pending || []).map((e) => e.id));
  const stages = [
    ["proposed", edits.proposed],
    ["merged", edits.merged],
    ["in conflict", edits.conflicting],
    ["selected", edits.selected],
    ["applied", edits.applied],
    ["accepted", edits.accepted],
  ];
  const unusable = edits.unusable_replies || [];
  const seconds = Object.entries(record.telemetry?.seconds || {})
    .map(([name, s]) => `${name.replace("_", " ")} ${span(s)}`)
    .join(" · ");
  const kinds = Object.entries(record.failure_kinds || {})
    .map(([name, n]) => `${n} ${name.replaceAll("_", " ")}`)
    .join(" · ");
  return [
    panel(
      null,
      rowBetween(
        h("h2", {}, `Step ${number} `, tag(verdictMark[record.verdict], record.verdict)),
        h(
          "span",
          { class: "dim small" },
          `epoch ${record.epoch} · batch ${score(record.train_score)} · rate ${fixed(record.learning_rate.used, 1)} · v${record.version}`,
        ),
      ),
      h("p", {}, gateLine(record.evidence)),
      h("div", { class: "funnel" }, stages.map(([name, n]) => h("div", {}, h("b", {}, n), h("span", {}, name)))),
      kinds && h("p", { class: "small" }, `Failed tasks of the batch: ${kinds}`),
      seconds && h("p", { class: "dim small" }, seconds),
      unusable.length > 0 && fold(`${unusable.length} replies could not be used`, bullets(unusable, "small dim")),
    ),
    h(
      "section",
      { class: "stack tight" },
      h("h2", {}, "Edits, in the order of their selection"),
      ranked.length
        ? ranked.map((r) =>
            editCard(r.edit, {
              state: skips.has(r.edit.id)
                ? ["out", `not applied: ${skips.get(r.edit.id).reason || skips.get(r.edit.id).kind}`]
                : applied.has(r.edit.id)
                  ? record.verdict === "accept"
                    ? ["in", "accepted"]
                    : pending.has(r.edit.id)
                      ? ["out", "applied; it broke nothing and is carried to the next step"]
                      : ["against", `applied, then ${record.verdict === "reject" ? "rejected" : record.verdict}`]
                  : r.selected
                    ? ["out", "selected, not applied"]
                    : ["out", "left out"],
              reason: r.said,
              support: r.support,
              leak: r.leak,
              merged: aggregate.edits.find((p) => p.edit.id === r.edit.id)?.merged,
              open: cite(r.edit.trajectory_ids),
            }),
          )
        : h("p", { class: "dim" }, "No edit was left after merging."),
    ),
    aggregate.conflicts.length
      ? h(
          "section",
          { class: "stack tight" },
          rowBetween(
            h("h2", {}, "In conflict"),
            h("a", { href: `#/run/${path(run.id)}/review` }, "Decide in review"),
          ),
          aggregate.conflicts.map((c) =>
            h(
              "div",
              { class: "sides" },
              [c.a, c.b].filter(Boolean).map((e) => editCard(e, { state: ["torn", c.reason], open: cite(e.trajectory_ids) })),
            ),
          ),
        )
      : null,
    dropped(patches),
    asked(run, number, signal),
    step.tables.gate.rows.length
      ? itemsTable(step.tables.gate, {
          title: "Gate, item by item",
          state: kept(query),
          onstate: write,
          signal,
          open: (row, column, rows) =>
            row.id && openTrajectory(run.id, { id: row.id }, rows.map((r) => r.id).filter(Boolean)),
        })
      : null,
    itemsTable(step.tables.batch, {
      title: `Batch: ${step.tables.batch.rows.length} trajectories`,
      signal,
      open: (row, column, rows) => openTrajectory(run.id, { id: row.id }, rows.map((r) => r.id)),
    }),
  ].filter(Boolean);
}

// The requests to the optimizer and its replies. They are long, so they are loaded when the user opens them.
function asked(run, number, signal) {
  const inside = h("div", { class: "stack tight" });
  const open = async (event) => {
    if (!event.target.open || inside.childNodes.length) return;
    put(inside, h("p", { class: "wait" }, "Reading…"));
    await attempt(inside, async () => {
      const { exchanges } = await get(of(run.id, `/steps/${number}/exchanges`), signal);
      put(inside, exchanges.length ? exchanges.map(exchange) : h("p", { class: "dim" }, "This step has no stored requests: it sent none, or an earlier version of SkillOpt did not store them."));
    });
  };
  return h("details", { class: "panel pad", ontoggle: open }, h("summary", {}, "Requests to the optimizer, and its replies"), inside);
}

function exchange({ stage, label, attempt, messages, reply, prompt_tokens, completion_tokens }) {
  const said = (name, text, open) => h("details", { open }, h("summary", {}, name), copyButton(text), h("div", { class: "letter" }, rendered(text)));
  const plain = (content) => (typeof content === "string" ? content : JSON.stringify(content, null, 2));
  let shown = reply;
  try {
    shown = JSON.stringify(JSON.parse(reply), null, 2);
  } catch {
    /* a reply may be any text */
  }
  return h(
    "section",
    { class: "exchange stack tight" },
    rowOf(tag(stage.replaceAll("_", " "), "info"), h("code", { class: "small" }, label.split("/").slice(2).join("/")), attempt > 1 && tag(`try ${attempt}`, "warn"), h("span", { class: "dim small num" }, `${prompt_tokens.toLocaleString("en")} tokens sent, ${completion_tokens.toLocaleString("en")} received`)),
    messages.map((m) => said(`sent: ${m.role}`, plain(m.content), false)),
    said("answered", `\`\`\`json\n${shown}\n\`\`\``, true),
  );
}

function dropped(patches) {
  const all = patches.flatMap((p) => p.dropped.map((d) => ({ ...d, source: p.source })));
  const lost = patches.filter((p) => p.lost);
  if (!all.length && !lost.length) return null;
  return h(
    "details",
    { class: "panel pad" },
    h("summary", {}, `${all.length} edits dropped, ${lost.length} replies lost`),
    closeStack(
      lost.map((p) => h("p", { class: "small" }, h("b", {}, `${p.source}: `), p.lost)),
      all.map((d) =>
        h(
          "div",
          { class: "edit out" },
          rowOf(tag(d.kind, "warn"), h("span", { class: "dim small" }, d.reason)),
          longText(d.edit.text || d.edit.anchor || JSON.stringify(d.edit), { class: "small" }),
        ),
      ),
    ),
  );
}
