"""Answers requests about sweeps and replicates: their runs, the settings in which the runs differ, and the winner of
a sweep or the mean of a replicate."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from skillopt.record.base import Interval, Record
from skillopt.record.results import ReplicatedRun, Replication, Sweep, SweepRow
from skillopt.record.run import read_record
from skillopt.view.measured_tables import replicate_lines, sweep_lines
from skillopt_webui.answers import Body, Call, Routes
from skillopt_webui.files import readable
from skillopt_webui.places import inside, plain_name

routes = Routes()


class TrialLine(Record):
    """One run of a sweep or a replicate, or the mean over the runs of a replicate."""

    run: str = ""
    """The run's id; empty if its folder is gone."""
    name: str
    winner: bool = False
    initial_val: float
    best_val: float
    val_interval: Interval | None = None
    best_test: float | None = None
    test_interval: Interval | None = None
    accepted: str = ""
    calls: int | None = None


class Trials(Record):
    id: str
    kind: str
    title: str
    changed: float
    says: list[str]
    """Sentences about the result, as `skillopt sweep` or `skillopt replicate` prints them."""
    rows: list[TrialLine]
    mean: TrialLine | None = None


class TrialsList(Record):
    rows: list[Trials]


@routes.read("/api/trials")
def trials(call: Call[Body]) -> TrialsList:
    """All sweeps and replicates, the newest first."""
    found = [
        one
        for number, root in enumerate(call.settings.outputs)
        for path in (*root.glob("sweeps/*/*/sweep.json"), *root.glob("replicates/*/*/replicate.json"))
        if inside(path, [root]) and (one := readable(partial(_trials, number, root, path)))
    ]
    return TrialsList(rows=sorted(found, key=lambda each: -each.changed))


def _trials(number: int, root: Path, path: Path) -> Trials:
    kind, benchmark, name = path.relative_to(root).parts[:3]
    place = f"{number}/{kind}/{benchmark}/{name}"

    def run_at(written: str) -> str:
        """The id of a trial's run; empty if the run is gone. `written` is the run's path when it was stored. Only its
        last two parts are used, because the output folder may have been moved since then."""
        parts = Path(written).parts[-2:]
        there = len(parts) == 2 and all(map(plain_name, parts)) and root.joinpath(*parts).is_dir()
        return f"{number}/{parts[0]}/{parts[1]}" if there else ""

    changed = path.stat().st_mtime
    if kind == "sweeps":
        swept = read_record(Sweep, path)
        title = f"{benchmark}: sweep of {', '.join(key.rpartition('.')[2] for key in swept.axes)}"
        says = sweep_lines(swept)[:2] if swept.best else [f"{len(swept.rows)} of {swept.planned} trials are done."]
        rows = [_trial(row, run_at(row.run), swept.best) for row in swept.rows]
        return Trials(id=place, kind=kind, title=title, changed=changed, says=says, rows=rows)
    seeds = read_record(Replication, path)
    return Trials(
        id=place,
        kind=kind,
        title=f"{benchmark}: replicate of seeds {', '.join(str(row.seed) for row in seeds.rows)}",
        changed=changed,
        says=[seeds.verdict, *replicate_lines(seeds)],
        rows=[_seed(row, run_at(row.run), seeds.best_seed_by_validation) for row in seeds.rows],
        mean=TrialLine(
            name=f"mean of {len(seeds.rows)} runs",
            initial_val=seeds.mean["initial_val"],
            best_val=seeds.mean["best_val"],
            val_interval=seeds.interval["best_val"],
            best_test=seeds.mean["best_test"],
            test_interval=seeds.interval["best_test"],
        ),
    )


def _trial(row: SweepRow, run: str, best: SweepRow | None) -> TrialLine:
    return TrialLine(
        run=run,
        name=", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in row.values.items()),
        winner=best is not None and row.trial == best.trial,
        initial_val=row.initial_val,
        best_val=row.best_val,
        val_interval=row.val_interval,
        best_test=row.test,
        test_interval=row.test_interval,
        accepted=f"{row.accepted} of {row.steps}",
        calls=row.target_calls + row.optimizer_calls,
    )


def _seed(row: ReplicatedRun, run: str, best: int) -> TrialLine:
    return TrialLine(
        run=run,
        name=f"seed {row.seed}",
        winner=row.seed == best,
        initial_val=row.initial_val,
        best_val=row.best_val,
        val_interval=row.interval.get("best_val"),
        best_test=row.best_test,
        test_interval=row.interval.get("best_test"),
        accepted=str(row.accepted),
        calls=row.target_calls,
    )
