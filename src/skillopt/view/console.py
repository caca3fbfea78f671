"""Shows a run on the terminal: lines for people, with a live display if possible, or lines of JSON for programs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from skillopt.record import events
from skillopt.record.events import Event, Listener
from skillopt.record.forecast import Check
from skillopt.record.result import Result
from skillopt.record.step import Evidence
from skillopt.record.summary import BestScores, Summary
from skillopt.tasks.data import shortened
from skillopt.view.columns import table_lines
from skillopt.view.figures import measured_skills
from skillopt.view.plan_lines import beside_lines
from skillopt.view.text import chance, dollars, printable, ranged, score


def open_console() -> Console:
    """A console that prints text as it is: brackets, emoji codes and numbers have no special meaning."""
    return Console(soft_wrap=True, markup=False, emoji=False, highlight=False)


@contextmanager
def watching(console: Console, *, as_json: bool = False) -> Iterator[Listener]:
    """Yield a listener that shows a run's events during the block.

    On a terminal, a small display below the lines shows the run's progress; elsewhere, only the lines are printed. With
    `as_json`, each event is a line of JSON, as in events.jsonl.
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
    """Print an event as JSON in ASCII only, so that text from a model cannot move the terminal's cursor."""
    if event.stored:
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

    def _replies_reused(self, event: events.RepliesReused) -> str:
        return f"{event.replies:,} replies from {event.path} are used again"

    def _run_started(self, event: events.RunStarted) -> str:
        self._steps, self._epochs = event.steps, event.epochs
        self._rate = f"lr={event.learning_rate:g}, {event.scheduler}"
        splits = ", ".join(f"{count} {split}" for split, count in event.splits.items())
        how, more = "new run", _new_because(event.differs) if event.differs else ""
        if event.resumed:
            how, more = f"resumed after step {event.done} of {event.steps}", ""
        if event.finished:
            how = "already finished"
            again = f"to begin a new run with its best skill, add train.init_skill={shlex.quote(event.best_skill)}"
            more = f"\nTo train longer, raise train.num_epochs; to repeat the run, add --fresh; {again}"
        if event.phase:
            read = "; the test split will be read again" if event.reads_again else ""
            how = "extended"
            more = f"\nExtending a finished run: {event.phase.shown}{read}"
        about = f"Items: {splits}; target {event.target}, optimizer {event.optimizer}"
        schedule = f"\nSchedule: {event.scheduler}: {event.scheduler_reason}" if event.scheduler_reason else ""
        return f"Run: {event.path} ({how}){more}\n{about}{schedule}"

    def _letters_opened(self, event: events.LettersOpened) -> str:
        numbers = ", ".join(map(str, event.numbers))
        return (
            f"Letters: {event.waiting} wait for a reply, new: {numbers} (read: skillopt letters {event.folder}; "
            "reply: skillopt answer)"
        )

    def _throttled(self, event: events.Throttled) -> str:
        waits = f"{event.waiting} calls wait, the next try is in {event.seconds:.0f} s; " if event.waiting else ""
        return f"Throttled: {event.model} rejects calls ({event.why}); {waits}{event.turned_away} rejected so far"

    def _set_aside(self, event: events.SetAside) -> str:
        why = next(iter(event.items.values()))
        return f"Set aside for every skill: {', '.join(event.items)} ({why})"

    def _ended_early(self, event: events.EndedEarly) -> str:
        return ended_early(event.done, event.steps, event.reason)

    def _stopping(self, event: events.Stopping) -> str:
        letters = f"; {event.letters} letters still wait for a reply" if event.letters else ""
        kept = f"the replies to {event.in_flight} calls in flight will still be stored{letters}"
        return f"Stopping: {kept}; press Ctrl-C again to stop at once"

    def _advice(self, event: events.Advice) -> str | None:
        return "\n".join(map(check_line, event.checks)) or None

    def _evaluation_started(self, event: events.EvaluationStarted) -> str:
        return f"Evaluate: {_named(event.name)} on {event.items} {event.split} items..."

    def _evaluation_finished(self, event: events.EvaluationFinished) -> str:
        return f"Evaluate: {_named(event.name)}, {event.split} score {score(event.score)}"

    def _rollout_started(self, event: events.RolloutStarted) -> str:
        return f"Rollout: {event.items} items, {event.workers} workers..."

    def _reflect_started(self, event: events.ReflectStarted) -> str:
        lost = f" ({event.errors} without a score)" if event.errors else ""
        return f"Score: {score(event.score)}{lost} → Reflect..."

    def _reflected(self, event: events.Reflected) -> str:
        counts = {
            "replies lost": event.lost,
            "asked again": event.asked_again,
            "copy from a training item": event.leaks,
        }
        notes = "".join(f", {count} {what}" for what, count in counts.items() if count)
        deep = f"; looked deeper into: {', '.join(event.deep)}" if event.deep else ""
        return f"{event.edits} edit patches generated{notes}{deep}"

    def _selected(self, event: events.Selected) -> str:
        flagged = f", {event.conflicts} conflicts set aside (skillopt review)" if event.conflicts else ""
        return f"Selected {event.edits} edits ({self._rate} → {event.rate:.1f}){flagged}"

    def _edits_carried(self, event: events.EditsCarried) -> str:
        which = f"{event.edits} edits" if event.edits > 1 else "1 edit"
        return f"{which} broke nothing: kept as pending ({event.pending} in all), to be tried again with new edits"

    def _gate_decided(self, event: events.GateDecided) -> str:
        return f"Gate: {gate_line(event)}"

    def _ablation_started(self, event: events.AblationStarted) -> str:
        most = (event.units + 3) * event.items * event.repeats
        parts = f"leaves out {event.units} rules of version {event.version}, one at a time, on {event.items} items"
        return f"Ablation: {parts}; at most {most:,} calls (replies in the journal cost nothing)"

    def _part_measured(self, event: events.PartMeasured) -> str:
        text = " ".join(event.text.split())[:60]
        return f"[{event.number}/{event.units}] {event.worth:+.3f}  {event.name}: {text}"

    def _tracker_failed(self, event: events.TrackerFailed) -> str:
        return f"warn  tracker {event.name} stopped ({event.error}); the run continues without it"

    def _retrying(self, event: events.Retrying) -> str:
        missing = f"{event.unmeasured} of {event.items} items could not be measured"
        return f"{event.stage.replace('_', ' ').title()}: {missing} ({event.error}); trying again..."

    def _slow_update_started(self, event: events.SlowUpdateStarted) -> str:
        versions = f"version {event.before} against {event.after}"
        return f"[Epoch {event.epoch}/{self._epochs}] Slow update: {versions}..."

    def _slow_update_finished(self, event: events.SlowUpdateFinished) -> str:
        named = {"persistent_fail": "still failing", "stable_success": "solved by both"}
        counts = ", ".join(f"{count} {named.get(name, name)}" for name, count in sorted(event.counts.items()))
        decided = event.gate.decision != "skipped"
        outcome = f"guidance: {gate_line(event.gate)}" if decided else f"no guidance ({event.lost or 'unchanged'})"
        return f"[Epoch {event.epoch}/{self._epochs}] Slow update: {counts + '; ' if counts else ''}{outcome}"

    def _meta_skill_finished(self, event: events.MetaSkillFinished) -> str:
        what = f"no new notes ({event.lost})" if event.lost else "notes for the optimizer written"
        return f"[Epoch {event.epoch}/{self._epochs}] Meta skill: {what}"


