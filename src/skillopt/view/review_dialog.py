"""Shows the conflicts of a run on a terminal, each edit with its evidence, and stores a person's choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from skillopt.errors import UserError
from skillopt.record.directory import RunDirectory
from skillopt.record.edits import Decision, FiledConflict
from skillopt.record.run import Run
from skillopt.record.trajectory import Trajectory
from skillopt.skill import Edit
from skillopt.training.edits.review import CHOICES, checked_decision, write_decisions
from skillopt.view.blame import where
from skillopt.view.text import clipped, printable
from skillopt.view.traces import Trace

SHOWN = 3
"""The maximum number of trajectories per edit that are shown in full. Of further trajectories, only the ids are
shown."""
Say = Callable[[str], None]
_CHOOSE = f"ID=CHOICE, such as 3-1=a; choices are: {', '.join(CHOICES)}"
_WRITE = "ID=TEXT, such as '3-1=Answer in one word.'"


def review_run(
    run: RunDirectory, choose: Sequence[str], write: Sequence[str], say: Say, ask: Callable[[str], str] | None
) -> None:
    """Store the decisions that are given on the command line. If none are given, list the conflicts and, with
    `ask`, ask about each conflict that no step has used yet."""
    if not run.state.is_file():
        raise UserError(f"{run.root}: is not a run's folder (it has no {run.state.name})")
    with run.as_written():
        made = [checked_decision(run, *_pair(text, _CHOOSE)) for text in choose]
        made += [checked_decision(run, found, "own", text) for found, text in (_pair(t, _WRITE) for t in write)]
        if made:
            _take(run, made, say)
            return
        conflicts = Run(run).conflicts
        if not conflicts:
            say("No conflicts: no two edits of this run contradict each other.")
        for conflict in conflicts:
            say(conflict_text(run, conflict))
            if status(run, conflict).startswith("used"):
                continue
            if ask is None:
                say(f"  Decide with --choose {conflict.id}=a (or b, both, neither) or --write {conflict.id}=TEXT.")
            elif not _ask(run, conflict, say, ask):
                return


def _ask(run: RunDirectory, conflict: FiledConflict, say: Say, ask: Callable[[str], str]) -> bool:
    """Ask about a conflict until the answer is valid. Return False if the person wants to stop, else True."""
    while True:
        answer = ask(f"Conflict {conflict.id}: a, b, both, neither, write your own (w), skip (s) or quit (q)? ").strip()
        if answer in {"q", "quit"}:
            return False
        if answer in {"", "s", "skip"}:
            return True
        own = answer in {"w", "write", "own"}
        try:
            text = ask("Your edit: ").strip() if own else ""
            _take(run, [checked_decision(run, conflict.id, "own" if own else answer, text)], say)
        except UserError as error:
            say(str(error))
            continue
        return True


def _take(run: RunDirectory, made: Sequence[Decision], say: Say) -> None:
    write_decisions(run, made)
    state = Run(run).state
    finished = state is not None and state.status == "finished"
    then = "This run is finished. To try the choice, extend the run: raise train.num_epochs."
    if not finished:
        then = "The next step tries the choice in its gate. To continue, run the same train command."
    for decision in made:
        say(f"Conflict {decision.conflict}: {decision.choice}. {then}")


def _pair(text: str, form: str) -> tuple[str, str]:
    conflict, equals, value = text.partition("=")
    if not equals or not conflict.strip() or not value.strip():
        raise UserError(f"'{text}': does not have the form {form}")
    return conflict.strip(), value.strip()


def status(run: RunDirectory, conflict: FiledConflict) -> str:
    """The status of a conflict in words: `open`, `decided: a, waiting for the next step`, or, with the gate's verdict,
    `used in step 4: a (accept)`."""
    state = Run(run).state
    step = state.reviewed.get(conflict.id) if state else None
    decision = Run(run).decisions.get(conflict.id)
    if step is None:
        return "open" if decision is None else f"decided: {decision.choice}, waiting for the next step"
    record = next(record for record in Run(run).history if record.step == step)
    used = next(each for each in record.review if each.conflict == conflict.id)
    return f"used in step {step}: {used.choice} ({record.verdict})"


def conflict_text(run: RunDirectory, conflict: FiledConflict) -> str:
    rollouts = {rollout.id: rollout for rollout in Run(run).batch_trajectories(conflict.step)}
    head = f"Conflict {conflict.id} (step {conflict.step}, {status(run, conflict)}): {conflict.reason}"
    sides = [_side(name.upper(), edit, rollouts) for name, edit in conflict.sides.items()]
    return "\n".join([head, *sides])


def _side(name: str, edit: Edit, rollouts: Mapping[str, Trace]) -> str:
    changed = f"\n     instead of: {edit.anchor}" if edit.anchor else ""
    lines = [f"  {name}: {edit.op}{where(edit)}: {edit.text}{changed}"]
    lines += [f"     why: {edit.rationale}"] if edit.rationale else []
    for tid in edit.trajectory_ids[:SHOWN]:
        rollout = rollouts.get(tid)
        if isinstance(rollout, Trajectory):
            score = rollout.score
            lines.append(f"     {tid} ({rollout.item_id}, score {score.soft:.2f}): {_short(rollout.input)}")
            lines.append(f"       answered {_short(rollout.output)}; {_short(score.feedback)}")
    more = edit.trajectory_ids[SHOWN:]
    return "\n".join([*lines, f"     and {len(more)} more: {', '.join(more[:8])}"] if more else lines)


def _short(text: str) -> str:
    return clipped(printable(" ".join(text.split())), 100)
