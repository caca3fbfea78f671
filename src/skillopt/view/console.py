"""A run on the terminal: a live display if someone watches, plain lines otherwise, JSON for machines."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from skillopt.record.events import FLEETING, Event, Listener
from skillopt.record.forecast import Check
from skillopt.record.result import Result
from skillopt.record.state import Phase
from skillopt.record.step import Evidence, ScreeningRun
from skillopt.record.summary import BestScores, Summary
from skillopt.view.columns import table_lines
from skillopt.view.figures import measured_skills
from skillopt.view.plan_lines import beside_lines
from skillopt.view.text import chance, dollars, printable, ranged, score


def open_console() -> Console:
    """A console on which text is text: brackets, emoji codes and numbers in it mean nothing."""
    return Console(soft_wrap=True, markup=False, emoji=False, highlight=False)


@contextmanager
def watching(console: Console, *, as_json: bool = False) -> Iterator[Listener]:
    """A listener that shows a run's events for as long as the block lasts.

    On a terminal, lines scroll above a small display of the run's progress; elsewhere there are only the lines. With
    `as_json` each event is a line of JSON, as in events.jsonl.
    """
    lines = Lines()
    if as_json:
        yield _print_json
    elif not console.is_terminal:
        yield lambda event: _print(console, lines(event))
    else:
        from skillopt.view.live_display import live_display

        with live_display(console) as display:

            def listener(event: Event) -> None:
                display.update(event)
                _print(console, lines(event))

            yield listener


def _print(console: Console, text: str | None) -> None:
    if text:
        console.print(printable(text), markup=False, emoji=False, highlight=False, soft_wrap=True)


def _print_json(event: Event) -> None:
    """ASCII only: what a model wrote cannot move the cursor of a terminal."""
    if event.kind not in FLEETING:
        print(json.dumps(event.row()), flush=True)


class Lines:
    """Turns events into the lines that people read."""

    def __init__(self) -> None:
        self._steps = self._epochs = 0
        self._rate = ""

    def __call__(self, event: Event) -> str | None:
        render = getattr(self, f"_{event.kind}", None)
        line = render(event) if render else None
        if line is None:
            return None
        where = f"[Step {event.step}/{self._steps}] " if event.step and event.kind in _IN_STEP else ""
        return f"{where}{line}"

    def _replies_reused(self, event: Event) -> str:
        return f"{event.data['replies']:,} replies of {event.data['path']} are used again"

    def _run_started(self, event: Event) -> str:
        data = event.data
        self._steps, self._epochs = data["steps"], data["epochs"]
        self._rate = f"lr={data['learning_rate']:g}, {data['scheduler']}"
        splits = ", ".join(f"{count} {split}" for split, count in data["splits"].items())
        how, more = "new run", _new_because(**data["differs"]) if data.get("differs") else ""
        if data["resumed"]:
            how, more = f"resumed after step {data['done']} of {data['steps']}", ""
        if data["finished"]:
            how = "already finished"
            again = f"to train on from its best skill, add train.init_skill={shlex.quote(data['best_skill'])}"
            more = f"\nTo train longer, raise train.num_epochs; to start again, add --fresh; {again}"
        if data.get("phase"):
            read = "; the test split will be read again" if data["reads_again"] else ""
            how = "extended"
            more = f"\nExtending a finished run: {Phase.model_validate(data['phase']).shown}{read}"
        about = f"Items: {splits}; target {data['target']}, optimizer {data['optimizer']}"
        why = data.get("scheduler_reason")
        schedule = f"\nSchedule: {data['scheduler']}: {why}" if why else ""
        return f"Run: {data['path']} ({how}){more}\n{about}{schedule}"

    def _letters_opened(self, event: Event) -> str:
        data = event.data
        numbers = ", ".join(map(str, data["numbers"]))
        return (
            f"Letters: {data['waiting']} wait for a reply, new: {numbers} (skillopt letters {data['folder']}, then "
            "skillopt answer)"
        )

    def _throttled(self, event: Event) -> str:
        data = event.data
        waits = f"{data['waiting']} calls wait, the next try is in {data['seconds']:.0f} s; " if data["waiting"] else ""
        return f"Throttled: {data['model']} turns calls away ({data['why']}); {waits}{data['turned_away']} so far"

    def _set_aside(self, event: Event) -> str:
        why = next(iter(event.data["items"].values()))
        return f"Set aside, for every skill alike: {', '.join(event.data['items'])} ({why})"

    def _ended_early(self, event: Event) -> str:
        return ended_early(event.data["done"], event.data["steps"], event.data["reason"])

    def _stopping(self, event: Event) -> str:
        data = event.data
        letters = f"; {data['letters']} letters still wait for a reply" if data.get("letters") else ""
        kept = f"{data['in_flight']} calls are in flight and will be kept{letters}"
        return f"Stopping: {kept}; Ctrl-C again leaves at once"

    def _advice(self, event: Event) -> str | None:
        return "\n".join(check_line(Check.model_validate(check)) for check in event.data["checks"]) or None

    def _evaluation_started(self, event: Event) -> str:
        data = event.data
        return f"Evaluate: {_named(data['name'])} on {data['items']} {data['split']} items..."

    def _evaluation_finished(self, event: Event) -> str:
        data = event.data
        return f"Evaluate: {_named(data['name'])}, {data['split']} score {score(data['score'])}"

    def _rollout_started(self, event: Event) -> str:
        return f"Rollout: {event.data['items']} items, {event.data['workers']} workers..."

    def _reflect_started(self, event: Event) -> str:
        data = event.data
        lost = f" ({data['errors']} without a score)" if data["errors"] else ""
        return f"Score: {score(data['score'])}{lost} → Reflect..."

    def _reflected(self, event: Event) -> str:
        data = event.data
        counts = {
            "replies lost": data["lost"],
            "asked again": data["asked_again"],
            "copy from a training item": data["leaks"],
        }
        notes = "".join(f", {count} {what}" for what, count in counts.items() if count)
        deep = f"; looked deeper into: {', '.join(data['deep'])}" if data["deep"] else ""
        return f"{data['edits']} edit patches generated{notes}{deep}"

    def _selected(self, event: Event) -> str:
        data = event.data
        flagged = f", {data['conflicts']} conflicts set aside (skillopt review)" if data["conflicts"] else ""
        return f"Selected {data['edits']} edits ({self._rate} → {data['rate']:.1f}){flagged}"

    def _raced(self, event: Event) -> str:
        runs = [ScreeningRun.model_validate(run) for run in event.data["candidates"]]
        scores = ", ".join(f"{run.name} {score(run.score)}" for run in runs)
        return f"Two candidates on {runs[0].items} training tasks: {scores}"

    def _edits_carried(self, event: Event) -> str:
        edits, pending = event.data["edits"], event.data["pending"]
        which = f"{edits} edits" if edits > 1 else "1 edit"
        return f"{which} broke nothing: kept as pending ({pending} in all), to be tried again with new edits"

    def _gate_decided(self, event: Event) -> str:
        return f"Gate: {gate_line(Evidence.model_validate(event.data))}"

    def _ablation_started(self, event: Event) -> str:
        data = event.data
        most = (data["units"] + 3) * data["items"] * data["repeats"]
        parts = f"{data['units']} parts of version {data['version']}, one at a time, on {data['items']} items"
        return f"Ablation by rule: {parts}; at most {most:,} calls (what is in the journal costs nothing)"

    def _part_measured(self, event: Event) -> str:
        data = event.data
        text = " ".join(data["text"].split())[:60]
        return f"[{data['number']}/{data['units']}] {data['worth']:+.3f}  {data['name']}: {text}"

    def _tracker_failed(self, event: Event) -> str:
        return f"warn  tracker {event.data['name']} stopped ({event.data['error']}); the run continues without it"

    def _retrying(self, event: Event) -> str:
        data = event.data
        missing = f"{data['unmeasured']} of {data['items']} items could not be measured"
        return f"{data['stage'].replace('_', ' ').title()}: {missing} ({data['error']}); trying again..."

    def _slow_update_started(self, event: Event) -> str:
        versions = f"version {event.data['before']} against {event.data['after']}"
        return f"[Epoch {event.epoch}/{self._epochs}] Slow update: {versions}..."

    def _slow_update_finished(self, event: Event) -> str:
        data = event.data
        named = {"persistent_fail": "still failing", "stable_success": "solved by both"}
        counts = ", ".join(f"{count} {named.get(name, name)}" for name, count in sorted(data["counts"].items()))
        gate = Evidence.model_validate(data["gate"])
        decided = gate.decision != "skipped"
        outcome = f"guidance: {gate_line(gate)}" if decided else f"no guidance ({data['lost'] or 'unchanged'})"
        return f"[Epoch {event.epoch}/{self._epochs}] Slow update: {counts + '; ' if counts else ''}{outcome}"

    def _meta_skill_finished(self, event: Event) -> str:
        what = f"no new notes ({event.data['lost']})" if event.data["lost"] else "notes for the optimizer written"
        return f"[Epoch {event.epoch}/{self._epochs}] Meta skill: {what}"


_MOST_DIFFERENCES = 4
"""Settings that a new run's line names."""


