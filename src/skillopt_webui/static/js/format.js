// Formats figures for people.

// Rounds as the terminal and the report do: a value exactly in the middle goes to the even digit (0.625 → 0.62).
export function fixed(v, digits = 2) {
  const halves = v * 2 ** (digits + 1); // an odd whole number means exactly in the middle; this product is exact
  if (!Number.isInteger(halves) || halves % 2 === 0) return v.toFixed(digits);
  const low = Math.floor(v * 10 ** digits);
  return ((low % 2 === 0 ? low : low + 1) / 10 ** digits).toFixed(digits);
}
export const score = (v) => (v === null || v === undefined ? "–" : fixed(v));
export const signed = (v) => (v === null || v === undefined ? "–" : `${v >= 0 ? "+" : "−"}${fixed(Math.abs(v))}`);
// The gain of a score; "–" if one of the scores was not measured.
export const gain = (after, before) => signed(after == null || before == null ? null : after - before);
export const ranged = (v, interval) =>
  score(v) + (interval && v !== null && v !== undefined ? ` [${fixed(interval[0])}–${fixed(interval[1])}]` : "");
export const whole = (v) => (v === null || v === undefined ? "–" : Math.round(v).toLocaleString("en"));

export function money(v) {
  if (v === null || v === undefined) return "unknown";
  return v >= 0.01 || v === 0 ? `$${fixed(v)}` : `$${fixed(v, 4)}`;
}

export const chance = (p) => (p === null || p === undefined ? "–" : p < 0.001 ? "p < 0.001" : `p = ${fixed(p, 3)}`);
// The title of a run: the name that a person gave, else its benchmark and folder.
export const titled = (r) => r.labels?.name || `${r.benchmark} ${r.name}`;

// The colour of a run's status: only a failure is red.
export const tone = ({ word, status }) => (word === "failed" ? "bad" : word.startsWith("waits") ? "warn" : status);

// The costs of a run up to the end of a step; `usd` is null if a price is unknown.
export function paidBy({ telemetry: { paid_so_far: roles } }) {
  const every = Object.values(roles);
  return {
    usd: every.some((role) => role.usd === null) ? null : every.reduce((sum, role) => sum + role.usd, 0),
    calls: every.reduce((sum, role) => sum + role.calls, 0),
    rollouts: roles.target.rollouts,
  };
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 120) return `${Number(seconds.toPrecision(3))} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${fixed(seconds / 3600, 1)} h` : `${Math.round(seconds / 86400)} d`;
}

export function ago(time) {
  const seconds = Date.now() / 1000 - time;
  return seconds < 5 ? "now" : `${span(Math.round(seconds))} ago`;
}

export function clock(time) {
  return new Date(time * 1000).toLocaleTimeString("en-GB");
}

// A likely value with its range; runs of earlier versions have only a range.
export function estimate(figure, format = whole) {
  if (!figure || figure.low === null) return "unknown";
  if (figure.low === figure.high) return format(figure.low);
  const range = `${format(figure.low)} – ${format(figure.high)}`;
  return figure.likely == null ? range : `${format(figure.likely)} (${range})`;
}

export const verdictMark = {
  accept: "✓ accepted",
  reject: "✗ rejected",
  indecisive: "? indecisive",
  skipped: "– no edits",
};

// The gate's decision in words.
export function gateLine(e) {
  if (e.decision === "skipped") return "No edit could be applied, so there was nothing to decide.";
  if (e.before === null) return "The validation score was not measured.";
  if (e.after === null)
    return `At most ${score(e.at_most)} could be reached, not ${e.rule === "strict" ? "more than" : "at least"} ${score(e.before)}: stopped after ${e.measured} of ${e.items} items.`;
  const sign = e.after > e.before ? ">" : e.after === e.before ? "=" : "<";
  const paired = e.paired_gain == null ? "" : `paired gain ${signed(e.paired_gain)} in `;
  const again = e.remeasured == null ? "" : ` The current skill, measured again: ${score(e.remeasured)}.`;
  const fresh = e.repeats ? ` Fresh samples: ${paired}${e.repeats} rounds where they differ, ${chance(e.p)}.${again}` : "";
  return `Validation ${score(e.after)} ${sign} ${score(e.before)} on ${e.measured} of ${e.items} items.${fresh}${e.reason ? ` ${e.reason}` : ""}`;
}

