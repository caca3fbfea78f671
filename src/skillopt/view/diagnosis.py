"""The verdict on a training: whether the best skill is better on held-out tasks, and if not, what happened instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skillopt.measure.verdict import Sentence, counted, figures, more_tasks, not_above, say, spent_in, too_few
from skillopt.record.run import Settings
from skillopt.record.step import StepRecord
from skillopt.record.summary import Summary
from skillopt.tasks.splits import how_to_enlarge

FEW = 20
"""Fewer validation tasks than this show only large gains."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What happened in the steps of a training."""

    steps: int = 0
    rejected: int = 0
    indecisive: int = 0
    proposed: int = 0
    """Edits."""
    unusable: Mapping[str, int] = field(default_factory=dict)
    """Edits that could not be used, by reason."""
    lost: Sequence[str] = ()
    """Why replies of the optimizer could not be used, one text for each."""
    initial_val: float = 0.0
    val_tasks: int = 0
    all_trained: bool = False
    """The target solved every training task from the beginning."""
    all_zero: bool = False
    """No reply of the whole training scored anything."""
    settings: Settings = field(default_factory=dict)
    """The run's config, flat."""

    @property
    def candidates(self) -> int:
        return self.rejected + self.indecisive

    def reason(self) -> tuple[str, str]:
        """Why nothing was accepted, and what to try."""
        val = counted(self.val_tasks, "val")
        if self.initial_val > 1 - 1e-9:
            return f"the initial skill already solves all {val}, so that no edit can improve the score", "harder tasks"
        if not self.proposed:
            return self._nothing_proposed()
        if not self.candidates:
            kinds = ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in self.unusable.items())
            why = f" ({kinds})" if kinds else ""
            return f"none of the {_edits(self.proposed)} proposed could be used{why}", "a stronger optimizer model"
        return self._none_better(val)

    def _none_better(self, val: str) -> tuple[str, str]:
        tried = f"{self.candidates} candidate{'' if self.candidates == 1 else 's'}"
        if self.all_zero:
            why = f"every reply scored 0, with the initial skill and with {tried}; the scorer or the form that it wants"
            advice = (
                "comparing a reply with its expected answer in the report, then another env.scoring or initial skill"
            )
            return f"{why} is the likely reason", advice
        if self.indecisive:
            which = f"{self.indecisive} of {tried}" if self.rejected else f"the {tried}"
            return f"{val} are too few to tell {which} from chance", self._more("more validation tasks", "val")
        if self.val_tasks < FEW:
            least = f"a gain below {1 / max(1, self.val_tasks):.2f} cannot be seen on so small a set"
            return f"none of {tried} was better on {val}; {least}", self._more("at least 30 validation tasks", "val")
        lost = f"; {self._lost()}" if self.lost else ""
        return f"none of {tried} was better on {val}{lost}", learn_more(self.settings)

    def _more(self, wanted: str, split: str) -> str:
        how = how_to_enlarge(self.settings, split)
        return f"{wanted}: {how}" if how else wanted

    def _nothing_proposed(self) -> tuple[str, str]:
        if self.lost:
            return self._lost(), "a stronger optimizer model, or gradient.analysts=[brief] for a small one"
        if self.all_trained:
            return "the target already solves every training task, so that there is no failure to learn from", (
                "training tasks that it fails"
            )
        steps = f"{self.steps} step{'' if self.steps == 1 else 's'}"
        return f"no edit was proposed in {steps}", "another optimizer model, or other gradient.analysts"

    def _lost(self) -> str:
        number = len(self.lost)
        said = f"{number} repl{'y' if number == 1 else 'ies'} of the optimizer could not be used"
        return f"{said} (one of them: {self.lost[0]})"


def _edits(number: int) -> str:
    return f"{number:,} edit{'' if number == 1 else 's'}"


def learn_more(settings: Settings, history: Sequence[StepRecord] = ()) -> str:
    """What is most likely to make the skill better: longer training while it still improves, else better edits."""
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
    """Did this step, or the guidance at the end of its epoch, give a new version?"""
    guidance = record.epoch_end and record.epoch_end.slow_update
    return record.verdict == "accept" or bool(guidance and guidance.decision == "accept")


def diagnose(summary: Summary, history: Sequence[StepRecord], settings: Settings) -> Diagnosis:
    """From a run's own files."""
    unusable: Counter[str] = Counter()
    for record in history:
        unusable.update(record.edits.dropped)
        unusable.update(record.edits.skipped)
    initial = summary.initial.val or 0.0
    return Diagnosis(
        steps=summary.steps.run,
        rejected=summary.steps.rejected,
        indecisive=summary.steps.indecisive,
        proposed=summary.edits.proposed,
        unusable=dict(sorted(unusable.items(), key=lambda pair: (-pair[1], pair[0]))),
        lost=[reason for record in history for reason in record.edits.lost_replies],
        initial_val=initial,
        val_tasks=history[0].evidence.items if history else 0,
        all_zero=bool(history) and not initial and not any(step.train_score or step.val_after for step in history),
        all_trained=bool(history) and all((step.train_score or 0.0) > 1 - 1e-9 for step in history),
        settings=settings,
    )


def with_verdict(summary: Summary, history: Sequence[StepRecord], settings: Settings) -> Summary:
    """The summary with its sentence; `settings` are the run's config, flat."""
    verdict = training_verdict(summary, history, settings)
    return summary.model_copy(update={"verdict": verdict.text, "outcome": verdict.word})


def training_verdict(summary: Summary, history: Sequence[StepRecord], settings: Settings) -> Sentence:
    """`settings` are the run's config, flat."""
    spent, best = spent_in([summary]), summary.best
    held_out, val = summary.gain.test, summary.gain.val
    if summary.status != "finished" or held_out is None:
        why = f" ({summary.stop_reason})" if summary.stop_reason else ""
        so_far = f"so far {figures(val)}; the held-out tasks are not measured yet" if val else "nothing is measured yet"
        return say("not finished", f"{so_far}{why}", spent=spent)
    always = summary.baselines.majority
    note = not_above(held_out.after, always.answer, always.test) if always else ""
    if best.version == 0:
        because, advice = diagnose(summary, history, settings).reason()
        unchanged = f"the skill is unchanged ({held_out.after:.2f} on {counted(held_out.tasks, 'test')})"
        return say("no better", unchanged, because=because, note=note, advice=advice, spent=spent)
    rises = _rises(history) and not summary.stop_reason and best.val != 1
    learn = learn_more(settings, history if rises else ())
    because, advice = "", learn if rises and held_out.word == "better" else ""
    if held_out.word == "cannot tell":
        because = too_few(held_out)
        more = more_tasks(held_out, how_to_enlarge(settings, "test"))
        advice = learn if rises else more
    elif held_out.word != "better":
        because = "what helped on the validation tasks does not help on these"
        advice = "more training and validation tasks, so that what fits only a few of them is not accepted"
    if note:  # more tasks would only confirm that the skill is of no use yet
        advice = learn
    return say(held_out.word, figures(held_out), because=because, note=note, advice=advice, spent=spent)
