"""Makes the tables of docs/results.md: a row for each set, target, optimizer and method, with all seeds together.

An item's score is its mean over the seeds, and intervals are over items. Comparisons are paired: they use the same
items, and the seeds that both methods have.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from statistics import fmean

from skillopt.record.files import write_atomic
from skillopt.statistics import gain_interval, interval, permutation_p, seeds_interval

from .cells import METHODS, OPTIMIZERS, TARGETS, WITHOUT, Cell, baseline_of
from .fresh import read_fresh
from .mechanisms import NOTHING
from .result import CellResult, Outcomes, mean
from .sets import SETS

MEASURED, COMPARED, MECHANISM, FAILED, FRESH = "measured", "compared", "mechanisms", "failed", "fresh"
Group = tuple[str, str, str, str]
"""The cells of one row: set, target, optimizer, method."""
HEADING = (
    "| set | target | optimizer | method | test, each seed | test | over initial | over no skill | rollouts "
    "| requests | tokens, k | minutes |"
)
AGAINST = "| set | target | optimizer | against | seeds | ours | the other | difference | p |"
MORE = "| set | target | fresh items | ours, each seed | gepa, each seed | ours | gepa | difference | p over runs |"
LOST = "| set | target | without | test, each seed | test | difference | p | rollouts | requests |"


def tables(results: Iterable[CellResult]) -> dict[str, str]:
    """Return the text of each block of docs/results.md."""
    found = sorted(results, key=_order)
    done = [result for result in found if not result.error and result.cell.method != "baseline"]
    none = {result.cell: result for result in found if result.cell.method == "baseline" and not result.error}
    groups: dict[Group, list[CellResult]] = defaultdict(list)
    for result in done:
        cell = result.cell
        groups[cell.set, cell.target, cell.optimizer, cell.method].append(result)
    whole = {group: own for group, own in groups.items() if group[3] not in WITHOUT}
    rows = [_row(group, own, none) for group, own in whole.items()]
    failed = [result for result in found if result.error]
    return {
        FRESH: _fresh(),
        MEASURED: _table(HEADING, rows) if rows else "No cell is finished yet.",
        COMPARED: _compared(whole),
        MECHANISM: _mechanisms(groups),
        FAILED: "\n".join(f"- `{r.cell.name}` failed: {_line(r.error)}" for r in failed) or "No cell failed.",
    }


def _row(group: Group, own: list[CellResult], none: dict[Cell, CellResult]) -> str:
    after, before = _items(own, "best"), _items(own, "initial")
    base = none.get(baseline_of(own[0].cell))
    bare = base.test["no_skill"] if base else _items(own, "no_skill")
    seeds = ", ".join(f"{r.score():.2f}" for r in own)
    tokens = [[r.tokens.get(role) for r in own] for role in ("target", "optimizer")]
    figures = [
        seeds,
        f"**{_share(after)}**",
        _gain(before, after),
        _gain(bare, after) if bare else "–",
        _mean(own, lambda r: r.rollouts),
        _mean(own, lambda r: r.requests, ".1f"),
        " + ".join("–" if None in t else f"{fmean(n or 0 for n in t) / 1000:.0f}" for t in tokens),
        _mean(own, lambda r: r.minutes),
    ]
    return f"| {' | '.join([*group, *figures])} |"


def _fresh() -> str:
    """Return the table of the cells' skills on fresh items, with all seeds of SkillOpt and of gepa."""
    rows, found = [], read_fresh()
    for (name, target, method), ours in found.items():
        theirs = found.get((name, target, "gepa"), {})
        if method != "ours" or not theirs:
            continue
        runs = [[mean(own[seed]) for seed in sorted(own)] for own in (ours, theirs)]
        items = sorted(next(iter(ours.values())))
        gap = [fmean(o[i] for o in ours.values()) - fmean(t[i] for t in theirs.values()) for i in items]
        seeds = (", ".join(f"{score:.2f}" for score in own) for own in runs)
        means = (f"{fmean(own):.2f}" for own in runs)
        figures = [
            *seeds,
            *means,
            f"{fmean(gap):+.2f} {_range(gain_interval(gap), sign=True)}",
            _p(runs_p([tuple(runs)])),
        ]
        rows.append(f"| {' | '.join([name, target, str(len(items)), *figures])} |")
    return _table(MORE, rows) if rows else "No skill has been measured on fresh items."


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two methods on one set and target, over the seeds that both methods have."""

    set: str
    target: str
    runs: tuple[list[float], list[float]]
    """The test scores of each method's runs."""
    scores: tuple[float, float]
    rollouts: tuple[float, float]
    requests: tuple[float, float]