_MOST_DIFFERENCES = 4
"""The maximum number of changed settings that are named when a new run begins."""


def _new_because(nearest: events.NearestRun) -> str:
    """A line on the differences between the new run and the most similar earlier run. Because of these differences, the
    earlier run is not continued."""
    changes = [f"{key} {_value(was)} → {_value(now)}" for key, (was, now) in nearest.settings.items()]
    more = f" and {len(changes) - _MOST_DIFFERENCES} more" if len(changes) > _MOST_DIFFERENCES else ""
    what = ", ".join(changes[:_MOST_DIFFERENCES]) + more
    same = "the data, the initial skill or the code (the settings are the same)"
    return f"\nIt differs from {nearest.run} in: {what or same}"


def _value(value: object) -> str:
    return shortened(json.dumps(value, ensure_ascii=False))


_IN_STEP = {"rollout_started", "reflect_started", "reflected", "selected", "gate_decided", "edits_carried"}


_NAMES = {
    "": "the skill",
    "no_skill": "no skill",
    "remeasured": "best skill again",
    "checked and base": "the skill and its base",
}


def _named(name: str) -> str:
    return _NAMES.get(name, f"{name} skill")


def check_line(check: Check) -> str:
    """A check as a line: `warn  budget: no limit is set → set budget.max_usd …`."""
    fix = f" → {check.fix}" if check.fix else ""
    return f"{check.status}  {check.name}: {check.says}{fix}"


