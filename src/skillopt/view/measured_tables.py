"""The terminal output of every measurement: ablations, comparisons, sweeps, probes, calibrations and others."""

from __future__ import annotations

from collections.abc import Iterator

from skillopt.record.calibration import JudgeCalibration
from skillopt.record.probe import Probe, ProbePlan, Replies
from skillopt.record.pruning import Pruning
from skillopt.record.results import AblatedPart, Ablation, Comparison, EvalSummary, Replication, Sweep, Transfer
from skillopt.record.routing import Confusion, Routing
from skillopt.tasks.data import shortened
from skillopt.view.columns import table_lines
from skillopt.view.plan_lines import likely
from skillopt.view.text import chance, clipped, counted, dollars, ranged, score

VERDICTS = {
    "earns": "earns",
    "harmful": "HARMFUL",
    "nothing": "no effect seen",
    "unclear": "not clear",
    "together": "not clear alone",
}
_TEXT = 41
"""The maximum number of characters of a rule's text in a table row."""


def ablation_table(result: Ablation) -> list[str]:
    """A table of the rules that an ablation left out, the most valuable first."""
    rows = []
    for row in result.rows:
        low, high = row.interval or (0.0, 0.0)
        rows.append(
            (
                f"{row.worth:+.2f}",
                f"{low:+.2f} to {high:+.2f}",
                str(row.tokens),
                VERDICTS[row.verdict],
                f"{row.name}: {shortened(row.text, _TEXT)}",
            )
        )
    return table_lines(("worth", "95 %", "tokens", "verdict", result.by), rows, left=(1, 3, 4))


def ablation_lines(result: Ablation) -> Iterator[str]:
    by = result.by
    repeats = f", {result.repeats} samples each" if result.repeats > 1 else ""
    yield (
        f"Version {result.version}: validation score {score(result.score)} with every {by}, on {result.items} items"
        f"{repeats}. Worth: the score with the {by} minus the score without it."
    )
    for verdict, what in (("harmful", "Harmful"), ("nothing", "No effect seen"), ("unclear", "Not clear")):
        rows = [row for row in result.rows if row.verdict == verdict]
        tokens = sum(row.tokens for row in rows)
        names = "; ".join(row.name for row in rows)
        yield f"{what}: {counted(len(rows), by)}" + (f", {counted(tokens, 'token')} ({names})" if rows else "")
    yield from (_group_line(result, group) for group in result.together)
    more = "more --repeats or more validation items" if not result.deterministic else "more validation items"
    yield (
        f"A {by} gets a verdict only if its 95 % interval does not contain 0. To see small effects, use {more}. Of 20 "
        f"{by}s without any effect, about one gets a verdict by chance."
    )
    if result.not_measured:
        yield f"Not measured: {', '.join(result.not_measured)}"
    yield "Nothing was removed: you decide."


def pruning_lines(result: Pruning) -> Iterator[str]:
    """Lines on each shorter skill that was measured, and on the rules that were removed or put back."""
    for number, trial in enumerate(result.trials, 1):
        low, high = trial.difference_interval or (0.0, 0.0)
        yield (
            f"Shorter skill {number}: without {counted(len(trial.removed), 'rule')}, {trial.tokens:,} tokens: "
            f"{trial.verdict}, {trial.score:.2f} against {trial.base:.2f} on {trial.measured} items "
            f"({low:+.2f} to {high:+.2f})"
        )
    for title, names in (("Removed", result.removed), ("Put back", result.put_back)):
        if names:
            yield f"{title}: {'; '.join(names)}"


def routing_table(matrix: Confusion) -> list[str]:
    """The confusion matrix as a table: a row for each expected skill, a column for each loaded skill."""
    return table_lines(("request for \\ loaded", *matrix.names), matrix.table())


def routing_lines(result: Routing) -> Iterator[str]:
    """The requests for which the wrong skill was loaded."""
    wrong = result.confusion.wrong
    for row in wrong[:_LISTED]:
        yield f"{row.loaded}, not {row.expected}: {shortened(row.request, 101)}"
    if len(wrong) > _LISTED:
        yield f"… and {len(wrong) - _LISTED} more; routing.json has them all."


def _group_line(result: Ablation, group: AblatedPart) -> str:
    """A line that says how much the score falls if all rules with the same verdict are left out at once."""
    names, (low, high) = group.names or (), group.interval or (0.0, 0.0)
    parts = counted(len(names), result.by)
    cost = f"{0 - group.worth:+.2f} ({0 - high:+.2f} to {0 - low:+.2f}), {group.tokens} tokens fewer"
    if group.verdict == "earns":
        return f"Matter together: {parts} ({'; '.join(names)}). Without any of them: {cost}{_why(result, group)}"
    chance = "; that may be chance" if group.verdict == "unclear" else ""
    return f"Without any of the {parts} of '{VERDICTS[group.name]}': {cost}{chance}"


