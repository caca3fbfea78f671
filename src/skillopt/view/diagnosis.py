"""The verdict on a training: whether the best skill is better on held-out tasks, and if not, the reason. For an
unfinished run, the verdict says what has been measured and paid for so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from skillopt.measure.verdict import (
    Sentence,
    always_answering,
    counted,
    figures,
    more_tasks,
    not_above,
    say,
    spent_in,
    too_few,
)
from skillopt.models.budget import total_cost
from skillopt.record.base import ByRole
from skillopt.record.calibration import JudgeStanding
from skillopt.record.costs import Paid, bill, usage
from skillopt.record.forecast import with_current_costs
from skillopt.record.run import Run, Settings
from skillopt.record.step import Evidence, StepRecord
from skillopt.record.summary import Baselines, Summary
from skillopt.tasks.splits import how_to_enlarge
from skillopt.view.figures import dropped
from skillopt.view.text import counted as number_of

FEW = 20
"""If there are fewer validation tasks than this, they show only large gains."""


def why_unchanged(summary: Summary, history: Sequence[StepRecord], settings: Settings) -> tuple[str, str]:
    """The reason why no edit was accepted, and advice."""
    tasks, initial = history[0].evidence.items if history else 0, summary.initial.val or 0.0
    lost = [reason for record in history for reason in record.edits.lost_replies]
    if initial > 1 - 1e-9:
        what = f"the initial skill already solves all {counted(tasks, 'val')}, so no edit can improve the score"
        return what, "harder tasks"
    if not summary.edits.proposed:
        return _nothing_proposed(history, lost)
    if not summary.steps.rejected + summary.steps.indecisive:
        kinds = ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in dropped(history).items())
        edits = f"none of the {number_of(summary.edits.proposed, 'edit')} proposed could be used"
        return f"{edits} ({kinds})" if kinds else edits, "a stronger optimizer model"
    if floored := [evidence.reason for evidence in _measured(history) if evidence.reason.startswith("floor ")]:
        broke = f"{len(floored)} of {_tried(summary)} scored higher but broke a floor"
        return f"{broke} ({floored[0]})", "another limit in evaluation.floors"
    if not initial and not any(step.train_score or step.val_after for step in history):
        why = f"every reply scored 0, with the initial skill and with {_tried(summary)}"
        what = f"{why}; the likely reason is the scorer, or the form of answer that it expects"
        return (
            what,
            "comparing a reply with its expected answer in the report, then a different env.scoring or initial skill",
        )
    return _none_better(summary, tasks, lost, settings)


def _measured(history: Sequence[StepRecord]) -> list[Evidence]:
    """The records of all gates: the gates of the steps, and the gates that decided about guidance."""
    guided = [record.epoch_end.slow_update for record in history if record.epoch_end and record.epoch_end.slow_update]
    return [*(record.evidence for record in history), *(each.evidence for each in guided)]


def _nothing_proposed(history: Sequence[StepRecord], lost: Sequence[str]) -> tuple[str, str]:
    if lost:
        return _lost(lost), "a stronger optimizer model, or gradient.analysts=[brief] for a small one"
    if history and all((step.train_score or 0.0) > 1 - 1e-9 for step in history):
        solved = "the target already solves every training task, so there is no failure to learn from"
        return solved, "training tasks that it fails"
    steps = number_of(len(history), "step")
    return f"no edit was proposed in {steps}", "another optimizer model, or other gradient.analysts"


def _none_better(summary: Summary, tasks: int, lost: Sequence[str], settings: Settings) -> tuple[str, str]:
    tried, val = _tried(summary), counted(tasks, "val")
    how = how_to_enlarge(settings, "val")
    more = f": {how}" if how else ""
    if summary.steps.indecisive:
        which = f"{summary.steps.indecisive} of {tried}" if summary.steps.rejected else f"the {tried}"
        return f"{val} are too few to tell the effect of {which} from chance", f"more validation tasks{more}"
    only = summary.steps.rejected == 1
    none_better = f"{'the only candidate was not' if only else f'none of {tried} was'} better on {val}"
    if tasks < FEW:
        least = f"with so few tasks, a gain below {1 / max(1, tasks):.2f} cannot be seen"
        return f"{none_better}; {least}", f"at least 30 validation tasks{more}"
    replies = f"; {_lost(lost)}" if lost else ""
    return f"{none_better}{replies}", learn_more(settings)


def _tried(summary: Summary) -> str:
    return number_of(summary.steps.rejected + summary.steps.indecisive, "candidate")


def _lost(replies: Sequence[str]) -> str:
    said = f"{number_of(len(replies), 'reply', 'replies')} of the optimizer could not be used"
    return f"{said} (one of them: {replies[0]})"


def learn_more(settings: Settings, history: Sequence[StepRecord] = ()) -> str:
    """The best advice: a longer training if the last step still improved the skill, else a better optimizer."""
    no_llm = settings.get("gradient.analysts") in (["exemplar"], ("exemplar",))
    if _rises(history):
        longer = f"train.num_epochs={2 * int(str(settings.get('train.num_epochs', 1)))}"
        longer += " with an --optimizer_model, which writes the guidance between epochs" if no_llm else ""
        return f"a longer training ({longer}), since the last step still improved the skill"
    if no_llm:
        return "an optimizer model (gradient.analysts=[llm] with --optimizer_model)"
    return "a stronger optimizer model"


def _rises(history: Sequence[StepRecord]) -> bool:
    return bool(history) and improved(history[-1])


def improved(record: StepRecord) -> bool:
    """True if this step, or the guidance after it at the end of an epoch, made a new version."""
    guidance = record.epoch_end and record.epoch_end.slow_update
    return record.verdict == "accept" or bool(guidance and guidance.decision == "accept")


def paid_now(run: Run) -> ByRole[Paid]:
    """The costs in the run's journal at this moment."""
    return usage(run.totals(), lambda total: total_cost(total, run.config.budget.prices))