def _new_because(run: str, settings: Mapping[str, tuple[object, object]]) -> str:
    """A line that says why an earlier run is not continued."""
    changes = [f"{key} {_value(was)} → {_value(now)}" for key, (was, now) in settings.items()]
    more = f" and {len(changes) - _MOST_DIFFERENCES} more" if len(changes) > _MOST_DIFFERENCES else ""
    what = ", ".join(changes[:_MOST_DIFFERENCES]) + more
    same = "the data, the initial skill or the code (the settings are the same)"
    return f"\nIt differs from {run} in: {what or same}"


def _value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"


_IN_STEP = {"rollout_started", "reflect_started", "reflected", "selected", "raced", "gate_decided", "edits_carried"}


_NAMES = {
    "": "the skill",
    "no_skill": "no skill",
    "remeasured": "best skill again",
    "checked and base": "the skill and its base",
}


def _named(name: str) -> str:
    return _NAMES.get(name, f"{name} skill")


def check_line(check: Check) -> str:
    """`warn  budget: no limit is set → set budget.max_usd …`."""
    fix = f" → {check.fix}" if check.fix else ""
    return f"{check.status}  {check.name}: {check.says}{fix}"


def gate_line(evidence: Evidence) -> str:
    """`val score 0.68 > 0.65 ✓ ACCEPT`."""
    if evidence.decision == "skipped":
        return "no edit to test · SKIP"
    before, after = evidence.before, evidence.after
    mark = {"accept": "✓ ACCEPT", "reject": "✗ REJECT", "indecisive": "? INDECISIVE"}[evidence.decision]
    if before is None:
        return f"val score not measured {mark}"
    if after is None:
        seen = f"after {evidence.measured} of {evidence.items} items"
        needed = ">" if evidence.rule == "strict" else "≥"
        return f"val score at most {score(evidence.at_most)}, not {needed} {score(before)} ✗ REJECT ({seen})"
    sign = ">" if after > before else "=" if after == before else "<"
    notes = "; ".join(note for note in (_fresh(evidence), evidence.reason) if note)
    return f"val score {score(after)} {sign} {score(before)} {mark}" + (f" ({notes})" if notes else "")