def _why(result: Ablation, group: AblatedPart) -> str:
    """Why the score is lower without these rules: one rule explains the whole loss, each rule explains a part of it, or
    some rules say the same."""
    lost = group.worth
    alone = [row for row in result.rows if row.name in (group.names or ())]
    largest = max(alone, key=lambda row: row.worth)
    if largest.worth >= lost - 1e-9:
        return f"; {largest.name} alone explains that ({0 - largest.worth:+.2f} without it)"
    if sum(max(0.0, row.worth) for row in alone) >= lost - 1e-9:
        return "; that is the sum of their single losses"
    return "; that is more than the sum of their single losses, so some may say the same: remove one at a time"


_LISTED = 8
"""The maximum number of items of a list that are shown; comparison.json has them all."""


def evaluation_lines(summary: EvalSummary) -> Iterator[str]:
    """The lines below the verdict of an evaluation."""
    on = f"on {summary.items} {summary.split} items"
    yield f"hard {score(summary.hard)}, soft {score(summary.soft)} {on}"
    if always := summary.majority:
        yield f"Always answering {always.answer!r}: {ranged(always.score, always.interval)}"
    if summary.test_reads is not None:
        yield f"The test split has been read {summary.test_reads} times for this skill's run."


def comparison_table(result: Comparison) -> list[str]:
    """A table of both skills: score, tokens, name and file. For a skill of a run, the file's path shows the run."""
    rows = [
        (ranged(side.score, side.interval), str(side.tokens), side.name, side.path) for side in (result.a, result.b)
    ]
    names = (f"{result.split} score ({result.metric})", "tokens", "skill", "file")
    return table_lines(names, rows, left=(0, 2, 3))


def comparison_lines(result: Comparison) -> list[str]:
    """Lines on the result of the paired test, then on the items that one, both or neither skill solves."""
    a, b = result.a.name, result.b.name
    samples = counted(result.repeats, "sample")
    lines = [
        f"{b} minus {a}: {result.difference:+.3f}; {samples} of each of {result.items} items; paired exact test, "
        f"two-sided: {chance(result.p)}"
    ]
    for ids, title in (
        (result.lists.improved, f"only {b} solves"),
        (result.lists.regressed, f"only {a} solves"),
        (result.lists.both_pass, "both solve"),
        (result.lists.both_fail, "neither solves"),
    ):
        items = [result.names.get(item, item) for item in ids]
        shown = ", ".join(items[:_LISTED]) + (" …" if len(items) > _LISTED else "")
        lines.append(f"{title}: {len(items)}" + (f" ({shown})" if items else ""))
    if result.test_reads is not None:
        lines.append(f"The test split has been read {result.test_reads} times for this skill's run.")
    return lines


def replicate_table(result: Replication) -> list[str]:
    """A row for each seed, then the mean and its interval."""
    names = ("initial_val", "best_val", "initial_test", "best_test")
    rows = [
        (str(row.seed), *(score(row.value(name)) for name in names), str(row.accepted), f"{row.target_calls:,}")
        for row in result.rows
    ]
    rows.append(("mean", *(score(result.mean[name]) for name in names), "", ""))
    bounds = (result.interval[name] for name in names)
    rows.append(("95 %", *(f"{b[0]:.2f}–{b[1]:.2f}" if b else "–" for b in bounds), "", ""))
    return table_lines(("seed", *(name.replace("_", " ") for name in names), "accepted", "calls"), rows)


def replicate_lines(result: Replication) -> list[str]:
    lines = []
    for split, title in (("val", "validation"), ("test", "test")):
        gain, bounds = result.mean[f"gain_{split}"], result.interval[f"gain_{split}"]
        inside = f" [{bounds[0]:+.2f} to {bounds[1]:+.2f}]" if bounds else ""
        share = result.improved[split]
        lines.append(f"Gain on {title}: {gain:+.2f}{inside}; {share:.0%} of {len(result.rows)} seeds improved")
    return [*lines, f"Best seed by validation: {result.best_seed_by_validation}"]


def transfer_table(result: Transfer) -> list[str]:
    rows = [
        (
            row.skill,
            ranged(row.val, row.val_interval),
            ranged(row.test, row.test_interval),
            "" if row.tokens is None else str(row.tokens),
            row.where,
        )
        for row in result.rows
    ]
    return table_lines(("skill", "validation", "test", "tokens", "on"), rows, left=(0, 4))


