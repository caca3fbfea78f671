"""The one table of items: a run's versions, a step's batch and gate, an evaluation, a comparison, a check.

A table is `{columns: [name…], rows: […]}`. A row has the item, split, type, cause, task, expected answer, the newest
output, and `scores`: one for each column, None where it was not measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from skillopt.envs.base import SPLITS
from skillopt.report.failures import named_causes
from skillopt.report.traces import traces_in
from skillopt.run.directory import RunDirectory
from skillopt.run.files import read_json
from skillopt.run.measured import Measurement, measurements, value, versions_by_hash
from skillopt_webui.files import Cache
from skillopt_webui.places import NotThereError

Row = dict[str, Any]
_cache = Cache(8)
"""Tables of large runs take a second to make."""
_SHORT = 200
_HEAD = re.compile(rb'\{"id": ("(?:[^"\\]|\\.)*"), "item_id": ("(?:[^"\\]|\\.)*")')
"""How a stored trajectory begins: its ids without parsing the rest."""
NO_SKILL = "no skill"


def run_items(run: RunDirectory) -> dict[str, Any]:
    """Every item that was measured, by version of the skill. The test split is there once it was read."""
    found: dict[str, Any] | None = _cache.get("items", run.summary, lambda _: _run_items(run))
    return found or {"columns": [], "rows": []}


def _run_items(run: RunDirectory) -> dict[str, Any]:
    known = versions_by_hash(run)
    all_measured = list(measurements(run))
    columns = {f"v{version}": version for version in sorted(set(known.values()))}
    bare = [m for m in all_measured if m.trajectories.stem.endswith("no_skill") and m.skill_hash not in known]
    names = [*([NO_SKILL] if bare else []), *columns]
    place = {skill_hash: names.index(f"v{version}") for skill_hash, version in known.items()}
    place |= {m.skill_hash: 0 for m in bare}
    seen, split_of = _means(all_measured, place, len(names))
    texts = _texts(all_measured, known, set(seen))
    causes = _causes(run)
    rows = [_row(item, split_of[item], means, texts.get(item), causes.get(item, "")) for item, means in seen.items()]
    return {"columns": names, "rows": sorted(rows, key=_worst_first)}


def _means(
    all_measured: Sequence[Measurement], place: Mapping[str, int], width: int
) -> tuple[dict[str, list[float | None]], dict[str, str]]:
    """Each item's mean score by column, and its split."""
    means: dict[str, list[float | None]] = {}
    split_of: dict[str, str] = {}
    repeated: dict[tuple[str, int], list[float]] = {}  # rare: a list for every cell would take most of the time
    for measured in all_measured:
        if measured.skill_hash not in place:
            continue
        column = place[measured.skill_hash]
        for item, (_, score) in measured.items.items():
            own = means.get(item)
            if own is None:
                own = means[item] = [None] * width
            split_of[item] = measured.split
            if (first := own[column]) is None:
                own[column] = float(score)
            else:
                repeated.setdefault((item, column), [first]).append(score)
    for (item, column), scores in repeated.items():
        means[item][column] = fmean(scores)
    return means, split_of


def _row(item: str, split: str, scores: Sequence[float | None], trace: Mapping[str, Any] | None, cause: str) -> Row:
    trace = trace or {}
    return {
        "item": item,
        "split": split,
        "type": trace.get("type", ""),
        "cause": cause,
        "input": short(trace.get("input", "")),
        "output": short(trace.get("output", trace.get("error", ""))),
        "expected": short(" or ".join(map(str, trace.get("answers", ())))),
        "feedback": short((trace.get("score") or {}).get("feedback", "")),
        "scores": [None if score is None else round(score, 6) for score in scores],
    }


def _worst_first(row: Row) -> tuple[str, float, str]:
    known = [score for score in row["scores"] if score is not None]
    return row["split"], fmean(known) if known else -1.0, row["item"]


def short(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 60]} … {text[-50:]}"


def _texts(all_measured: Sequence[Measurement], known: Mapping[str, int], wanted: set[str]) -> dict[str, Any]:
    """The newest trajectory of each item under a version. Files are read from the newest until nothing is missing."""
    order = sorted(
        (m for m in all_measured if m.skill_hash in known), key=lambda m: (known[m.skill_hash], m.kind), reverse=True
    )
    found: dict[str, Any] = {}
    read: set[Path] = set()
    for measured in order:
        missing = wanted - found.keys()
        if measured.trajectories in read or not missing.intersection(measured.items):
            continue
        read.add(measured.trajectories)
        for trace in traces_in(measured.trajectories):
            if trace["item_id"] in missing and trace.get("skill_hash") in known:
                found[trace["item_id"]] = trace
    return found


def _causes(run: RunDirectory) -> dict[str, str]:
    """For training items the cause that analysts named most often."""
    item_of = {}
    for path in sorted(run.steps.glob("step_*/trajectories.jsonl")):
        with path.open("rb") as file:
            for line in file:
                if ids := _HEAD.match(line):
                    item_of[json.loads(ids[1])] = json.loads(ids[2])
    return named_causes(run, item_of)