def _fresh(evidence: Evidence) -> str:
    """What fresh samples of both skills showed."""
    if not evidence.repeats:
        return ""
    gain = f"paired gain {evidence.paired_gain:+.2f} in " if evidence.paired_gain is not None else ""
    now = evidence.remeasured
    again = "" if now is None else f"; the current skill, measured again: {score(now)}"
    return f"{gain}{evidence.repeats} fresh samples where they differ, {chance(evidence.p or 0.0)}{again}"


def validation_change(evidence: Evidence) -> str:
    """`0.25 → 0.50`."""
    if evidence.before is None:
        return "not measured"
    return f"{score(evidence.before)} → {score(evidence.after)}"


def result_table(summary: Summary) -> list[str]:
    """What the run gave: a line for each skill that was measured."""
    rows = [
        (
            skill.name,
            ranged(skill.val, skill.val_interval),
            ranged(skill.test, skill.test_interval),
            "" if skill.tokens is None else str(skill.tokens),
        )
        for skill in measured_skills(summary)
    ]
    return table_lines(("skill", "validation", "test", "tokens"), rows)


def result_lines(summary: Summary) -> list[str]:
    steps, edits, roles = summary.steps, summary.edits, summary.calls.roles
    rate = summary.edit_acceptance_rate
    calls = ", ".join(f"{summary.calls.of(role)} {role}" for role in roles)
    tokens = ", ".join(f"{summary.tokens.of(role).total:,} {role}" for role in roles)
    stuck = [summary.item_names.get(item, item) for item in summary.persistent_failures]
    shown = ", ".join(stuck[:8]) + (" …" if len(stuck) > 8 else "")
    costs = ", ".join(f"{dollars(summary.cost_usd.of(role))} {role}" for role in roles)
    return [
        f"Steps: {steps.run} run, {steps.accepted} accepted, {steps.rejected} rejected, "
        f"{steps.indecisive} indecisive, {steps.skipped} skipped",
        *extension_lines(summary),
        *early_line(summary),
        *_winner(summary.best),
        f"Edits: {edits.proposed} proposed, {edits.accepted} accepted" + (f" ({rate:.0%})" if rate is not None else ""),
        f"Calls: {calls}; {summary.calls.from_journal} replies reused from the journal; "
        f"{summary.gate.calls_saved} calls saved because gates stopped early",
        f"Tokens: {tokens}{_estimated(summary)}; cost: {costs}; {summary.seconds:.1f} s",
        *(beside_lines(summary.plan) if summary.plan else ()),
        f"Persistent failures: {len(stuck)}" + (f" ({shown})" if stuck else ""),
    ]