def current_summary(run: Run) -> Summary | None:
    """A run's summary. If the run is unfinished, the costs are taken from the journal, because a killed run did not
    write them."""
    summary = run.summary
    if summary is None or summary.status == "finished":
        return summary
    current = with_current_costs(summary, bill(paid_now(run), summary.calls.from_journal))
    return with_verdict(current, run.history, run.settings)


def with_verdict(summary: Summary, history: Sequence[StepRecord], settings: Settings) -> Summary:
    """A copy of the summary that contains the verdict as text and as one word. `settings` is the run's flat config."""
    verdict = training_verdict(summary, history, settings)
    text = " ".join(filter(None, (verdict.text, judge_note(summary.judge))))
    return summary.model_copy(update={"verdict": text, "outcome": verdict.word})


def judge_note(judge: JudgeStanding | None) -> str:
    """A sentence that says who graded the answers, and how reliable the grades are."""
    if judge is None:
        return ""
    who = f"Graded by {judge.model}" + (", which also proposed the edits" if judge.is_optimizer else "")
    if judge.calibration != "done":
        known = "was never calibrated" if judge.calibration == "none" else "was calibrated with other settings only"
        return f"{who}; this judge {known} (skillopt judge calibrate)."
    agrees = "" if judge.kappa is None else f", kappa {judge.kappa:.2f} with people"
    biases = f"; it {' and '.join(judge.biases)}" if judge.biases else ""
    return f"{who}{agrees}; {judge.flip_rate or 0:.0%} of repeated judgements disagree on pass or fail{biases}."


def training_verdict(summary: Summary, history: Sequence[StepRecord], settings: Settings) -> Sentence:
    """The verdict with its reasons and advice; `settings` is the run's flat config."""
    spent, best = spent_in([summary]), summary.best
    held_out, val = summary.gain.test, summary.gain.val
    if summary.status == "finished" and held_out is None and val:
        unread = "the test split was not read (evaluation.test is false), and these scores selected the skill"
        note = not_above(val.after, _constants(summary.baselines, "val"))[1]
        return say("measured", f"{figures(val)}; {unread}", note=note, spent=spent)
    if summary.status != "finished" or held_out is None:
        why = f" ({summary.stop_reason})" if summary.stop_reason else ""
        so_far = f"so far {figures(val)}; the held-out tasks are not measured yet" if val else "nothing is measured yet"
        return say("not finished", f"{so_far}{why}", spent=spent)
    than, note = not_above(held_out.after, _constants(summary.baselines, "test"))
    if best.version == 0:
        because, advice = why_unchanged(summary, history, settings)
        unchanged = f"the skill is unchanged ({held_out.after:.2f} on {counted(held_out.tasks, 'test')})"
        note = f"{note} {_unconfirmed(history)}".strip()
        return say("no better", unchanged, because=because, note=note, advice=advice, spent=spent)
    rises = _rises(history) and not summary.stop_reason and best.val != 1
    learn = learn_more(settings, history if rises else ())
    because, advice = "", learn if rises and held_out.word == "better" else ""
    if held_out.word == "cannot tell":
        because = too_few(held_out)
        more = more_tasks(held_out, how_to_enlarge(settings, "test"))
        advice = learn if rises else more
    elif held_out.word != "better":
        because = "what helped on the validation tasks does not help on the held-out tasks"
        advice = "more training and validation tasks: then edits that fit only a few of them are not accepted"
    if note:  # more tasks would only confirm that the skill is of no use yet
        advice = learn
    than, note = (than, "") if held_out.word == "better" else ("", note)
    note = f"{note} {_unconfirmed(history)}".strip()
    return say(held_out.word, figures(held_out), than=than, because=because, note=note, advice=advice, spent=spent)


def _unconfirmed(history: Sequence[StepRecord]) -> str:
    """A sentence about edits that were still pending at the end of the run; empty if there are none."""
    edits = len(history[-1].pending) if history else 0
    which, verb = number_of(edits, "edit"), "was" if edits == 1 else "were"
    return f"{which} {verb} neither accepted nor dropped: decide with `skillopt review`." if edits else ""


def _constants(baselines: Baselines, split: Literal["val", "test"]) -> dict[str, float | None]:
    """The scores of the trivial baselines."""
    always, idle = baselines.majority, baselines.do_nothing
    scores = {always_answering(always.answer): always[split]} if always else {}
    return scores | ({"doing nothing": idle[split]} if idle else {})