def trace_row(trace: Mapping[str, Any], split: str, metric: str = "hard") -> Row:
    """The row of one trajectory, with its id."""
    scores = [value(trace["score"], metric) if trace.get("score") else None]
    return _row(trace["item_id"], split, scores, trace, "") | {"id": trace["id"]}


def step_tables(run: RunDirectory, number: int) -> dict[str, Any]:
    """A step's batch, and its gate before and after."""
    folder = run.step(number)
    metric = str(read_json(run.config_json).get("evaluation.metric", "hard"))
    batch = [trace_row(trace, "train", metric) for trace in traces_in(folder / "trajectories.jsonl")]
    gate = read_json(folder / "gate.json")
    texts = {trace["item_id"]: trace for trace in traces_in(folder / "gate_trajectories.jsonl")}
    rows = [
        _row(row["item_id"], "val", [row["before"], row["after"]], texts.get(row["item_id"]), "")
        for row in gate["evidence"]
    ]
    rows.sort(key=lambda row: (-abs(row["scores"][1] - row["scores"][0]), row["item"]))
    return {"batch": {"columns": ["score"], "rows": batch}, "gate": {"columns": ["before", "after"], "rows": rows}}


def cell(run: RunDirectory, item: str, version: int) -> dict[str, Any]:
    """The trajectory behind a score of the table: of the skill itself, wherever it was measured."""
    hashes = {own for own, number in versions_by_hash(run).items() if number == version}
    tried = [m for m in measurements(run) if m.skill_hash in hashes and item in m.items]
    if not tried:
        raise NotThereError(f"'{item}' was not measured under version {version}")
    for measured in sorted(tried, key=lambda m: m.kind == "batch"):
        for trace in traces_in(measured.trajectories, item):
            if trace["item_id"] == item and trace.get("skill_hash") in hashes:
                return trace | {"version": version}
    raise NotThereError(f"of '{item}' under version {version} only the score was kept")


def bare_cell(run: RunDirectory, item: str, split: str) -> dict[str, Any]:
    """The trajectory of the target without a skill, at the end of the training."""
    if split in SPLITS:
        for trace in traces_in(run.evaluations / f"{split}_no_skill.jsonl", item):
            if trace["item_id"] == item:
                return trace | {"version": None}
    raise NotThereError(f"of '{item}' without a skill only the score was kept")


def search(files: Iterable[Path], wanted: str) -> list[str]:
    """Items with a trajectory that contains the text: in the task, an output, the expected answer or the feedback."""
    needle = wanted.casefold()
    plain = json.dumps(needle, ensure_ascii=False)[1:-1]
    found: set[str] = set()
    for path in files:
        with path.open(encoding="utf-8") as file:
            for line in file:
                if plain not in line.casefold():
                    continue
                trace = json.loads(line)
                score = trace.get("score") or {}
                texts = (trace.get("input", ""), trace.get("output", ""), *trace.get("answers", ()), trace["item_id"])
                if any(needle in str(text).casefold() for text in (*texts, score.get("feedback", ""))):
                    found.add(trace["item_id"])
    return sorted(found)


def measured_items(folder: Path, result: Mapping[str, Any]) -> dict[str, Any]:
    """The table of an evaluation (one column), a comparison or a check (two)."""
    names = _sides(result)
    metric = str(result.get("metric", "hard"))
    seen: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for trace in traces_in(folder / "trajectories.jsonl"):
        seen.setdefault(trace["item_id"], {}).setdefault(_side(trace["id"], names), []).append(trace)
    rows = []
    for item, by_side in seen.items():
        own = [by_side.get(side, []) for side in names]
        scores = [fmean(value(t["score"], metric) for t in traces) if traces else None for traces in own]
        newest = next((traces[-1] for traces in reversed(own) if traces), None)
        row = _row(item, str(result.get("split", "")), scores, newest, "")
        rows.append(row | {"outputs": [short(traces[-1]["output"]) if traces else "" for traces in own]})
    return {"columns": list(names.values()), "rows": sorted(rows, key=_worst_first)}


def _sides(result: Mapping[str, Any]) -> dict[str, str]:
    """How the ids of a side begin, and its name."""
    if "lists" in result:
        return {"compare-a": "left", "compare-b": "right"}
    return {"base": "base", "skill": "skill"} if "base" in result else {"eval": "score"}


def _side(trace_id: str, names: Mapping[str, str]) -> str:
    return next((side for side in names if side in trace_id), "")


def measured_cell(folder: Path, result: Mapping[str, Any], item: str, column: int) -> dict[str, Any]:
    names = list(_sides(result))
    side = names[column] if column < len(names) else names[-1]
    found = [t for t in traces_in(folder / "trajectories.jsonl", item) if t["item_id"] == item]
    own = [trace for trace in found if _side(trace["id"], dict.fromkeys(names, "")) == side] or found
    if not own:
        raise NotThereError(f"no trajectory of '{item}'")
    return own[-1] | {"version": None}
