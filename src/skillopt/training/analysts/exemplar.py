"""The analyst that needs no LLM: it states the possible answers and their form, and shows worked examples.

This method is also called bootstrapped few-shot. The analyst takes everything from training trajectories: the possible
answers and their form, the task types or words that go with each answer, and the tasks that teach most.

If the type of a task decides the answer, each example names the type first and then the answer. A small model that says
what a task is about before it answers is right far more often than one that answers at once.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from skillopt.config import Config
from skillopt.models.call import Caller
from skillopt.record.edits import Patch, Pattern
from skillopt.skill import Edit, Skill
from skillopt.skill.tokens import count_tokens
from skillopt.tasks.base import Trajectory
from skillopt.tasks.scoring import normalise
from skillopt.training.analysts.base import Kind, Minibatch
from skillopt.training.requests.context import OptimizerContext

ANSWER_SECTION, CUES_SECTION, EXAMPLES_SECTION = "Answer", "Which answer", "Examples"
LONGEST_EXAMPLE = 120
"""The maximum number of tokens of a task that may become a worked example."""
ROUNDS = 2
"""The maximum number of edits with worked examples that are made from one batch."""
SPARED = 2
"""If the run has other analysts, only every SPARED-th failure may become an example. A task that is copied into the
skill teaches little in the next step, so some tasks are spared."""
_CHOICES = re.compile(r"^The possible answers are: (.+)\.(?= (?:Reply|Answer) )", re.MULTILINE)
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
        self, skill: Skill, minibatch: Minibatch, knowledge: OptimizerContext, optimizer: Caller, config: Config
    ) -> Patch:
        """Propose edits without the optimizer: the same trajectories always give the same patch."""
        seen = [trajectory for trajectory in minibatch.trajectories if trajectory.answers]
        failures = [trajectory for trajectory in seen if trajectory.score.hard < 1]
        tried = {entry.edit.text for entry in knowledge.rejected}
        choices = closed_answers(seen, skill)
        rules = type_rules(seen)
        most = config.optimizer.max_edit_tokens
        if any(name != self.name for name in config.gradient.analysts):  # other analysts state the rules
            turns = ([m for m in t.messages if m.get("role") != "system"] for t in failures)
            short = [
                t for t, messages in zip(failures, turns, strict=True) if len(messages) <= 2
            ]  # after more turns, the answer alone teaches little
            proposals = example_edits(short[::SPARED], {}, skill, tried, most)[:1]
        else:
            proposals = [
                *answer_edits(failures, choices, rules, skill),
                *(rule_edits(seen, rules, skill) if rules else cue_edits(seen, choices, skill)),
                *example_edits(failures, rules, skill, tried, most),
            ]
        edits = tuple(
            edit.model_copy(update={"source": "exemplar/batch"}) for edit in proposals if edit.text not in tried
        )
        ids = tuple(trajectory.id for trajectory in minibatch.trajectories)
        return Patch(
            id=minibatch.id, source="exemplar/batch", trajectory_ids=ids, patterns=patterns(failures), edits=edits
        )


def closed_answers(trajectories: Sequence[Trajectory], skill: Skill) -> list[str]:
    """The possible answers: those of the trajectories and those that the skill names already. Empty if the answers are
    not a closed set: they seldom repeat, and the skill names none of them."""
    counts = Counter(trajectory.answers[0] for trajectory in trajectories)
    stated = _CHOICES.search(skill.text)
    named = [name.strip() for name in stated[1].split(",")] if stated else []
    few = 2 <= len(counts) <= 20 and len(counts) * 2 <= len(trajectories)
    return sorted({*named, *counts}) if few or (named and set(counts) & set(named)) else []


def type_rules(trajectories: Sequence[Trajectory]) -> dict[str, str]:
    """The answer of each task type, if all tasks of a type have the same answer. Empty if a type has several answers,
    or if there is only one type or only one answer."""
    by_type: dict[str, set[str]] = {}
    for trajectory in trajectories:
        by_type.setdefault(trajectory.type, set()).add(trajectory.answers[0])
    settled = len(by_type) > 1 and all(name and len(answers) == 1 for name, answers in by_type.items())
    rules = {name: min(answers) for name, answers in sorted(by_type.items())}
    return rules if settled and len(set(rules.values())) > 1 else {}


def answer_edits(failures: list[Trajectory], choices: list[str], rules: dict[str, str], skill: Skill) -> list[Edit]:
    """An edit that states the possible answers if they are a closed set; else one that states the form that all answers
    share."""
    if not failures:
        return []
    cited = tuple(trajectory.id for trajectory in failures)
    if choices:
        form = f'Reply in the form "{_reply("…", "…")}"' if rules else "Answer with one of them"
        text = f"The possible answers are: {', '.join(choices)}. {form} and nothing else."
        stated = _CHOICES.search(skill.text)
        if stated is None:
            return [_edit("add", ANSWER_SECTION, text, cited, "the answers are a closed set", impact=1.0)]
        now = stated[0]
        wanted = f"The possible answers are: {', '.join(choices)}."
        reason = "more answers came up"
        return [] if now == wanted else [_edit("modify", ANSWER_SECTION, wanted, cited, reason, anchor=now)]
    text = form_of([answer for trajectory in failures for answer in trajectory.answers[:1]])
    talkative = [t for t in failures if _says(t.output, t.answers) or len(t.output) > 4 * len(t.answers[0])]
    if not text or text in skill.text or not talkative:
        return []
    ids = tuple(trajectory.id for trajectory in talkative)
    return [_edit("add", ANSWER_SECTION, text, ids, "the answers share this form", impact=1.0)]


def form_of(answers: Sequence[str]) -> str:
    """An instruction for the form that all answers share; empty if they share none."""
    if all(_NUMBER.fullmatch(answer.strip()) for answer in answers):
        return "Answer with the number alone: no words, no unit, no calculation."
    if all(len(answer.split()) == 1 for answer in answers):
        return "Answer with one word and nothing else."
    if all(answer.lstrip().startswith(("{", "[")) for answer in answers):
        return "Answer with the JSON alone, without explanation or code fence."
    if all(len(answer.split()) <= 8 for answer in answers):
        return "Answer with the exact name or phrase alone, as short as possible, not with a sentence."
    return ""


def rule_edits(seen: list[Trajectory], rules: dict[str, str], skill: Skill) -> list[Edit]:
    """An edit with the answer of each task type, except for types that the skill already has."""
    lines = {name: f"- {_reply(name, answer)}" for name, answer in rules.items()}
    missing = {name: line for name, line in lines.items() if line not in skill.text}
    ids = tuple(t.id for t in seen if t.type in missing)
    reason = "these types of task always have these answers"
    return [_edit("add", CUES_SECTION, "\n".join(missing.values()), ids, reason)] if missing else []


def cue_edits(seen: list[Trajectory], choices: list[str], skill: Skill) -> list[Edit]:
    """An edit with the words that distinguish the tasks of one answer from all others, for each answer whose words are
    not in the skill yet."""
    words = {trajectory.id: _words(trajectory.input) for trajectory in seen}
    spread = Counter(word for task_words in words.values() for word in task_words)
    lines: list[str] = []
    ids: list[str] = []
    for choice in choices:
        tasks = [trajectory for trajectory in seen if trajectory.answers[0] == choice]
        if len(tasks) < 2 or f"- {choice}: " in skill.text:
            continue
        inside = Counter(word for trajectory in tasks for word in words[trajectory.id])
        telling = {
            word: n * math.log(len(seen) * n / (len(tasks) * spread[word])) for word, n in inside.items() if n > 1
        }
        cues = sorted((word for word in telling if telling[word] > 0), key=lambda word: (-telling[word], word))[:6]
        if cues:
            lines.append(f"- {choice}: {', '.join(cues)}")
            ids += [trajectory.id for trajectory in tasks]
    return (
        [_edit("add", CUES_SECTION, "\n".join(lines), tuple(ids), "these words go with these answers")] if lines else []
    )


def example_edits(
    failures: list[Trajectory], rules: dict[str, str], skill: Skill, tried: set[str], most_tokens: int
) -> list[Edit]:
    """Edits with worked examples. For each right answer among the failures, an edit shows the most useful task."""
    left = [t for t in failures if count_tokens(t.input) <= LONGEST_EXAMPLE and _one_line(t.input) not in skill.text]
    need = Counter(trajectory.answers[0] for trajectory in failures)
    covered: set[tuple[str, str]] = set()
    edits: list[Edit] = []
    for _ in range(ROUNDS):
        block: list[Trajectory] = []
        for answer in sorted(need, key=lambda name: (-need[name], name)):
            tasks = [trajectory for trajectory in left if trajectory.answers[0] == answer]
            best = max(tasks, key=lambda t: (_gain(t, failures, covered), t.id), default=None)
            if best and count_tokens(_block([*block, best], rules)) <= most_tokens:
                block.append(best)
                left.remove(best)
                covered |= {(answer, word) for word in _words(best.input)}
        text = _block(block, rules)
        if block and text not in tried:
            shown = {trajectory.answers[0] for trajectory in block}
            ids = tuple(trajectory.id for trajectory in failures if trajectory.answers[0] in shown)
            edits.append(_edit("add", EXAMPLES_SECTION, text, ids, "worked examples of tasks that failed", impact=0.8))
    return edits


def _block(examples: list[Trajectory], rules: dict[str, str]) -> str:
    return "\n\n".join(
        f"Task: {_one_line(t.input)}\nReply: " + (_reply(t.type, t.answers[0]) if rules else t.answers[0])
        for t in examples
    )


def _reply(task_type: str, answer: str) -> str:
    return f"This is about {task_type}, so <answer>{answer}</answer>"


def _gain(candidate: Trajectory, failures: list[Trajectory], covered: set[tuple[str, str]]) -> int:
    """The number of words that a task shares with failed tasks of the same answer; words of the examples chosen so far
    do not count."""
    answer = candidate.answers[0]
    fresh = {word for word in _words(candidate.input) if (answer, word) not in covered}
    alike = [t for t in failures if t.answers[0] == answer and t.id != candidate.id]
    return sum(len(fresh & _words(t.input)) for t in alike)


def patterns(failures: list[Trajectory]) -> tuple[Pattern, ...]:
    """The failures by cause. If the right answer is in the output, the cause is `right answer in the wrong form`; else
    the cause is `no X`, where X is the right answer."""
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
    """True if the right answer is somewhere in the output."""
    words = f" {normalise(output)} "
    return any(f" {normalise(answer)} " in words for answer in answers)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _words(text: str) -> set[str]:
    return {word for word in (w.casefold() for w in _WORD.findall(text)) if word not in _COMMON}
