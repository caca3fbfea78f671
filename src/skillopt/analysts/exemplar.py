"""The analyst that needs no LLM: it states the possible answers and their form, and shows worked examples.

Elsewhere this is called bootstrapped few-shot. Everything that it writes is read off training trajectories: which
answers there are, how they look, which words go with which answer, and which tasks would have taught most.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from skillopt.analysts.base import Kind, Memory, Minibatch, Patch, Pattern
from skillopt.config import Config
from skillopt.envs.base import Trajectory
from skillopt.envs.scoring import normalise
from skillopt.models.call import Caller
from skillopt.skill import Edit, Skill
from skillopt.skill.document import count_tokens

ANSWER_SECTION, CUES_SECTION, EXAMPLES_SECTION = "Answer", "Which answer", "Examples"
LONGEST_EXAMPLE = 120
"""Tokens of a task that may become a worked example."""
_CHOICES = re.compile(r"^Answer with exactly one of these, and nothing else: (.+)\.$", re.MULTILINE)
_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+%?")
_WORD = re.compile(r"[^\W\d_]{3,}")
_COMMON_WORDS = """
about after again all also and any are ask asked back been before being but can cannot could did does don down even ever
every for from get got had has have her here him his how into its just know last like made make may more most much need
new not now off once one only our out over please said same see she should since some still such tell than thank thanks
that the their them then there these they this time too two until use used very want was way well were what when where
which while who why will with would yet you your hello dear
"""
_COMMON = set(_COMMON_WORDS.split())


class ExemplarAnalyst:
    name = "exemplar"
    kinds: tuple[Kind, ...] = ("batch",)
    needs_optimizer = False

    async def propose(
        self, skill: Skill, minibatch: Minibatch, memory: Memory, optimizer: Caller, config: Config
    ) -> Patch:
        """The optimizer is not called: the same trajectories always give the same patch."""
        seen = [trajectory for trajectory in minibatch.trajectories if trajectory.answers]
        failures = [trajectory for trajectory in seen if trajectory.score.hard < 1]
        tried = {entry.edit.text for entry in memory.rejected}
        choices = closed_answers(seen, skill)
        proposals = [
            *answer_edits(failures, choices, skill),
            *cue_edits(seen, choices, skill),
            *example_edits(failures, skill, tried),
        ]
        edits = tuple(
            edit.model_copy(update={"source": "exemplar/batch"}) for edit in proposals if edit.text not in tried
        )
        ids = tuple(trajectory.id for trajectory in minibatch.trajectories)
        return Patch(
            id=minibatch.id, source="exemplar/batch", trajectory_ids=ids, patterns=patterns(failures), edits=edits
        )


def closed_answers(trajectories: Sequence[Trajectory], skill: Skill) -> list[str]:
    """The answers that come up again and again, with those that the skill names already; empty if they do not."""
    counts = Counter(trajectory.answers[0] for trajectory in trajectories)
    stated = _CHOICES.search(skill.text)
    known = [name.strip() for name in stated[1].split(",")] if stated else []
    few = 2 <= len(counts) <= 20 and len(counts) * 2 <= len(trajectories)
    return sorted({*known, *counts}) if few or (known and set(counts) & set(known)) else []


def answer_edits(failures: list[Trajectory], choices: list[str], skill: Skill) -> list[Edit]:
    """The closed set of answers where there is one, else the form that all answers share."""
    if not failures:
        return []
    cited = tuple(trajectory.id for trajectory in failures)
    if choices:
        text = f"Answer with exactly one of these, and nothing else: {', '.join(choices)}."
        stated = _CHOICES.search(skill.text)
        if stated and stated[0] != text:
            return [_edit("modify", ANSWER_SECTION, text, cited, "more answers came up", anchor=stated[0])]
        reason = "the answers are a closed set"
        return [] if stated else [_edit("add", ANSWER_SECTION, text, cited, reason, impact=1.0)]
    text = form_of([answer for trajectory in failures for answer in trajectory.answers[:1]])
    talkative = [t for t in failures if _says(t.output, t.answers) or len(t.output) > 4 * len(t.answers[0])]
    if not text or text in skill.text or not talkative:
        return []
    ids = tuple(trajectory.id for trajectory in talkative)
    return [_edit("add", ANSWER_SECTION, text, ids, "the answers share this form", impact=1.0)]


def form_of(answers: Sequence[str]) -> str:
    """An instruction for the form that all answers share; empty where they share none."""
    if all(_NUMBER.fullmatch(answer.strip()) for answer in answers):
        return "Answer with the number alone: no words, no unit, no calculation."
    if all(len(answer.split()) == 1 for answer in answers):
        return "Answer with one word and nothing else."
    if all(answer.lstrip().startswith(("{", "[")) for answer in answers):
        return "Answer with the JSON alone, without explanation or code fence."
    if all(len(answer.split()) <= 8 for answer in answers):
        return "Answer with the exact name or phrase alone, as short as possible, not with a sentence."
    return ""


def cue_edits(seen: list[Trajectory], choices: list[str], skill: Skill) -> list[Edit]:
    """For each answer of a closed set, the words that set its tasks apart, as one rule an answer."""
    if not choices:
        return []
    words = {trajectory.id: _words(trajectory.input) for trajectory in seen}
    spread = Counter(word for found in words.values() for word in found)
    edits = []
    for choice in choices:
        own = [trajectory for trajectory in seen if trajectory.answers[0] == choice]
        wrong = [trajectory for trajectory in own if trajectory.score.hard < 1]
        if len(own) < 2 or not wrong or f"- {choice}: " in skill.text:
            continue
        inside = Counter(word for trajectory in own for word in words[trajectory.id])
        telling = {word: n * math.log(len(seen) * n / (len(own) * spread[word])) for word, n in inside.items() if n > 1}
        cues = sorted((word for word in telling if telling[word] > 0), key=lambda word: (-telling[word], word))[:6]
        if cues:
            text = f"- {choice}: {', '.join(cues)}"
            ids = tuple(trajectory.id for trajectory in own)
            edits.append(_edit("add", CUES_SECTION, text, ids, "these words go with this answer"))
    return edits


def example_edits(failures: list[Trajectory], skill: Skill, tried: set[str]) -> list[Edit]:
    """Worked examples, chosen one by one: each covers as many words of failing tasks as possible not yet covered."""
    open_tasks = [t for t in failures if count_tokens(t.input) <= LONGEST_EXAMPLE and t.input.strip() not in skill.text]
    covered: Counter[tuple[str, str]] = Counter()
    edits: list[Edit] = []
    taught: Counter[str] = Counter()
    need = Counter(trajectory.answers[0] for trajectory in failures)

    def worth(trajectory: Trajectory) -> tuple[float, float, str]:
        answer = trajectory.answers[0]
        return need[answer] / (1 + taught[answer]), _gain(trajectory, failures, covered), trajectory.id

    while open_tasks and len(edits) < 8:
        best = max(open_tasks, key=worth)
        open_tasks.remove(best)
        text = f"Task: {' '.join(best.input.split())}\nAnswer: {best.answers[0]}"
        if text in tried:
            continue
        helped = tuple(sorted({best.id, *(t.id for t in failures if t.answers[0] == best.answers[0])}))
        edits.append(_edit("add", EXAMPLES_SECTION, text, helped, "a worked example of tasks that failed"))
        taught[best.answers[0]] += 1
        covered.update((best.answers[0], word) for word in _words(best.input))
    return edits


def _gain(candidate: Trajectory, failures: list[Trajectory], covered: Counter[tuple[str, str]]) -> float:
    """How many words it shares with failing tasks of the same answer that no chosen example has yet."""
    answer = candidate.answers[0]
    fresh = {word for word in _words(candidate.input) if (answer, word) not in covered}
    alike = [t for t in failures if t.answers[0] == answer and t.id != candidate.id]
    return sum(len(fresh & _words(t.input)) for t in alike)


def patterns(failures: list[Trajectory]) -> tuple[Pattern, ...]:
    """Failures by what was confused with what."""
    groups: dict[str, list[str]] = {}
    for trajectory in failures:
        if _says(trajectory.output, trajectory.answers):
            name = "right answer in the wrong form"
        else:
            name = f"no {trajectory.answers[0]}"
        groups.setdefault(name, []).append(trajectory.id)
    return tuple(Pattern(name=name, trajectory_ids=tuple(ids)) for name, ids in sorted(groups.items()))


def _edit(
    op: str, section: str, text: str, ids: tuple[str, ...], rationale: str, *, anchor: str = "", impact: float = 0.5
) -> Edit:
    fields = {"op": op, "section": section, "anchor": anchor, "text": text, "rationale": rationale}
    return Edit.model_validate({**fields, "trajectory_ids": ids, "impact": impact, "pattern": rationale})


def _says(output: str, answers: Sequence[str]) -> bool:
    """The right answer is somewhere in the output."""
    said = f" {normalise(output)} "
    return any(f" {normalise(answer)} " in said for answer in answers)


def _words(text: str) -> set[str]:
    return {word for word in (w.casefold() for w in _WORD.findall(text)) if word not in _COMMON}
