// The present state of a run, from one source: the heartbeat has its progress, the journal its costs.
import { h } from "../dom.js";
import { whole, money, span } from "../format.js";

const STAGE = {
  rollout_started: "rollout",
  reflect_started: "reflect",
  reflected: "aggregate",
  selected: "gate",
  slow_update_started: "slow update",
  slow_update_finished: "meta skill",
};
const READER = new Set(["reflect", "aggregate", "slow update", "meta skill"]);
const MEASURES = new Set(["evaluate", "baseline"]);
const QUIET = new Set(["retrying", "advice", "unmeasured", "stopping", "progress", "letters_opened", "throttled"]);
const SKILL = { initial: "initial skill", best: "best skill", no_skill: "empty skill", remeasured: "best skill again" };

// The stage in words, the share of it that is done, and whether the last step is finished. Rollouts begin ahead of the
// loop, so the step of the newest event is not always the step that is decided next.
export function stage({ data, pulse, events }) {
  if (!data.pid) return { text: "" };
  const { stage: counted, done, total } = pulse?.progress || {},
    last = events.findLast((e) => !QUIET.has(e.kind)),
    measuring = events.findLast((e) => e.kind === "evaluation_started"),
    waiting = pulse?.letters?.waiting;
  if (waiting) {
    const asked = events.findLast((e) => READER.has(STAGE[e.kind])); // the target may do other tasks meanwhile
    return { text: `${STAGE[asked?.kind] || "optimizer"}: waits for ${waiting} ${waiting === 1 ? "reply" : "replies"}` };
  }
  const measures = measuring && (total ? MEASURES.has(counted) : last === measuring),
    named = total ? counted.replaceAll("_", " ") : STAGE[last?.kind] || "",
    text = measures ? `${SKILL[measuring.name] || measuring.name} on ${measuring.split}` : named,
    final = measures && (measuring.name !== "initial" || measuring.split === "test");
  return total ? { final, text: `${text} ${done} of ${total}`, share: done / total } : { final, text };
}

// The initial skill's validation score, until the first step has written a summary.
export const firstScore = ({ data, events }) =>
  data.pid ? events.findLast((e) => e.kind === "evaluation_finished" && e.name === "initial" && e.split === "val")?.score : undefined;

// The figures of this moment, for every place that shows them.
export function numbers(run) {
  const { summary: s, started } = run.data,
    f = run.figures;
  const pair = (name) => (s?.best[name] == null ? [] : [s.initial[name], s.best[name]]);
  const [first, best] = pair("val"),
    val = best === undefined ? [first ?? firstScore(run)] : [first, best];
  return { val, test: pair("test"), ...f, planned: started?.steps ?? f.planned };
}

// The calls in flight, and how much of each limit is used. Letters do not count as calls: a person answers them.
export function nowLine(run) {
  const { pulse, figures: f } = run;
  if (!run.data.pid) return null;
  if (!pulse) return h("p", { class: "livebar dim" }, "Starting…");
  const letters = pulse.letters?.waiting || 0,
    optimizer = Math.max(0, (pulse.in_flight?.optimizer ?? 0) - letters);
  const limit = (name, used, most, format) =>
    most ? h("span", { class: used / most > 0.9 ? "warn" : "" }, `${name} ${format(used)} of ${format(most)}`) : null;
  return h(
    "p",
    { class: "livebar num", "aria-label": "Right now" },
    h("span", {}, `in flight: ${whole(pulse.in_flight?.target ?? 0)} target, ${whole(optimizer)} optimizer`),
    limit("calls", f.calls, pulse.spent.calls[1], whole),
    limit("tokens", f.tokens, pulse.spent.tokens[1], whole),
    limit("spent", f.usd ?? 0, pulse.spent.usd[1], money),
    limit("this session", pulse.spent.minutes[0], pulse.spent.minutes[1], (minutes) => span(minutes * 60)),
    pulse.throttled?.map((t) => h("span", { class: "warn" }, `${t.model} rejects calls (${t.why}), ${t.waiting} wait`)),
    pulse.retries > 0 && h("span", { class: "warn" }, `${pulse.retries} retries`),
  );
}
