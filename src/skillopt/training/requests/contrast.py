"""Finds data that costs no further rollouts: tasks of a batch whose outcome has changed since an earlier step, and
solved tasks in the form of worked examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

from skillopt.skill.tokens import count_tokens
from skillopt.tasks.base import Trajectory
from skillopt.training.requests.blocks import Shown, block, data_line, trim_middle
from skillopt.training.requests.context import Earlier

MOST_PAIRS = 4
LONGEST_SIDE = 120
"""The maximum number of tokens of a task, and of each of the two outputs that are compared."""
MOST_READY = 12
LONGEST_READY = 150
"""The maximum number of tokens of a task with its reply; longer tasks are poor examples."""


def contrast_block(
    trajectories: Sequence[Trajectory],
    earlier: Mapping[str, Sequence[Earlier]],
    shown: Sequence[Trajectory],
    how: Shown,
) -> str:
    """A block of tasks whose outcome has changed since an earlier step, with the lines by which the two outputs differ.
    Tasks that fail now come first."""
    rows = []
    for now in sorted(trajectories, key=lambda t: t.score.hard >= 1):
        solved = now.score.hard >= 1
        other = next((each for each in reversed(earlier.get(now.item_id, ())) if each.solved != solved), None)
        if other is None or other.output.strip() == now.output.strip():
            continue
        wrong, right = _differing(other.output, now.output) if solved else _differing(now.output, other.output)
        which = {"id": now.id} if now in shown else {"task": trim_middle(how.shared.rest(now.input), LONGEST_SIDE)}
        when = {"failed_in_step": other.step} if solved else {"solved_in_step": other.step}
        rows.append(data_line({**which, **when, "wrong": wrong, "right": right}))
    return block("two_outcomes", "\n".join(rows[:MOST_PAIRS]))


def _differing(wrong: str, right: str) -> tuple[str, str]:
    """The lines that only the wrong output has, and the lines that only the right output has."""
    a, b = wrong.strip().splitlines(), right.strip().splitlines()
    changes = [code for code in SequenceMatcher(None, a, b, autojunk=False).get_opcodes() if code[0] != "equal"]
    only_a = [line for _, start, end, _, _ in changes for line in a[start:end]]
    only_b = [line for *_, start, end in changes for line in b[start:end]]
    return trim_middle("\n".join(only_a), LONGEST_SIDE), trim_middle("\n".join(only_b), LONGEST_SIDE)


def ready_examples(passes: Sequence[Trajectory], how: Shown) -> list[Trajectory]:
    """Solved tasks that could become examples in the skill: short tasks that are not examples yet, with as many
    different answers as possible. If the answer can be guessed, a right reply may have wrong steps. Then only replies
    that contain nothing but the answer are used."""
    seen: dict[str, int] = {}
    turns = []
    for position, each in enumerate(passes):
        text = how.shared.rest(each.input)
        fits = len(text) + len(each.output) < 20 * LONGEST_READY and count_tokens(text + each.output) <= LONGEST_READY
        if how.guessable and each.output.strip() not in each.answers:
            continue
        if fits and each.output.strip() and not each.changes and not how.shared.is_example(each.input, how.skill):
            answer = each.answers[0] if each.answers else each.output
            seen[answer] = seen.get(answer, 0) + 1
            turns.append((seen[answer], position))
    return [passes[position] for position in sorted(at for _, at in sorted(turns)[:MOST_READY])]


def ready_block(examples: Sequence[Trajectory], how: Shown) -> str:
    """A block of solved tasks as `Task: …` and `Reply: …`, the form of worked examples in a skill."""
    lines = [f"Task: {how.shared.rest(each.input).strip()}\nReply: {each.output.strip()}" for each in examples]
    return block("ready_examples", "\n\n".join(lines))
