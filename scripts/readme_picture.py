"""Draw the picture of README, docs/images/learned.svg, from a finished run: python scripts/readme_picture.py RUN

The picture shows the first lines of the difference between the initial and the best skill. Below them are the test
scores and the cost, as the run recorded them.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from skillopt.provider_table import provider_of
from skillopt.record.run import Run
from skillopt.view.skill_diff import DiffLine, diff_skills

IMAGE = Path(__file__).resolve().parent.parent / "docs" / "images" / "learned.svg"
LINES, COLUMNS = 19, 98
WIDTH, LINE_HEIGHT, TOP = 860, 21, 46
STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de } .bar { fill: #f6f8fa } text { fill: #1f2328; font: 13.5px ui-monospace, \
SFMono-Regular, Menlo, Consolas, monospace; white-space: pre } .added { fill: #dafbe1 } .removed { fill: #ffebe9 }
  .quiet { fill: #59636e } .score { font: 600 24px system-ui, sans-serif } .small { font: 14px system-ui, sans-serif }
  @media (prefers-color-scheme: dark) { .page { fill: #0d1117; stroke: #3d444d } .bar { fill: #151b23 }
    text { fill: #f0f6fc } .added { fill: #12361f } .removed { fill: #47211f } .quiet { fill: #9198a1 } }
"""


def main() -> None:
    run = Run.open(sys.argv[1])
    summary = run.summary
    if not summary or summary.best.test is None or summary.initial.test is None:
        sys.exit(f"{sys.argv[1]}: the run has no test scores yet; let it finish first")
    before, after = run.skill(0), run.best_skill
    lines = diff_skills(before, after)
    shown = [line for line in lines if line.text][:LINES]
    rest = sum(1 for line in lines if line.text) - len(shown)
    height = TOP + LINE_HEIGHT * (len(shown) + 1) + 92
    tasks = len(run.evaluations["test_best"].items)
    models = run.config.models
    called = [models.target_model, *([models.optimizer_model] if summary.calls.optimizer else [])]
    is_local = all(provider_of(name).is_local for name in called)
    paid = [dollars for dollars in (summary.cost_usd.target, summary.cost_usd.optimizer) if dollars]
    cost = "local model, no API cost" if is_local else f"${sum(paid):.2f}"
    calls = summary.calls.target + summary.calls.optimizer
    parts = [
        f'<rect class="page" x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="8"/>',
        f'<text class="quiet" x="20" y="28">best_skill.md: {summary.initial.tokens} → {summary.best.tokens} tokens'
        "</text>",
        *(row(number, line) for number, line in enumerate(shown)),
        text(len(shown), f"  … and {rest} more lines", "quiet"),
        f'<text class="score" x="20" y="{height - 46}">{summary.initial.test:.2f} → {summary.best.test:.2f} '
        f"on {tasks} held-out tasks</text>",
        f'<text class="small quiet" x="20" y="{height - 20}">{calls} calls, {summary.seconds:.0f} s of training, '
        f"{cost}</text>",
    ]
    title = f"The trained skill: {summary.initial.test:.2f} to {summary.best.test:.2f} on {tasks} held-out tasks"
    IMAGE.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">'
        f"<title>{title}</title><style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n",
        encoding="utf-8",
    )


def row(number: int, line: DiffLine) -> str:
    top = TOP + LINE_HEIGHT * number
    band = f'<rect class="{line.kind}" x="2" y="{top}" width="{WIDTH - 4}" height="{LINE_HEIGHT}"/>'
    return (band if line.kind in {"added", "removed"} else "") + text(number, f"{line.mark} {line.text}")


def text(number: int, content: str, kind: str = "") -> str:
    y = TOP + LINE_HEIGHT * number + 15
    content = content[:COLUMNS] + ("…" if len(content) > COLUMNS else "")
    return f'<text class="{kind}" x="20" y="{y}">{escape(content)}</text>'


if __name__ == "__main__":
    main()
