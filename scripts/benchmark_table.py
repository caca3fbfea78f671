"""Fill the table of difficulty, runtime, calls and cost in docs/benchmarks.md, as `skillopt plan` estimates them.

python scripts/benchmark_table.py            # write the table
python scripts/benchmark_table.py --check    # exit code 1 if the table is out of date; a test runs this
"""

from __future__ import annotations

import sys
from pathlib import Path

from skillopt.config import Config
from skillopt.preflight.plan import plan_published
from skillopt.record.base import ROLES
from skillopt.record.files import write_atomic
from skillopt.record.forecast import total
from skillopt.training.initial import initial_of
from skillopt.view.plan_lines import likely
from skillopt.view.text import dollars, duration
from skillopt_benchmarks.published import SETS

REPO = Path(__file__).resolve().parents[1]
PAGE = REPO / "docs" / "benchmarks.md"
BEGIN, END = "<!-- estimates -->\n", "<!-- end of estimates -->"
HEAD = ("name", "difficulty", "steps", "runtime", "target calls", "optimizer calls", "cost")


def table() -> str:
    rows = [HEAD, ("---",) * len(HEAD), *(row(name) for name in SETS)]
    return "".join(f"| {' | '.join(each)} |\n" for each in rows)


def row(name: str) -> tuple[str, ...]:
    config = Config.load(REPO / "configs" / name / "default.yaml")
    plan = plan_published(config, initial_of(config))
    assert plan
    target, optimizer = (likely(plan.calls(role)) for role in ROLES)
    cost = total(each for each in plan.usd.values() if each)
    steps, difficulty = f"{plan.steps}", SETS[name].difficulty
    return name, difficulty, steps, likely(plan.seconds, duration), target, optimizer, likely(cost, dollars)


def filled(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv:
        return int(filled(page) != page)
    write_atomic(PAGE, filled(page))
    return 0


if __name__ == "__main__":
    sys.exit(main())
