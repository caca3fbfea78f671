"""A run on the terminal: a live display where someone watches, plain lines elsewhere, JSON for machines."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from skillopt.report.columns import table_lines
from skillopt.report.plan_lines import beside_lines
from skillopt.report.text import chance, dollars, printable, ranged, score
from skillopt.run.events import FLEETING, Event, Listener
from skillopt.run.result import Result


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
        from skillopt.report.live_display import live_display

        with live_display(console) as display:

            def listener(event: Event) -> None:
                display.tell(event)
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
        tell = getattr(self, f"_{event.kind}", None)
        line = tell(event.data, event) if tell else None
        if line is None:
            return None
        where = f"[Step {event.step}/{self._steps}] " if event.step and event.kind in _IN_STEP else ""
        return f"{where}{line}"

    def _rebuilt(self, data: dict[str, Any], event: Event) -> str:
        return "\n".join(f"Rebuilt: {said}" for said in data["files"])

    def _replies_reused(self, data: dict[str, Any], event: Event) -> str:
        return f"{data['replies']:,} replies of {data['path']} are used again"

    def _run_started(self, data: dict[str, Any], event: Event) -> str:
        self._steps, self._epochs = data["steps"], data["epochs"]
        self._rate = f"lr={data['learning_rate']:g}, {data['scheduler']}"
        splits = ", ".join(f"{count} {split}" for split, count in data["splits"].items())
        how = "new run"
        if data["resumed"]:
            how = "already finished" if data["finished"] else f"resumed after step {data['done']} of {data['steps']}"
        return f"Run: {data['path']} ({how})\nItems: {splits}; target {data['target']}, optimizer {data['optimizer']}"

    def _letters_opened(self, data: dict[str, Any], event: Event) -> str:
        numbers = ", ".join(map(str, data["numbers"]))
        return (
            f"Letters: {data['waiting']} wait for a reply, new: {numbers} (skillopt letters {data['folder']}, then "
            "skillopt answer)"
        )

    def _throttled(self, data: dict[str, Any], event: Event) -> str:
        waits = f"{data['waiting']} calls wait, the next try is in {data['seconds']:.0f} s; " if data["waiting"] else ""
        return f"Throttled: {data['model']} turns calls away ({data['why']}); {waits}{data['turned_away']} so far"

    def _set_aside(self, data: dict[str, Any], event: Event) -> str:
        why = next(iter(data["items"].values()))
        return f"Set aside, for every skill alike: {', '.join(data['items'])} ({why})"

    def _stopping(self, data: dict[str, Any], event: Event) -> str:
        letters = f"; {data['letters']} letters stay open" if data.get("letters") else ""
        kept = f"{data['in_flight']} calls are in flight and will be kept{letters}"
        return f"Stopping: {kept}; Ctrl-C again leaves at once"

    def _advice(self, data: dict[str, Any], event: Event) -> str | None:
        return "\n".join(check_line(check) for check in data["checks"]) or None

    def _evaluation_started(self, data: dict[str, Any], event: Event) -> str:
        return f"Evaluate: {_named(data['name'])} on {data['items']} {data['split']} items..."

    def _evaluation_finished(self, data: dict[str, Any], event: Event) -> str:
        return f"Evaluate: {_named(data['name'])}, {data['split']} score {score(data['score'])}"

    def _rollout_started(self, data: dict[str, Any], event: Event) -> str:
        return f"Rollout: {data['items']} items, {data['workers']} workers..."

    def _reflect_started(self, data: dict[str, Any], event: Event) -> str:
        lost = f" ({data['errors']} without a score)" if data["errors"] else ""
        return f"Score: {score(data['score'])}{lost} → Reflect..."

    def _reflected(self, data: dict[str, Any], event: Event) -> str:
        told = {
            "replies lost": data["lost"],
            "asked again": data["asked_again"],
            "copy from a training item": data["leaks"],
        }
        notes = "".join(f", {count} {what}" for what, count in told.items() if count)
        deep = f"; looked deeper into: {', '.join(data['deep'])}" if data["deep"] else ""
        return f"{data['edits']} edit patches generated{notes}{deep}"

    def _selected(self, data: dict[str, Any], event: Event) -> str:
        flagged = f", {data['conflicts']} conflicts set aside (skillopt review)" if data["conflicts"] else ""
        return f"Selected {data['edits']} edits ({self._rate} → {data['rate']:.1f}){flagged}"

    def _gate_decided(self, data: dict[str, Any], event: Event) -> str:
        return f"Gate: {gate_line(data)}"

    def _ablation_started(self, data: dict[str, Any], event: Event) -> str:
        most = (data["units"] + 1) * data["items"] * data["repeats"]
        parts = f"{data['units']} parts of version {data['version']}, one at a time, on {data['items']} items"
        return f"Ablation by {data['by']}: {parts}; at most {most:,} calls (what is in the journal costs nothing)"

    def _part_measured(self, data: dict[str, Any], event: Event) -> str:
        said = " ".join(data["text"].split())[:60]
        return f"[{data['number']}/{data['units']}] {data['worth']:+.3f}  {data['name']}: {said}"

    def _tracker_failed(self, data: dict[str, Any], event: Event) -> str:
        return f"warn  tracker {data['name']} stopped ({data['error']}); the run continues without it"

    def _retrying(self, data: dict[str, Any], event: Event) -> str:
        missing = f"{data['unmeasured']} of {data['items']} items could not be measured"
        return f"{data['stage'].replace('_', ' ').title()}: {missing} ({data['error']}); trying again..."

    def _slow_update_started(self, data: dict[str, Any], event: Event) -> str:
        return f"[Epoch {event.epoch}/{self._epochs}] Slow update: version {data['before']} against {data['after']}..."

    def _slow_update_finished(self, data: dict[str, Any], event: Event) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(data["counts"].items()))
        decided = data["gate"]["decision"] != "skipped"
        outcome = f"guidance: {gate_line(data['gate'])}" if decided else f"no guidance ({data['lost'] or 'unchanged'})"
        return f"[Epoch {event.epoch}/{self._epochs}] Slow update: {counts + '; ' if counts else ''}{outcome}"

    def _meta_skill_finished(self, data: dict[str, Any], event: Event) -> str:
        what = f"no new notes ({data['lost']})" if data["lost"] else "notes written"
        return f"[Epoch {event.epoch}/{self._epochs}] Meta skill: {what}"


_IN_STEP = {"rollout_started", "reflect_started", "reflected", "selected", "gate_decided"}


_NAMES = {
    "": "the skill",
    "no_skill": "no skill",
    "remeasured": "best skill again",
    "checked and base": "the skill and its base",
}


def _named(name: str) -> str:
    return _NAMES.get(name, f"{name} skill")


def check_line(check: Mapping[str, Any]) -> str:
    """`warn  budget: no limit is set → set budget.max_usd …`."""
    fix = f" → {check['fix']}" if check["fix"] else ""
    return f"{check['status']}  {check['name']}: {check['says']}{fix}"


def gate_line(data: dict[str, Any]) -> str:
    """`val score 0.68 > 0.65 ✓ ACCEPT`."""
    if data["decision"] == "skipped":
        return "nothing to decide, no edit applies · SKIP"
    before, after = data["before"], data["after"]
    if after is None:
        seen = f"after {data['measured']} of {data['items']} items"
        needed = ">" if data["rule"] == "strict" else "≥"
        return f"val score at most {score(data['at_most'])}, not {needed} {score(before)} ✗ REJECT ({seen})"
    sign = ">" if after > before else "=" if after == before else "<"
    mark = {"accept": "✓ ACCEPT", "reject": "✗ REJECT", "indecisive": "? INDECISIVE"}[data["decision"]]
    fresh = f"{data['repeats']} fresh samples where they differ, {chance(data['p'])}" if data["repeats"] else ""
    notes = "; ".join(note for note in (fresh, data["reason"]) if note)
    return f"val score {score(after)} {sign} {score(before)} {mark}" + (f" ({notes})" if notes else "")


def result_table(summary: dict[str, Any]) -> list[str]:
    """What the run gave: a line for each skill that was measured."""
    baselines = {
        name.replace("_", " "): row
        for name, row in summary["baselines"].items()
        if name != "do_nothing" or row.get("val") or row.get("test")  # nothing done, nothing scored: no need to say
    }
    best = summary["best"]
    skills = {**baselines, "initial": summary["initial"], "best": best}
    if best["val_remeasured"] is not None and best["version"]:
        again = {"val": best["val_remeasured"], "val_interval": best["val_remeasured_interval"]}
        skills["best, measured again"] = again
    rows = []
    for name, row in skills.items():
        scores = (ranged(row[split], row.get(f"{split}_interval")) if split in row else "" for split in ("val", "test"))
        rows.append((name, *scores, str(row.get("tokens", ""))))
    return table_lines(("skill", "validation", "test", "tokens"), rows)


def result_lines(summary: dict[str, Any]) -> list[str]:
    steps, calls, edits = summary["steps"], summary["calls"], summary["edits"]
    rate = summary["edit_acceptance_rate"]
    tokens = {role: sum(v for k, v in t.items() if k != "cached") for role, t in summary["tokens"].items()}
    names = summary.get("item_names", {})
    stuck = [names.get(item, item) for item in summary["persistent_failures"]]
    shown = ", ".join(stuck[:8]) + (" …" if len(stuck) > 8 else "")
    costs = summary["cost_usd"]
    return [
        f"Steps: {steps['run']} run, {steps['accepted']} accepted, {steps['rejected']} rejected, "
        f"{steps['indecisive']} indecisive, {steps['skipped']} skipped",
        *_winner(summary["best"]),
        f"Edit acceptance: {edits['accepted']} of {edits['proposed']}" + (f" ({rate:.0%})" if rate is not None else ""),
        f"Calls: {calls['target']} target, {calls['optimizer']} optimizer, {calls['from_journal']} from the journal; "
        f"the gate saved {summary['gate']['calls_saved']}",
        f"Tokens: {tokens['target']:,} target, {tokens['optimizer']:,} optimizer{_estimated(summary)}; "
        f"cost: {dollars(costs['target'])} target, {dollars(costs['optimizer'])} optimizer; {summary['seconds']:.1f} s",
        *beside_lines(summary["plan"]),
        f"Persistent failures: {len(stuck)}" + (f" ({shown})" if stuck else ""),
    ]


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
    skillopt = _command()
    return [
        f"Best skill: {result.path / ('best_skill' if result.best_skill.is_package else 'best_skill.md')}",
        "Next:",
        f"  {skillopt} report {run} --open    # what was learned, and why",
        f"  {skillopt} diff {run}    # what changed in the skill",
        f"  {skillopt} ablate {run}    # what each rule of it is worth",
    ]


def _command() -> str:
    """How this program can be started again: by its name, or from where it was started this time."""
    called = Path(sys.argv[0])
    if shutil.which("skillopt") or called.name != "skillopt":
        return "skillopt"
    return shlex.quote(os.path.relpath(called) if called.is_relative_to(Path.cwd()) else str(called))


def _estimated(summary: dict[str, Any]) -> str:
    return " (estimated)" if "optimizer" in summary.get("tokens_estimated", ()) else ""


def _winner(best: dict[str, Any]) -> list[str]:
    """The best of many noisy scores is partly luck; fresh samples show how much. Where nothing won, there is none."""
    curse = best["winners_curse"]
    if curse is None or not best["version"]:
        return []
    return [
        f"Luck: the gate saw {score(best['val'])} in validation, fresh samples give {score(best['val_remeasured'])} "
        f"({0 - curse:+.2f})"
    ]