def _compared(groups: dict[Group, list[CellResult]]) -> str:
    rows: list[str] = []
    pairs: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for (name, target, optimizer, method), theirs in groups.items():
        own, other = _shared_seeds(groups.get((name, target, optimizer, "ours"), []), theirs)
        if not own or method == "ours":
            continue
        (p, gap), pair = _paired(own, other)
        seeds = ", ".join(str(r.cell.seed) for r in own)
        scores = f"{pair.scores[0]:.2f} | {pair.scores[1]:.2f}"
        rows.append(f"| {name} | {target} | {optimizer} | {method} | {seeds} | {scores} | {gap} | {p} |")
        pairs[optimizer, method].append(pair)
    if not rows:
        return "No two methods have been measured on the same cells yet."
    means = [line for (optimizer, rival), own in pairs.items() for line in _means(optimizer, rival, own)]
    return "\n".join([_table(AGAINST, rows), "", *means])


def _mechanisms(groups: dict[Group, list[CellResult]]) -> str:
    """Return the table of trainings without one mechanism, compared with whole trainings of the same seeds."""
    rows: list[str] = []
    for (name, target, optimizer, method), whole in groups.items():
        if method != "ours":
            continue
        off = [(said, groups.get((name, target, optimizer, other), [])) for other, said in WITHOUT.items()]
        pairs = [(said, *_shared_seeds(own, whole)) for said, own in off]
        lines = [_without(said, own, same) for said, own, same in pairs if own]
        rows += [_without(NOTHING.said, whole, []), *lines] if lines else []
    return _table(LOST, rows) if rows else "No mechanism was switched off yet."


def _without(said: str, own: Sequence[CellResult], whole: Sequence[CellResult]) -> str:
    (p, gap), _ = _paired(own, whole) if whole else (("", ""), None)
    seeds = ", ".join(f"{r.score():.2f}" for r in own)
    figures = [seeds, _share(_items(own, "best")), gap, p, _mean(own, lambda r: r.rollouts)]
    figures += [_mean(own, lambda r: r.requests, ".1f")]
    return f"| {own[0].cell.set} | {own[0].cell.target} | {said} | {' | '.join(figures)} |"


def _shared_seeds(a: Sequence[CellResult], b: Sequence[CellResult]) -> tuple[list[CellResult], list[CellResult]]:
    both = {r.cell.seed for r in a} & {r.cell.seed for r in b}
    return [r for r in a if r.cell.seed in both], [r for r in b if r.cell.seed in both]