const SKILLS = { initial: "initial skill", best: "best skill", no_skill: "empty skill", remeasured: "best skill, again," };

// The text of each kind of event that is shown; `at` names the event's step.
const EVENTS = {
  run_started: (e) => {
    if (e.finished) return "Already finished";
    if (e.phase) return `Extended after step ${e.done}, to ${e.steps} steps in ${e.epochs} epochs`;
    return e.resumed ? `Resumed after step ${e.done} of ${e.steps}` : `Began: ${e.steps} steps in ${e.epochs} epochs`;
  },
  ended_early: (e) => `Ended early, after step ${e.done} of ${e.steps}: ${e.reason}`,
  evaluation_started: (e) => `Measuring the ${SKILLS[e.name] || "skill"} on ${e.items} ${e.split} items`,
  evaluation_finished: (e) => `The ${SKILLS[e.name] || "skill"}: ${e.split} ${score(e.score)}`,
  rollout_started: (e, at) => `${at}rollout of ${e.items} items`,
  reflect_started: (e, at) => `${at}batch score ${score(e.score)}, reflecting`,
  reflected: (e, at) => `${at}${e.edits} ${e.edits === 1 ? "edit" : "edits"} proposed`,
  selected: (e, at) => `${at}${e.edits} selected at rate ${fixed(e.rate, 1)}${e.conflicts ? `, ${e.conflicts} in conflict` : ""}`,
  gate_decided: (e, at) => `${at}${verdictMark[e.decision]}. ${gateLine(e)}`,
  slow_update_started: (e) => `Epoch ${e.epoch}: slow update, version ${e.before} against ${e.after}`,
  slow_update_finished: (e) => `Epoch ${e.epoch}: slow update ${e.gate.decision === "accept" ? "accepted" : e.gate.decision === "skipped" ? `without guidance (${e.lost || "unchanged"})` : "rejected"}`,
  meta_skill_finished: (e) => `Epoch ${e.epoch}: ${e.lost ? `no new notes (${e.lost})` : "meta skill written"}`,
  retrying: (e) => `${e.unmeasured ?? e.lost} of ${e.items} items could not be measured (${e.error}); trying again`,
  advice: (e) => e.checks.length ? e.checks.map((c) => `${c.name}: ${c.says}`).join("; ") : null,
  letters_opened: (e) => `${e.numbers.length === 1 ? "1 new letter" : `${e.numbers.length} new letters`}; ${e.waiting} wait for a reply`,
  step_finished: (e, at) => `${at}finished`,
  epoch_finished: (e) => `Epoch ${e.epoch}: finished`,
  set_aside: (e) => `Set aside: ${Object.keys(e.items).join(", ")}`,
  unmeasured: (e) => `${e.unmeasured} of ${e.items} items could not be measured (${e.error})`,
  credit_tried: (e, at) => `${at}a part of the candidate (${e.edits} edits) at the gate: ${verdictMark[e.decision]}`,
  edits_carried: (e, at) => `${at}${e.edits} edits broke nothing and are carried (${e.pending} pending)`,
  replies_reused: (e) => `${whole(e.replies)} replies of an earlier run are reused`,
  tracker_failed: (e) => `Tracker ${e.name}: ${e.error}`,
  stopping: (e) => `Stopping; ${e.in_flight} calls in flight are kept`,
  run_stopped: (e) => `Stopped: ${e.reason}`,
  run_finished: () => "Finished",
};

// The text of an event; null if events of its kind are not shown.
export const eventLine = (e) => (Object.hasOwn(EVENTS, e.kind) ? EVENTS[e.kind](e, e.step ? `Step ${e.step}: ` : "") : null);
