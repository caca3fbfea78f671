"""`report.html`: one self-contained file, without a script, that shows the results of a run and the reasons."""

from __future__ import annotations

from collections.abc import Iterator

from skillopt.report import page_figures, page_reasons
from skillopt.report.markdown import markdown
from skillopt.report.markup import section, tag, text
from skillopt.report.plots import heat_plot, progress_plot, rate_plot
from skillopt.report.run_facts import Facts, read_facts
from skillopt.report.svg import standalone, stylesheet
from skillopt.report.text import score
from skillopt.run.directory import RunDirectory
from skillopt.run.files import write_atomic

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_report(run: RunDirectory) -> None:
    """report.html, report.md and plots/*.svg from the run's own files; for unfinished runs, too."""
    with run.as_written():
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
        "heat_map": heat_plot(facts.heat.only("val").called(facts.names), "Validation items under each version"),
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
            f"<body><main>{page_figures.header(facts)}{tag('nav', links)}{page_figures.verdict_part(facts)}",
            *(body for _, _, body in parts),
            "</main></body></html>\n",
        ]
    )


def _sections(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Anchor, name and markup, in the order in which a reader asks."""
    for anchor, name, lead, inner in (
        ("progress", "Progress", "", page_figures.progress(facts)),
        ("skill", "The skill", page_reasons.SKILL_LEAD, page_reasons.skill(facts)),
        ("changes", "What was accepted, and why", page_reasons.CHANGES_LEAD, page_reasons.changes(facts)),
        ("items", "Items and versions", page_figures.HEAT_LEAD, page_figures.heat(facts)),
        ("failures", "Persistent failures", "", page_reasons.failures(facts)),
        ("steps", "All steps", "", page_reasons.steps(facts)),
        ("costs", "What it took", "", page_figures.costs(facts)),
        ("run", "The run", "", page_figures.about(facts)),
    ):
        yield anchor, name, section(anchor, name, inner, lead=lead)