def early_line(summary: Summary) -> list[str]:
    """Why a finished run did not do all of its steps."""
    why = summary.stop_reason if summary.status == "finished" else ""
    planned = summary.plan.steps.planned if summary.plan else "–"
    return [ended_early(summary.steps.run, planned, why)] if why else []


def extension_lines(summary: Summary) -> list[str]:
    """A sentence for each extension of the run."""
    return [
        f"Extended after step {phase.after}: {phase.shown}, a phase with its own {phase.scheduler} schedule."
        for phase in summary.phases[1:]
    ]


def ended_early(done: int, planned: int | str, why: str) -> str:
    return f"Ended early, after step {done} of {planned}: {why}"


def show_result(result: Result, console: Console) -> None:
    """How a training ends: the verdict, the scores, the bill, and what to do next."""
    console.print()
    console.print(printable(result.verdict))
    console.print("\n".join(result_table(result.summary)))
    for line in [*result_lines(result.summary), *next_lines(result)]:
        console.print(printable(line))


def next_lines(result: Result) -> list[str]:
    """Where the result is, and what most people want to see next."""
    run = shlex.quote(str(result.path))
    skillopt = this_command()
    return [
        f"Best skill: {result.path / ('best_skill' if result.best_skill.is_package else 'best_skill.md')}",
        "Next:",
        f"  {skillopt} report {run} --open    # what was learned, and why",
        f"  {skillopt} diff {run}    # what changed in the skill",
        f"  {skillopt} ablate {run}    # what each rule of it is worth",
    ]


def this_command() -> str:
    """How this program can be started again: by its name, or from where it was started this time."""
    called = Path(sys.argv[0])
    if shutil.which("skillopt") or called.name != "skillopt":
        return "skillopt"
    return shlex.quote(os.path.relpath(called) if called.is_relative_to(Path.cwd()) else str(called))


def _estimated(summary: Summary) -> str:
    return " (estimated)" if "optimizer" in summary.tokens_estimated else ""


def _winner(best: BestScores) -> list[str]:
    """The best of many noisy scores is partly luck; fresh samples show how much. If nothing won, there is none."""
    curse = best.winners_curse
    if curse is None or not best.version:
        return []
    return [
        f"Best skill, measured again: {score(best.val_remeasured)} in validation; the gate saw {score(best.val)} "
        f"({0 - curse:+.2f})"
    ]
