"""Probes whether there is anything to learn, before a training is paid for.

The target does a dozen training tasks: four times with the initial skill, and once with the skill followed by a
sentence that shows the form of the answer. Tasks of the validation and test split are not used.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from skillopt.config import Config
from skillopt.errors import Stopped
from skillopt.measure.session import folder_of, measuring_session, written
from skillopt.models.base import ChatModel, Usage
from skillopt.models.prices import cost_of, price_of
from skillopt.preflight.plan import TURNS, reply_tokens
from skillopt.record.events import Listener
from skillopt.record.forecast import Estimate
from skillopt.record.probe import Headroom, Probe, ProbePlan, Replies
from skillopt.skill import Skill
from skillopt.skill.tokens import count_tokens
from skillopt.tasks.base import Env, Item, Trajectory, closed_set
from skillopt.tasks.scoring import extract_answer, normalise
from skillopt.training.context import Context
from skillopt.training.final_scores import majority
from skillopt.training.rollout import failed, roll_out_all, scored

ITEMS, SAMPLES = 12, 4
TEMPERATURE = 0.7
"""The temperature of all samples except the first, if the config's temperature is 0 or not set."""
SOLVED, FORM = 0.95, 0.9
"""Assumed limits: the lowest shares of right replies. `SOLVED` is the limit for the finding `nothing to learn`. `FORM`
is the limit for `form only`; for this limit, only replies to requests that show the form are counted."""
LOST = 0.5
"""An assumed limit: the finding is `this target cannot` if no task is solved and at least this share of the replies is
unusable."""
_SHOWN = 3
"""The maximum number of answers that a request shows as examples of the form."""
_LONGER, _SLACK = 3, 20
"""A reply's answer has the wrong form if it has more characters than 3 times the longest training answer, plus 20."""


async def probe(
    config: Config,
    skill: Skill,
    *,
    items: int = ITEMS,
    samples: int = SAMPLES,
    env: Env | None = None,
    models: dict[str, ChatModel] | None = None,
    listeners: Sequence[Listener] = (),
) -> Probe:
    """Run a probe, and write the finding to `probe.json`. Repeating the same probe costs nothing."""

    def folder(env: Env) -> Path:
        return probe_folder(config, env, skill, items=items, samples=samples)

    async with measuring_session(config, folder, env=env, models=models, listeners=listeners) as session:
        ctx = session.ctx
        chosen = chosen_items(config, ctx.env, items)
        form = answer_form(ctx.env, chosen)
        own = config.role("target").temperature
        warm = replace(ctx.target, temperature=own or TEMPERATURE, deterministic=False)
        rounds = [
            await _ask(skill, chosen, ctx if n == 0 else replace(ctx, target=warm), f"probe-{n}")
            for n in range(samples)
        ]
        shown = await _ask(with_form(skill, form), chosen, ctx, "probe-form") if form else ([], {})
        replies = [reply for each, _ in rounds for reply in each]
        set_aside: dict[str, str] = {}
        for _, refused in [*rounds, shown]:
            set_aside |= refused
        if not rounds[0][0]:
            raise Stopped(f"probe: no task could be done and scored; the last reason: {list(set_aside.values())[-1]}")
        solved = {item.id: sum(r.score.hard >= 1 for r in replies if r.item_id == item.id) for item in chosen}
        solved = {item: count for item, count in solved.items() if item not in set_aside}
        first = replies if own else rounds[0][0]
        plain, formed = _replies(replies, ctx), _replies(shown[0], ctx) if shown[0] else None
        pass_1, pass_any = _share(first), fmean(count > 0 for count in solved.values()) if solved else 0.0
        headroom, sentence = finding(pass_1, pass_any, plain, formed, samples)
        result = Probe(
            benchmark=ctx.env.name,
            target=ctx.target.model.name,
            headroom=headroom,
            sentence=sentence,
            items=tuple(item.id for item in chosen),
            samples=samples,
            temperature=warm.temperature,
            pass_1=pass_1,
            pass_any=pass_any,
            solved=solved,
            plain=plain,
            with_form=formed,
            form=form,
            majority=await majority(ctx.env, "train", "hard"),
            set_aside=set_aside,
            plan=plan_probe(config, ctx.env, skill, items=items, samples=samples),
            paid=session.paid().target,
        )
    return written(result, session.folder / "probe.json")


def probe_folder(config: Config, env: Env, skill: Skill, *, items: int = ITEMS, samples: int = SAMPLES) -> Path:
    """The folder of a probe. Its name depends on everything that may change the result: the config, the tasks and the
    skill."""
    chosen = [item.model_dump(mode="json") for item in chosen_items(config, env, items)]
    form = answer_form(env, chosen_items(config, env, items))
    identity = {"config": config.identity(), "items": chosen, "form": form, "skill": skill.hash, "samples": samples}
    return folder_of(config, "probes", {**identity, "env": env.fingerprint}, env.name)


