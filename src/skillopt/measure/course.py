"""The verdict on a training: whether the best skill is better on held-out tasks, and if not, what happened instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skillopt.envs.base import Score
from skillopt.envs.splits import how_to_enlarge
from skillopt.measure.verdict import (
    Gain,
    Verdict,
    counted,
    more_tasks,
    not_above_majority,
    paired,
    say,
    spent_in,
    too_few,
)
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json

FEW = 20
"""Fewer validation tasks than this show only large gains."""


@dataclass(frozen=True, kw_only=True)
class Course:
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
    settings: Mapping[str, Any] = field(default_factory=dict)
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
        tried = f"{self.candidates} candidate{'' if self.candidates == 1 else 's'}"
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


def learn_more(settings: Mapping[str, Any], history: Sequence[Mapping[str, Any]] = ()) -> str:
    """What is most likely to make the skill better: longer training while it still improves, else better edits."""
    if history and improved(history[-1]):
        epochs = 2 * int(settings.get("train.num_epochs", 1))
        return f"a longer training (train.num_epochs={epochs}), since the last step still improved the skill"
    if tuple(settings.get("gradient.analysts", ())) == ("exemplar",):
        return "an optimizer model (gradient.analysts=[llm] with --optimizer_model)"
    return "a stronger optimizer model"


def improved(record: Mapping[str, Any]) -> bool:
    """Did this step, or the guidance at the end of its epoch, give a new version?"""
    guidance = record.get("epoch_end", {}).get("slow_update", {})
    return bool(record["verdict"] == "accept" or guidance.get("decision") == "accept")


def course_of(
    summary: Mapping[str, Any], history: Sequence[Mapping[str, Any]], settings: Mapping[str, Any] | None = None
) -> Course:
    """From a run's own files."""
    unusable: dict[str, int] = {}
    for record in history:
        edits = record["edits"]
        for kind, count in (*edits["dropped"].items(), *edits["skipped"].items()):
            unusable[kind] = unusable.get(kind, 0) + count
    steps = summary["steps"]
    return Course(
        steps=steps["run"],
        rejected=steps["rejected"],
        indecisive=steps["indecisive"],
        proposed=summary["edits"]["proposed"],
        unusable=dict(sorted(unusable.items(), key=lambda pair: (-pair[1], pair[0]))),
        lost=[said for record in history for said in record["edits"].get("lost_replies", ())],
        initial_val=summary["initial"]["val"],
        val_tasks=history[0]["evidence"]["items"] if history else 0,
        all_trained=bool(history) and all(record["train_score"] > 1 - 1e-9 for record in history),
        settings=settings or {},
    )


def training_verdict(
    summary: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
    gains: Mapping[str, Gain],
    settings: Mapping[str, Any],
) -> Verdict:
    """`gains` by split, as far as they are measured; `settings` are the run's config, flat."""
    spent, best = spent_in([summary]), summary["best"]
    held_out, val = gains.get("test"), gains.get("val")
    if summary["status"] != "finished" or held_out is None:
        why = f" ({summary['stop_reason']})" if summary["stop_reason"] else ""
        so_far = f"so far {val}; the held-out tasks are not measured yet" if val else "nothing is measured yet"
        return say("not finished", f"{so_far}{why}", spent=spent)
    note = not_above_majority(held_out.after, summary["baselines"].get("majority"), "test")
    if best["version"] == 0:
        because, advice = course_of(summary, history, settings).reason()
        unchanged = f"the skill is unchanged ({held_out.after:.2f} on {counted(held_out.tasks, 'test')})"
        return say("no better", unchanged, because=because, note=note, advice=advice, spent=spent)
    because = advice = ""
    if held_out.word == "cannot tell":
        because = too_few(held_out)
        rises = bool(history) and improved(history[-1])
        more = more_tasks(held_out, how_to_enlarge(settings, "test"))
        advice = learn_more(settings, history) if rises else more
    elif held_out.word != "better":
        because = "what helped on the validation tasks does not help on these"
        advice = "more training and validation tasks, so that what fits only a few of them is not accepted"
    if note:  # more tasks would only confirm that the skill is of no use yet
        advice = learn_more(settings, history)
    return say(held_out.word, str(held_out), because=because, note=note, advice=advice, spent=spent)


def verdict_of(run: RunDirectory, summary: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> str:
    """The sentence of a run's summary; for a run of an earlier version, the one that it would have."""
    if "verdict" in summary:
        return str(summary["verdict"])
    return training_verdict(summary, history, gains_of(run, summary), read_json(run.config_json)).text


def gains_of(run: RunDirectory, summary: Mapping[str, Any]) -> dict[str, Gain]:
    """By split: as the summary has them; for a run of an earlier version, from its measurements."""
    if "gain" in summary:
        return {split: Gain(**row) for split, row in summary["gain"].items()}
    metric = str(read_json(run.config_json).get("evaluation.metric", "hard"))
    found = {"test": paired(scores_of(run, "test_initial", metric), scores_of(run, "test_best", metric))}
    if summary["best"]["version"] == 0:
        found["test"] = paired(scores_of(run, "test_initial", metric), scores_of(run, "test_initial", metric))
    initial, best = summary["initial"]["val"], summary["best"]["val"]
    items = len(scores_of(run, "val_initial", metric))
    found["val"] = Gain(before=initial, after=best, tasks=items, split="val") if items else None
    return {split: gain for split, gain in found.items() if gain is not None}


def scores_of(run: RunDirectory, name: str, metric: str) -> dict[str, float]:
    """A measurement of a run, by item; empty where it has none of that name."""
    path = run.evaluations / f"{name}.json"
    rows = read_json(path)["items"] if path.exists() else {}
    return {item: Score(**row).value(metric) for item, row in rows.items()}
