"""`report.html`: one self-contained file without scripts. It shows the results of a run and the reasons for them."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template, UndefinedError
from markupsafe import Markup

from skillopt.record.directory import RunDirectory
from skillopt.record.files import write_atomic
from skillopt.version import __version__
from skillopt.view import figures
from skillopt.view.blame import by_file, spread, where
from skillopt.view.console import extension_lines, gate_line, validation_change
from skillopt.view.failures import lead
from skillopt.view.markdown import markdown
from skillopt.view.measured_tables import VERDICTS
from skillopt.view.plan_lines import planned_rows
from skillopt.view.run_facts import Facts, cited_ids, lines_lost, read_facts
from skillopt.view.skill_diff import diff_skills
from skillopt.view.svg import cost_plot, package_text, progress_plot, standalone
from skillopt.view.text import clipped, counted, duration, printable, ranged, score
from skillopt.view.traces import result_of

_PARTS = {
    "answers": "Held-out answers, before and after",
    "progress": "Progress",
    "skill": "The skill",
    "changes": "What was accepted, and why",
    "items": "Items and versions",
    "failures": "Persistent failures",
    "steps": "All steps",
    "costs": "Cost and time",
    "run": "The run",
}
_FUNCTIONS = (
    by_file, cited_ids, clipped, cost_plot, counted, diff_skills, duration, extension_lines, gate_line, lead,
    lines_lost, planned_rows, progress_plot, ranged, result_of, score, spread, validation_change, where,
)  # fmt: skip


def write_report(run: RunDirectory) -> Facts:
    """Write report.html, report.md and plots/progress.svg for a run, which may be unfinished. Return the facts in
    them."""
    with run.as_written():
        facts = read_facts(run)
        texts = {
            run.plots / "progress.svg": standalone(progress_plot(facts.history, facts.summary)),
            run.report_md: markdown(facts),
            run.report: page(facts),
        }
    for path, text in texts.items():
        write_atomic(path, text)
    return facts


@cache
def _template() -> Template:
    """The report's template. Compiled once, because this takes longer than rendering."""
    env = Environment(
        loader=PackageLoader("skillopt", "view"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_visible,
        extensions=["jinja2.ext.do"],
        keep_trailing_newline=True,
    )
    env.globals |= {function.__name__: function for function in _FUNCTIONS}
    env.globals |= {"figures": figures, "verdicts": VERDICTS, "version": __version__}
    return env.get_template("report.html.j2")


def page(facts: Facts) -> str:
    style = package_text("report.css") + package_text("plots.css")
    try:
        return _template().render(facts=facts, summary=facts.summary, config=facts.config, parts=_PARTS, style=style)
    except UndefinedError as error:  # the same error as from every other reader of a damaged file
        raise KeyError(str(error)) from error


def _visible(value: object) -> object:
    """A value that is safe to show in the report: characters that move the cursor or hide text are made visible."""
    return value if isinstance(value, Markup) else printable(str(value))