def plan_probe(config: Config, env: Env, skill: Skill, *, items: int = ITEMS, samples: int = SAMPLES) -> ProbePlan:
    """The expected cost of a probe, before anything is paid for."""
    chosen = chosen_items(config, env, items)
    form, turns = answer_form(env, chosen), max(1.0, TURNS * env.turns)
    calls = round(len(chosen) * (samples + bool(form)) * turns)
    task = fmean(count_tokens(f"{item.context}\n\n{item.question}") for item in chosen) if chosen else 0.0
    prompt = task + skill.tokens + 20 + count_tokens(form) / (samples + 1)
    usage = Usage(prompt=round(calls * prompt), completion=calls * reply_tokens(config))
    usd = cost_of(usage, price_of(config.role("target").model, config.budget.prices))
    return ProbePlan(
        calls=calls,
        tokens=Estimate.around(usage.prompt + usage.completion),
        usd=None if usd is None else Estimate.around(usd),
    )


def chosen_items(config: Config, env: Env, count: int) -> list[Item]:
    """A random choice of training tasks in the order of the split. The same seed gives the same tasks."""
    train = env.items("train")
    draw = random.Random(f"{config.train.seed}/probe")  # noqa: S311
    return [train[number] for number in sorted(draw.sample(range(len(train)), min(count, len(train))))]


def answer_form(env: Env, chosen: Sequence[Item]) -> str:
    """A sentence that shows the form of an answer: it lists all possible answers if they are a small closed set, else
    answers of some tasks that are not in `chosen`. Empty if there are no such answers."""
    train, asked = env.items("train"), {item.id for item in chosen}
    if options := closed_set(train):
        return f"Reply with one of these and nothing else: {_listed(options)}"
    answers = dict.fromkeys(item.answers[0] for item in train if item.answers and item.id not in asked)
    known = {item.answer for item in chosen}
    shown = [answer for answer in answers if answer not in known][:_SHOWN]
    return f"Reply with the answer alone and nothing else. Answers look like these: {_listed(shown)}" if shown else ""


def _listed(answers: Sequence[str]) -> str:
    return ", ".join(f"`{answer}`" for answer in answers)


def with_form(skill: Skill, form: str) -> Skill:
    return Skill(f"{skill.text.rstrip()}\n\n{form}\n".lstrip())


async def _ask(skill: Skill, items: Sequence[Item], ctx: Context, tag: str) -> tuple[list[Trajectory], dict[str, str]]:
    """Take one sample of each item. Also return the items that have no score."""
    with ctx.timed("probe"):
        results = await roll_out_all(skill, items, ctx, tag=tag, stage="probe")
    return scored(results), {error.item_id: error.error for error in failed(results)}


def _replies(replies: Sequence[Trajectory], ctx: Context) -> Replies:
    train = ctx.env.items("train")
    options, limit = {normalise(each) for each in closed_set(train)}, ctx.config.role("target").max_tokens
    longest = max((len(answer) for item in train for answer in item.answers), default=0)
    cut, unparsable = 0, 0
    for reply in replies:
        calls = reply.telemetry.get("calls", [])
        if calls and calls[-1]["completion"] >= limit:
            cut += 1
        elif reply.score.hard < 1:
            answer = extract_answer(reply.output)
            too_long = bool(longest) and len(answer) > _LONGER * longest + _SLACK
            unparsable += not answer or too_long or bool(options and normalise(answer) not in options)
    count = len(replies)
    return Replies(count=count, right=_share(replies), cut_off=cut / count, unparsable=unparsable / count)


def _share(replies: Sequence[Trajectory]) -> float:
    return fmean(reply.score.hard >= 1 for reply in replies)


def finding(
    pass_1: float, pass_any: float, plain: Replies, formed: Replies | None, samples: int
) -> tuple[Headroom, str]:
    """The finding of a probe (one of four), and a sentence with the reason."""
    if pass_1 >= SOLVED:
        return "nothing to learn", f"Nothing to learn: the target solves {pass_1:.0%} of these tasks as it is."
    if formed and formed.right >= FORM and formed.right > pass_1:
        return "form only", (
            f"Form only: the target solves {pass_1:.0%} of these tasks as it is, and {formed.right:.0%} if it is shown "
            f"the form of an answer. A line about the form may be all that the skill needs."
        )
    last = formed or plain
    if not pass_any and not last.right and last.unusable >= LOST:
        why = "cut off" if last.cut_off > last.unparsable else "not an answer"
        fix = "raise models.target_max_tokens, or use another target" if why == "cut off" else "use another target"
        shown = ", also with the form of the answer shown" if formed else ""
        return "this target cannot", (
            f"This target cannot do the tasks: it solves none of them, and {last.unusable:.0%} of its replies are {why}"
            f"{shown}; {fix}."
        )
    if not pass_any:
        return "train", (
            "Train: the target gives answers in the right form but solves none of these tasks, so it lacks knowledge. "
            "A skill can add only knowledge that the training tasks show."
        )
    best = f", and {pass_any:.0%} if the best of {samples} samples counts" if pass_any > pass_1 else ""
    return "train", f"Train: the target solves {pass_1:.0%} of these tasks{best}; a skill may teach the rest."
