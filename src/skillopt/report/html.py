"""`report.html`: one self-contained file, without a script, that shows the results of a run and the reasons."""

from __future__ import annotations

from collections.abc import Iterator

from skillopt.report import evidence, figures
from skillopt.report.facts import Facts, read_facts
from skillopt.report.markdown import markdown
from skillopt.report.markup import section, tag, text
from skillopt.report.plots import heat_plot, progress_plot, rate_plot
from skillopt.report.svg import standalone, stylesheet
from skillopt.report.text import score
from skillopt.run.directory import RunDirectory
from skillopt.run.files import write_atomic
from skillopt.run.reading import as_written

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_report(run: RunDirectory) -> None:
    """report.html, report.md and plots/*.svg from the run's own files; for unfinished runs, too."""
    with as_written(run):
        facts = read_facts(run)
        texts = {run.plots / f"{name}.svg": standalone(drawing) for name, drawing in make_plots(facts).items()}
        texts |= {run.report_md: markdown(facts), run.report: page(facts)}
    for path, made in texts.items():
        write_atomic(path, made)


def make_plots(facts: Facts, width: float = 960) -> dict[str, str]:
    """The charts by name, as they are in the page and in plots/."""
    return {
        "progress": progress_plot(facts.history, facts.summary, facts.tokens, width),
        "learning_rate": rate_plot(facts.history, facts.summary, width),
        "heat_map": heat_plot(facts.heat.only("val"), "Validation items under each version"),
    }


def page(facts: Facts) -> str:
    summary = facts.summary
    title = f"{summary['benchmark']}: {score(summary['initial']['val'])} → {score(summary['best']['val'])}"
    parts = list(_sections(facts))
    links = "".join(f'<a href="#{anchor}">{text(name)}</a>' for anchor, name, _ in parts)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{text(title)}</title><style>{stylesheet('report.css')}{stylesheet('plots.css')}</style></head>",
            f"<body><main>{figures.header(facts)}{tag('nav', links)}{figures.verdict_part(facts)}",
            *(body for _, _, body in parts),
            "</main></body></html>\n",
        ]
    )


def _sections(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Anchor, name and markup, in the order in which a reader asks."""
    for anchor, name, lead, inner in (
        ("progress", "Progress", "", figures.progress(facts)),
        ("skill", "The skill", evidence.SKILL_LEAD, evidence.skill(facts)),
        ("changes", "What was accepted, and why", evidence.CHANGES_LEAD, evidence.changes(facts)),
        ("items", "Items and versions", figures.HEAT_LEAD, figures.heat(facts)),
        ("failures", "Persistent failures", "", evidence.failures(facts)),
        ("steps", "All steps", "", evidence.steps(facts)),
        ("costs", "What it took", "", figures.costs(facts)),
        ("run", "The run", "", figures.about(facts)),
    ):
        yield anchor, name, section(anchor, name, inner, lead=lead)