def sweep_table(result: Sweep) -> list[str]:
    """A row for each trial, the highest validation score first. Only the winner has a test score.

    The column `calls` has the number of the target's calls that a trial paid for; `known` has the number of calls whose
    replies were in the shared journal.
    """
    keys = [key.rpartition(".")[2] for key in result.axes]
    winner, rows = result.winner, []
    for row in sorted(result.rows, key=lambda row: (-row.best_val, row.trial != winner.trial, row.trial)):
        test = ranged(winner.test, winner.test_interval) if row.trial == winner.trial else ""
        rows.append(
            (
                f"{row.trial} ←" if row.trial == winner.trial else str(row.trial),
                *(str(row.values[key]) for key in result.axes),
                ranged(row.best_val, row.val_interval),
                f"{row.accepted} of {row.steps}",
                str(row.tokens),
                str(row.target_calls),
                str(row.from_journal),
                test,
            )
        )
    return table_lines(("trial", *keys, "validation", "accepted", "tokens", "calls", "known", "test"), rows)


def sweep_lines(result: Sweep) -> list[str]:
    best, rows = result.winner, result.rows
    chosen = ", ".join(f"{key}={value}" for key, value in best.values.items())
    ties = sum(row.best_val == best.best_val for row in rows) - 1
    lines = [f"Best by validation, of {len(rows)} trials: {chosen}" + (f" (as good: {ties} others)" if ties else "")]
    lines.append(
        f"Its test score: {ranged(best.test, best.test_interval)} (initial skill {score(best.initial_test)}). "
        "The highest of many validation scores is partly luck; the test score is not."
    )
    return [*lines, f"Run: {best.run}"]


def probe_plan_line(plan: ProbePlan) -> str:
    cost = "unknown" if plan.usd is None else likely(plan.usd, dollars)
    return f"Probe: {plan.calls:,} calls, {likely(plan.tokens)} tokens, {cost} (estimate)"


def probe_lines(result: Probe) -> Iterator[str]:
    """Lines with the result of a probe, then with its evidence."""
    yield result.sentence
    yield f"Target {result.target}; {len(result.items)} training tasks of {result.benchmark}, {result.samples} samples"
    rows = [("pass@1", f"{result.pass_1:.2f}")]
    if result.samples > 1:
        rows.append((f"pass@{result.samples}", f"{result.pass_any:.2f}"))
    if result.with_form:
        rows.append(("form shown", f"{result.with_form.right:.2f}"))
    if result.majority:
        rows.append((f"always {result.majority.answer!r}", f"{result.majority.score:.2f}"))
    yield from table_lines(("", "solved"), rows, left=(0,))
    yield f"Replies: {_unusable(result.plain)}" + (
        f"; with the form shown: {_unusable(result.with_form)}" if result.with_form else ""
    )
    if result.set_aside:
        yield f"Without a score: {', '.join(result.set_aside)} ({list(result.set_aside.values())[-1]})"
    yield f"Paid: {result.paid.calls:,} calls, {result.paid.tokens.total:,} tokens, {dollars(result.paid.usd)}"


def _unusable(replies: Replies) -> str:
    return f"{replies.cut_off:.0%} cut off, {replies.unparsable:.0%} not in the form of an answer"


def calibration_lines(record: JudgeCalibration) -> list[str]:
    length, position = record.length, record.position
    span = f" (95 % interval {length.interval[0]:+.2f} to {length.interval[1]:+.2f})" if length.interval else ""
    lines = [
        f"Pass or fail: the same on {record.agreement:.0%} of {record.items} answers; "
        f"Cohen's kappa {_figure(record.kappa)}",
        f"Grades: Spearman rank correlation {_figure(record.spearman)}; the judge's mean grade minus people's: "
        f"{record.excess:+.2f}",
        f"Length: compared with people, the judge gives the longer half of the answers {length.difference:+.2f} more "
        f"than the shorter half{span}; {_bias(length.shown)}",
    ]
    if position:
        lines.append(
            f"Position: of {position.pairs} pairs, the answer in first position won in both orders {position.first} "
            f"times, the answer in second position {position.second} times (p = {position.p:.3f}); "
            f"{_bias(position.shown)}"
        )
    lines.append(
        f"Noise: {record.flip_rate:.1%} of repeated judgements disagree on pass or fail; the grades of an answer have "
        f"a standard deviation of {record.deviation:.3f} ({record.repeats} judgements per answer)"
    )
    if record.disagreements:
        lines.append("Largest differences from people's grades:")
    for each in record.disagreements:
        lines.append(f"  {each.id}: person {each.person:.2f}, judge {each.judge:.2f}: {clipped(each.reason, 100)}")
    return lines


def _figure(value: float | None) -> str:
    return "unknown: the grades never vary" if value is None else f"{value:.2f}"


def _bias(shown: bool) -> str:
    return "a bias" if shown else "no bias found"
