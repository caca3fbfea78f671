"""`report.html`: one self-contained file that tells what a run gave, and why."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from skillopt.report.console import gate_line, result_lines
from skillopt.report.plots import line_plot
from skillopt.report.text import printable, ranged, score
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json, read_text, write_atomic

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
td.n { font-variant-numeric: tabular-nums; } .big { font-size: 1.6rem; margin: .5rem 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid #8884; border-radius: 6px; padding: 1rem; }
svg { width: 100%; height: auto; } .accept { color: #15803d; } .reject { color: #b91c1c; }
"""


def write_report(run: RunDirectory) -> None:
    """Plots and report.html from the run's own files; works for unfinished runs, too."""
    history = read_json(run.history) if run.history.exists() else []
    summary = read_json(run.summary)
    config = read_json(run.config_json)
    plots = make_plots(history, summary)
    for name, svg in plots.items():
        write_atomic(run.plots / f"{name}.svg", svg)
    write_atomic(run.report, _page(summary, history, config, plots, read_text(run.best_skill)))


def make_plots(history: list[dict[str, Any]], summary: dict[str, Any]) -> dict[str, str]:
    kept = [(0.0, float(summary["initial"]["val"]))]
    marks = []
    for record in history:
        evidence = record["evidence"]
        current = evidence["after"] if record["verdict"] == "accept" else evidence["before"]
        kept.append((record["step"], current))
        if record["verdict"] != "skipped":
            colour = "#16a34a" if record["verdict"] == "accept" else "#dc2626"
            marks.append((float(record["step"]), float(evidence["at_most"]), colour))
    length = [(0.0, float(summary["initial"]["tokens"])), *((r["step"], float(r["skill_tokens"])) for r in history)]
    rate = [(r["step"], float(r["learning_rate"]["used"])) for r in history]
    return {
        "validation_score": line_plot("Validation score (green: accepted, red: rejected)", kept, marks=marks),
        "skill_length": line_plot("Skill length in tokens", length),
        "learning_rate": line_plot("Learning rate in edits a step", rate),
    }


def _page(
    summary: dict[str, Any], history: list[dict[str, Any]], config: dict[str, Any], plots: dict[str, str], skill: str
) -> str:
    initial, best = summary["initial"], summary["best"]
    title = f"{summary['benchmark']}: {score(initial['val'])} → {score(best['val'])}"
    zero_shot = (
        f"Initial skill: {initial['kind']}, {initial['tokens']} tokens, zero-shot validation {score(initial['val'])}"
    )
    notes = [
        f"{key.removeprefix('notes.')}: {value}" for key, value in config.items() if key.startswith("notes.") and value
    ]
    facts = [zero_shot, *_baselines(summary), *result_lines(summary), *notes]
    aside = [f"{item}: {why}" for item, why in summary["set_aside"].items()]
    status = summary["status"] + (f" ({summary['stop_reason']})" if summary["stop_reason"] else "")
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{_text(summary['benchmark'])}, seed {summary['seed']}</h1>",
            f'<p class="big">Validation {score(initial["val"])} → <b>{score(best["val"])}</b>, '
            f"test {score(initial['test'])} → <b>{score(best['test'])}</b></p><p>Status: {_text(status)}</p>",
            f"<p>95 % intervals: {_text(_intervals(summary))}</p>",
            _list(facts),
            *plots.values(),
            "<h2>Steps</h2>",
            _steps(history),
            "<h2>Persistent failures</h2>",
            _list(summary["persistent_failures"]) or "<p>None.</p>",
            "<h2>Items set aside by the endpoint</h2>" + _list(aside) if aside else "",
            "<h2>Best skill</h2>",
            f"<pre>{_text(skill)}</pre></body></html>",
        ]
    )


def _intervals(summary: dict[str, Any]) -> str:
    rows = [(split, name) for split in ("val", "test") for name in ("initial", "best")]
    return ", ".join(
        f"{split} {name} {ranged(summary[name][split], summary[name].get(f'{split}_interval'))}" for split, name in rows
    )


def _baselines(summary: dict[str, Any]) -> list[str]:
    lines = []
    for name, row in summary["baselines"].items():
        always = f" (always “{row['answer']}”)" if "answer" in row else ""
        scores = (f"{split} {ranged(row[split], row[f'{split}_interval'])}" for split in ("val", "test"))
        lines.append(f"Baseline, {name.replace('_', ' ')}{always}: {', '.join(scores)}")
    return lines


def _steps(history: list[dict[str, Any]]) -> str:
    rows = []
    for record in history:
        edits = record["edits"]
        flow = " → ".join(str(edits[k]) for k in ("proposed", "selected", "applied", "accepted"))
        details = "".join(f"<li>{_text(_edit_line(edit))}</li>" for edit in record["applied"])
        rows.append(
            f'<tr><td class="n">{record["step"]}</td><td class="n">{score(record["train_score"])}</td>'
            f'<td class="{_text(record["verdict"])}">{_text(gate_line(record["evidence"]))}</td>'
            f'<td class="n">{record["learning_rate"]["used"]:.1f}</td><td class="n">{flow}</td>'
            f"<td><details><summary>{edits['applied']} edits</summary><ul>{details}</ul></details></td></tr>"
        )
    head = "<tr><th>step<th>train<th>gate<th>rate<th>proposed → selected → applied → accepted<th>edits</tr>"
    return f'<div class="wide"><table>{head}{"".join(rows)}</table></div>'


def _edit_line(edit: dict[str, Any]) -> str:
    cited = ", ".join(edit["trajectory_ids"][:5])
    return f"{edit['op']} {edit['section']}: {edit['text'] or edit['anchor']} (from {cited})"


def _list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _text(value: object) -> str:
    return escape(printable(str(value)))
