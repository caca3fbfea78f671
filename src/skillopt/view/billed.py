"""The summary of a run that is not finished, with the costs of this moment from its journal."""

from __future__ import annotations

from skillopt.models.budget import total_cost
from skillopt.record.base import ByRole
from skillopt.record.costs import Paid, bill, usage
from skillopt.record.forecast import with_current_costs
from skillopt.record.run import Run
from skillopt.record.summary import Summary
from skillopt.view.diagnosis import with_verdict


def paid_now(run: Run) -> ByRole[Paid]:
    """The costs in the run's journal at this moment."""
    return usage(run.totals(), lambda total: total_cost(total, run.config.budget.prices))


def current_summary(run: Run) -> Summary | None:
    """A run's summary. For an unfinished run with the costs from its journal, since a killed run wrote none."""
    summary = run.summary
    if summary is None or summary.status == "finished":
        return summary
    current = with_current_costs(summary, bill(paid_now(run), summary.calls.from_journal))
    return with_verdict(current, run.history, run.settings)