def _paired(own: Sequence[CellResult], other: Sequence[CellResult]) -> tuple[tuple[str, str], Pair]:
    """Compare two methods: return p and the difference as text, and the figures for the means over sets."""
    a, b = _items(own, "best"), _items(other, "best")
    shared = sorted(a.keys() & b.keys())
    samples = [([r.test["best"][i] for r in other], [r.test["best"][i] for r in own]) for i in shared]
    better, worse = permutation_p(samples), permutation_p([(y, x) for x, y in samples])
    gap = [a[i] - b[i] for i in shared]
    pair = Pair(
        set=own[0].cell.set,
        target=own[0].cell.target,
        runs=([mean(r.test["best"]) for r in own], [mean(r.test["best"]) for r in other]),
        scores=(fmean(a.values()), fmean(b.values())),
        rollouts=(fmean(r.rollouts for r in own), fmean(r.rollouts for r in other)),
        requests=(fmean(r.requests for r in own), fmean(r.requests for r in other)),
    )
    p = min(1.0, 2 * min(better, worse))
    return (_p(p), f"{fmean(gap):+.2f} {_range(gain_interval(gap), sign=True)}"), pair


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _means(optimizer: str, rival: str, pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield lines with means: over all sets of a target, and over both local targets on the sets that both have."""
    targets = {
        target: [pair for pair in pairs if pair.target == target] for target in dict.fromkeys(p.target for p in pairs)
    }
    for target, own in targets.items():
        if len(own) > 1:
            yield _mean_line(f"{len(own)} sets, {target}", optimizer, rival, own)
    local = {target: own for target, own in targets.items() if target != "mail"}
    shared = set.intersection(*({pair.set for pair in own} for own in local.values())) if local else set()
    if len(local) > 1 and len(shared) > 1:
        over = [pair for own in local.values() for pair in own if pair.set in shared]
        yield _mean_line(f"{len(shared)} sets, {' and '.join(local)}", optimizer, rival, over)


def _mean_line(over: str, optimizer: str, rival: str, pairs: Sequence[Pair]) -> str:
    gap = [ours - theirs for ours, theirs in (pair.scores for pair in pairs)]
    wide = seeds_interval(gap) if len(gap) > 2 else None
    said = [
        f"{who} {fmean(p.scores[i] for p in pairs):.2f} after {fmean(p.rollouts[i] for p in pairs):.0f} rollouts and "
        f"{fmean(p.requests[i] for p in pairs):.1f} requests"
        for i, who in enumerate(("ours", rival))
    ]
    end = f" {_range(wide, sign=True)} over sets" if wide else ""
    end += f", p {_p(runs_p([pair.runs for pair in pairs]))} over runs"
    return f"- Mean over {over} ({optimizer}): {said[0]}, {said[1]}; difference {fmean(gap):+.2f}{end}."


def runs_p(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """Return the two-sided p value: the chance that runs of two equally good methods differ at least as much.

    A permutation test: the runs of each pair are assigned to the two methods in every possible way. Each pair adds the
    difference of its means.
    """
    reach, observed = {0.0: 1.0}, 0.0
    for ours, theirs in pairs:
        values = [*ours, *theirs]
        gaps = [_gap(values, set(deal)) for deal in combinations(range(len(values)), len(ours))]
        observed += _gap(values, set(range(len(ours))))
        summed: dict[float, float] = defaultdict(float)
        for (total, p), gap in product(reach.items(), gaps):
            summed[round(total + gap, 6)] += p / len(gaps)
        reach = summed
    return min(1.0, math.fsum(p for total, p in reach.items() if abs(total) >= abs(observed) - 1e-5))


def _gap(values: Sequence[float], ours: set[int]) -> float:
    return fmean(v for i, v in enumerate(values) if i in ours) - fmean(v for i, v in enumerate(values) if i not in ours)


def _items(own: Sequence[CellResult], which: str) -> Outcomes:
    """Return each item's mean score over the seeds; empty if any seed has no such measurement."""
    if any(not r.test.get(which) for r in own):
        return {}
    shared = set.intersection(*(set(r.test[which]) for r in own))
    return {item: fmean(r.test[which][item] for r in own) for item in sorted(shared)}


def _share(items: Outcomes) -> str:
    return f"{mean(items):.2f} {_range(interval(list(items.values())))}"


def _gain(before: Outcomes, after: Outcomes) -> str:
    gap = [after[item] - before[item] for item in sorted(before.keys() & after.keys())]
    return f"{fmean(gap):+.2f} {_range(gain_interval(gap), sign=True)}" if gap else "–"


def _range(found: tuple[float, float] | None, *, sign: bool = False) -> str:
    if found is None:
        return ""
    low, high = (f"{end:+.2f}" if sign else f"{end:.2f}" for end in found)
    return f"[{low} to {high}]" if sign else f"[{low}–{high}]"


def _mean(own: Sequence[CellResult], value: Callable[[CellResult], float], form: str = ".0f") -> str:
    return f"{fmean(value(r) for r in own):{form}}"


def _table(heading: str, rows: Iterable[str]) -> str:
    return "\n".join([heading, "|---" * (heading.count("|") - 1) + "|", *rows])


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")[:300]


def _order(result: CellResult) -> tuple[int, ...]:
    cell = result.cell
    known = ((cell.set, SETS), (cell.target, TARGETS), (cell.optimizer, OPTIMIZERS), (cell.method, METHODS))
    return (*(list(names).index(name) if name in names else len(names) for name, names in known), cell.seed)


def fill(page: Path, blocks: dict[str, str]) -> None:
    """Put each block between its markers in the page. Other text stays."""
    text = page.read_text(encoding="utf-8")
    for name, block in blocks.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"{page}: the markers {begin} and {end} are missing")
        text = f"{before}{begin}\n{block}\n{end}{after}"
    write_atomic(page, text)