def gate_line(evidence: Evidence) -> str:
    """The gate's decision as a line: `val score 0.68 > 0.65 ✓ ACCEPT`."""
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
    """A note on the fresh samples of both skills in a gate; empty if there were none."""
    if not evidence.repeats:
        return ""
    gain = f"paired gain {evidence.paired_gain:+.2f} in " if evidence.paired_gain is not None else ""
    now = evidence.remeasured
    again = "" if now is None else f"; the current skill, measured again: {score(now)}"
    return f"{gain}{evidence.repeats} fresh samples where they differ, {chance(evidence.p or 0.0)}{again}"


def validation_change(evidence: Evidence) -> str:
    """The validation scores of the current skill and of the candidate: `0.25 → 0.50`."""
    if evidence.before is None:
        return "not measured"
    return f"{score(evidence.before)} → {score(evidence.after)}"


def result_table(summary: Summary) -> list[str]:
    """A table of the run's scores, with a line for each skill that was measured."""
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
    tokens += " (estimated)" if "optimizer" in summary.tokens_estimated else ""
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
        f"Tokens: {tokens}; cost: {costs}; {summary.seconds:.1f} s",
        *(beside_lines(summary.plan) if summary.plan else ()),
        f"Persistent failures: {len(stuck)}" + (f" ({shown})" if stuck else ""),
    ]


def early_line(summary: Summary) -> list[str]:
    """A line that says why a finished run ended before its last planned step; no line if it did all steps."""
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
    """Print the end of a training: the verdict, the scores, the costs, and what to do next."""
    console.print()
    console.print(printable(result.verdict))
    console.print("\n".join(result_table(result.summary)))
    for line in [*result_lines(result.summary), *next_lines(result)]:
        console.print(printable(line))


def next_lines(result: Result) -> list[str]:
    """The path of the result, and the commands that most people need next."""
    run = shlex.quote(str(result.path))
    skillopt = this_command()
    return [
        f"Best skill: {result.path / ('best_skill' if result.best_skill.is_package else 'best_skill.md')}",
        "Next:",
        f"  {skillopt} report {run} --open    # what was learned, and why",
        f"  {skillopt} diff {run}    # what changed in the skill",
        f"  {skillopt} ablate {run}    # what each rule is worth",
    ]


def this_command() -> str:
    """The command that starts this program: `skillopt`, or the path of the script if `skillopt` is not on the PATH."""
    called = Path(sys.argv[0])
    if shutil.which("skillopt") or called.name != "skillopt":
        return "skillopt"
    return shlex.quote(os.path.relpath(called) if called.is_relative_to(Path.cwd()) else str(called))


def _winner(best: BestScores) -> list[str]:
    """A line with two scores of the best skill: the gate's score (partly luck), and the score when the skill was
    measured again. No line if no version was accepted."""
    curse = best.winners_curse
    if curse is None or not best.version:
        return []
    return [
        f"Best skill, measured again: {score(best.val_remeasured)} on validation; in the gate {score(best.val)} "
        f"({0 - curse:+.2f})"
    ]
