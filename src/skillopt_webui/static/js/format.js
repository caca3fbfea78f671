// Figures as people read them.

// Rounded as the terminal and the report round: what lies exactly in the middle goes to the even digit (0.625 → 0.62).
export function fixed(v, digits = 2) {
  const halves = v * 2 ** (digits + 1); // only such values lie exactly in the middle, and this product is exact
  if (!Number.isInteger(halves) || halves % 2 === 0) return v.toFixed(digits);
  const low = Math.floor(v * 10 ** digits);
  return ((low % 2 === 0 ? low : low + 1) / 10 ** digits).toFixed(digits);
}
export const score = (v) => (v === null || v === undefined ? "–" : fixed(v));
export const signed = (v) => (v === null || v === undefined ? "–" : `${v >= 0 ? "+" : "−"}${fixed(Math.abs(v))}`);
// Nothing is gained over what was not measured.
export const gain = (after, before) => signed(after == null || before == null ? null : after - before);
export const ranged = (v, interval) =>
  score(v) + (interval && v !== null && v !== undefined ? ` [${fixed(interval[0])}–${fixed(interval[1])}]` : "");
export const whole = (v) => (v === null || v === undefined ? "–" : Math.round(v).toLocaleString("en"));

export function money(v) {
  if (v === null || v === undefined) return "unknown";
  return v >= 0.01 || v === 0 ? `$${fixed(v)}` : `$${fixed(v, 4)}`;
}

export const chance = (p) => (p === null || p === undefined ? "–" : p < 0.001 ? "p < 0.001" : `p = ${fixed(p, 3)}`);
// A run as people call it: the name that somebody gave, else its benchmark and folder.
export const titled = (r) => r.labels?.name || `${r.benchmark} ${r.name}`;

// The colour of a run's status: only a failure is red.
export const tone = ({ word, status }) => (word === "failed" ? "bad" : word.startsWith("waits") ? "warn" : status);

// What a run had paid by the end of a step; the cost is null if a price is unknown.
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

// A likely value with its range; runs of earlier versions have a range alone.
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
  if (e.decision === "skipped") return "No edit applies, so there was nothing to decide.";
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

// An event in words; null for those that are not shown.
export function eventLine(e) {
  const at = e.step ? `Step ${e.step}: ` : "";
  switch (e.kind) {
    case "run_started":
      return e.finished
        ? "Already finished"
        : e.phase
          ? `Extended after step ${e.done}, to ${e.steps} steps in ${e.epochs} epochs`
        : e.resumed
          ? `Resumed after step ${e.done} of ${e.steps}`
          : `Began: ${e.steps} steps in ${e.epochs} epochs`;
    case "ended_early":
      return `Ended early, after step ${e.done} of ${e.steps}: ${e.reason}`;
    case "evaluation_started":
      return `Measuring the ${SKILLS[e.name] || "skill"} on ${e.items} ${e.split} items`;
    case "evaluation_finished":
      return `The ${SKILLS[e.name] || "skill"}: ${e.split} ${score(e.score)}`;
    case "rollout_started":
      return `${at}rollout of ${e.items} items`;
    case "reflect_started":
      return `${at}batch score ${score(e.score)}, reflecting`;
    case "reflected":
      return `${at}${e.edits} ${e.edits === 1 ? "edit" : "edits"} proposed`;
    case "selected":
      return `${at}${e.edits} selected at rate ${fixed(e.rate, 1)}${e.conflicts ? `, ${e.conflicts} in conflict` : ""}`;
    case "gate_decided":
      return `${at}${verdictMark[e.decision]}. ${gateLine(e)}`;
    case "slow_update_started":
      return `Epoch ${e.epoch}: slow update, version ${e.before} against ${e.after}`;
    case "slow_update_finished":
      return `Epoch ${e.epoch}: slow update ${e.gate.decision === "accept" ? "accepted" : e.gate.decision === "skipped" ? `without guidance (${e.lost || "unchanged"})` : "rejected"}`;
    case "meta_skill_finished":
      return `Epoch ${e.epoch}: ${e.lost ? `no new notes (${e.lost})` : "meta skill written"}`;
    case "retrying":
      return `${e.unmeasured ?? e.lost} of ${e.items} items could not be measured (${e.error}); trying again`;
    case "advice":
      return e.checks.length ? e.checks.map((c) => `${c.name}: ${c.says}`).join("; ") : null;
    case "letters_opened":
      return `${e.numbers.length === 1 ? "1 new letter" : `${e.numbers.length} new letters`}; ${e.waiting} wait for a reply`;
    case "step_finished":
      return `${at}finished`;
    case "epoch_finished":
      return `Epoch ${e.epoch}: finished`;
    case "set_aside":
      return `Set aside: ${Object.keys(e.items).join(", ")}`;
    case "unmeasured":
      return `${e.unmeasured} of ${e.items} items could not be measured (${e.error})`;
    case "credit_tried":
      return `${at}a part of the candidate (${e.edits} edits) at the gate: ${verdictMark[e.decision]}`;
    case "edits_carried":
      return `${at}${e.edits} edits broke nothing and are carried (${e.pending} pending)`;
    case "replies_reused":
      return `${whole(e.replies)} replies of an earlier run are reused`;
    case "tracker_failed":
      return `Tracker ${e.name}: ${e.error}`;
    case "stopping":
      return `Stopping; ${e.in_flight} calls in flight are kept`;
    case "run_stopped":
      return `Stopped: ${e.reason}`;
    case "run_finished":
      return "Finished";
    default:
      return null;
  }
}
