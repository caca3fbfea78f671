// The progress of a run: the six stages and the epoch's end, progress, calls in flight, what is left of the budget.
import { h } from "../dom.js";
import { fixed, whole, money, span } from "../format.js";

const STAGES = ["rollout", "reflect", "aggregate", "select", "update", "gate", "epoch end"];
const AT = {
  rollout_started: 0,
  reflect_started: 1,
  reflected: 2,
  selected: 5,
  gate_decided: 6,
  step_finished: 6,
  slow_update_started: 6,
  slow_update_finished: 6,
  meta_skill_finished: 6,
};
const QUIET = new Set(["retrying", "advice", "unmeasured", "stopping", "progress"]);

export function strip(run) {
  const { data, pulse, events } = run;
  const known = events.filter((e) => !QUIET.has(e.kind));
  const last = known.at(-1),
    live = Boolean(data.pid);
  const kind = last?.kind,
    step = last?.step || 0;
  const inStep = known.filter((e) => e.step === step && step);
  const began = inStep.findLastIndex((e) => e.kind === "rollout_started");
  const of = Object.fromEntries(inStep.slice(Math.max(0, began)).map((e) => [e.kind, e]));
  const measuring = kind === "evaluation_started";
  const slow = kind === "slow_update_started" || kind === "slow_update_finished";
  const now = live
    ? measuring
      ? null
      : slow
        ? 6
        : kind === "gate_decided" || kind === "step_finished"
          ? null
          : (AT[kind] ?? null)
    : null;
  const reached = kind in AT ? AT[kind] : -1;
  const progress = pulse?.progress?.total ? pulse.progress : null;
  const texts = [
    of.rollout_started && `${of.rollout_started.items} items`,
    of.reflected && `${of.reflected.edits} edits`,
    of.selected?.conflicts ? `${of.selected.conflicts} in conflict` : "",
    of.selected && `${of.selected.edits} at rate ${fixed(of.selected.rate, 1)}`,
    "",
    of.gate_decided &&
      { accept: "accepted", reject: "rejected", indecisive: "indecisive", skipped: "no edits" }[
        of.gate_decided.decision
      ],
    "",
  ];
  if (measuring && live) texts[6] = `measuring ${last.split}: ${last.name.replace("_", " ")}`;
  else if (slow) texts[6] = "slow update";
  else if (kind === "meta_skill_finished" || kind === "epoch_finished") texts[6] = `epoch ${last.epoch} done`;
  else if (kind === "run_finished") texts[6] = "finished";
  return h(
    "div",
    { class: "strip", role: "list", "aria-label": step ? `Stages of step ${step}` : "Stages" },
    STAGES.map((name, i) => {
      const current = i === now || (i === 6 && measuring && live);
      const done = !current && (i < 6 ? step && (reached > i || (i < 6 && reached >= 5 && of.gate_decided)) : false);
      const share = current && progress ? progress.done / progress.total : null;
      return h(
        "div",
        {
          class: `stage ${current ? "now" : done ? "done" : ""}`,
          role: "listitem",
          "aria-current": current ? "step" : null,
        },
        h("b", {}, name === "epoch end" && measuring ? "Evaluate" : name[0].toUpperCase() + name.slice(1)),
        h("span", {}, current && progress ? `${progress.done} of ${progress.total}` : texts[i] || " "),
        h(
          "div",
          { class: "meter" },
          h("i", { style: { width: share !== null ? `${share * 100}%` : done ? "100%" : current ? "8%" : "0" } }),
        ),
      );
    }),
  );
}

export function liveBar(run) {
  const { pulse, data } = run;
  if (!pulse) return h("div", { class: "panel livebar dim" }, "Starting…");
  const limit = (name, [used, most], format) =>
    most
      ? h(
          "span",
          {},
          `${name} ${format(used)} of ${format(most)}`,
          h(
            "span",
            { class: `meter ${used / most > 0.9 ? "bad" : used / most > 0.7 ? "warn" : ""}` },
            h("i", { style: { width: `${Math.min(100, (used / most) * 100)}%` } }),
          ),
        )
      : h("span", { class: "dim" }, `${name} ${format(used)}`);
  return h(
    "div",
    { class: "panel livebar num", "aria-label": "Right now" },
    h(
      "span",
      {},
      h("b", {}, pulse.step ? `Step ${pulse.step}` : "Evaluating"),
      data.started?.steps && pulse.step ? ` of ${data.started.steps}` : "",
      pulse.epoch ? `, epoch ${pulse.epoch}` : "",
    ),
    h(
      "span",
      {},
      "in flight: ",
      h("b", {}, whole(pulse.in_flight?.target ?? 0)),
      " target, ",
      h("b", {}, whole(pulse.in_flight?.optimizer ?? 0)),
      " optimizer",
    ),
    limit("calls", pulse.spent.calls, whole),
    limit("tokens", pulse.spent.tokens, whole),
    limit("spent", pulse.spent.usd, money),
    limit("this session", pulse.spent.minutes, (minutes) => span(minutes * 60)),
    pulse.letters?.waiting > 0 && h("span", { class: "warn" }, `waits for ${pulse.letters.waiting} letters`),
    pulse.retries > 0 && h("span", { class: "warn" }, `${pulse.retries} retries`),
  );
}
