"""A judge's calibration, as lines for people."""

from __future__ import annotations

from skillopt.record.calibration import JudgeCalibration
from skillopt.view.text import clipped


def calibration_lines(record: JudgeCalibration) -> list[str]:
    length, position = record.length, record.position
    span = f" (95 % interval {length.interval[0]:+.2f} to {length.interval[1]:+.2f})" if length.interval else ""
    lines = [
        f"Pass or fail: the same on {record.agreement:.0%} of {record.items} answers; "
        f"Cohen's kappa {_number(record.kappa)}",
        f"Grades: Spearman rank correlation {_number(record.spearman)}; the judge's mean is {record.excess:+.2f} from "
        "people's",
        f"Length: {length.difference:+.2f} more for the longer half than for the shorter{span}; {_found(length.shown)}",
    ]
    if position:
        lines.append(
            f"Position: of {position.pairs} pairs, the first position won both orders {position.first} times, the "
            f"second {position.second} times (p = {position.p:.3f}); {_found(position.shown)}"
        )
    lines.append(
        f"Noise: pass or fail flips in {record.flip_rate:.1%} of repeats; grades vary by {record.deviation:.3f} "
        f"(standard deviation, {record.repeats} judgements per answer)"
    )
    if record.disagreements:
        lines.append("Farthest from people:")
    for each in record.disagreements:
        lines.append(f"  {each.id}: person {each.person:.2f}, judge {each.judge:.2f}: {clipped(each.reason, 100)}")
    return lines


def _number(value: float | None) -> str:
    return "unknown: the grades never vary" if value is None else f"{value:.2f}"


def _found(shown: bool) -> str:
    return "a bias" if shown else "no bias found"
