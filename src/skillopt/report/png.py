"""The plots as PNG files, for slides and papers, where matplotlib is installed (`pip install 'skillopt[plots]'`)."""

from __future__ import annotations

from typing import Any

from skillopt.report.curves import Curves, curves, guided_tokens
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json

_LOOKS = {
    "accept": {"color": "#15803d", "marker": "o"},
    "reject": {"color": "#c2410c", "marker": "x"},
    "indecisive": {"color": "#b45309", "marker": "d"},
    "guidance": {"color": "#7c3aed", "marker": "D"},
}


def write_pngs(run: RunDirectory) -> bool:
    """progress.png and learning_rate.png next to the SVG files; False if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    run.plots.mkdir(exist_ok=True)
    with run.as_written():
        history = read_json(run.history) if run.history.exists() else []
        summary = read_json(run.summary)
        for name, draw in (("progress", _progress), ("learning_rate", _rate)):
            figure = Figure(figsize=(8, 3.4), layout="constrained")
            draw(figure, curves(history, summary, guided_tokens(run, history)))
            draft = run.plots / f".{name}.tmp"
            figure.savefig(draft, dpi=160, format="png", metadata={"Software": ""})
            draft.replace(run.plots / f"{name}.png")
    return True


def _progress(figure: Any, drawn: Curves) -> None:
    axes = figure.subplots()
    axes.set_xlabel("step")
    axes.set_ylabel("validation score")
    if not drawn.scores:
        return
    beside = axes.twinx()
    beside.fill_between(*zip(*drawn.lengths, strict=True), step="post", color="#dbe4f0")
    beside.set_ylabel("skill tokens")
    beside.set_ylim(0, max(y for _, y in drawn.lengths) * 1.25 or 1)
    axes.set_zorder(beside.get_zorder() + 1)
    axes.patch.set_visible(False)
    axes.step(*zip(*drawn.scores, strict=True), where="post", color="#2563eb", label="validation")
    for kind, look in _LOOKS.items():
        own = [(each.x, each.score) for each in drawn.marks if each.kind == kind]
        if own:
            axes.scatter(*zip(*own, strict=True), s=24, label=kind, zorder=3, **look)
    axes.legend(loc="upper left", frameon=False, fontsize=8)


def _rate(figure: Any, drawn: Curves) -> None:
    axes = figure.subplots()
    axes.set_xlabel("step")
    axes.set_ylabel("learning rate (edits a step)")
    for points, style, color, name in (
        (drawn.scheduled, "--", "#64748b", "scheduled"),
        (drawn.rates, "-", "#2563eb", "used"),
    ):
        axes.plot([x for x, _ in points], [y for _, y in points], style, color=color, label=name)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
