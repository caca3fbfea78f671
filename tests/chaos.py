"""Chaos: real trainings in real processes, killed, cut off from power and from their server, until they end.

    .venv/bin/python tests/chaos.py --kills 200 --power-cuts 40 --server-deaths 10

Whatever happened, each run must end with the same files as one that nothing happened to (telemetry aside), and no reply
that had been received is asked for again. Prints what was done and in which stages; fails at the first difference.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from skillopt.record.damage import find_damage
from skillopt.record.directory import RunDirectory
from skillopt.record.files import read_json
from skillopt.sim.model import SimOptions
from skillopt.sim.server import SimServer
from support import REPO, differing, essence, only_run, over_http, sim_server, train_sim

SHORT = ("train.num_epochs=2", "env.options={rules: 8, train: 12, val: 10, test: 10}", "train.batch_size=6")
WEATHER = SimOptions(duds=0.35, latency=0.01, optimizer_latency=0.03, jitter=1)
WORKERS = 4
WIDTH = 2 * WORKERS
"""Target and optimizer calls that can be in flight when a process dies."""
HUNG = 3600
"""Seconds after which a process is taken for hung."""

TRACKED = """
import os, sys
real, log = os.fsync, open(os.environ["CHAOS_SYNCED"], "a")
def fsync(handle):
    real(handle)
    stat = os.fstat(handle)
    log.write(f"{stat.st_ino} {stat.st_size}\\n"); log.flush()
os.fsync = fsync
from skillopt.cli import main
main(sys.argv[1:])
"""
"""A training that notes how much of each file has been made durable."""


@dataclass
class Chaos:
    """What has been done to runs so far."""

    folder: Path
    draw: random.Random
    done: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    """Calls that were asked for again, in flight when a process died."""

    def arguments(self, seed: int, out: Path, url: str) -> list[str]:
        places = [f"env.output_root={out}", f"train.seed={seed}", f"hardware.workers={WORKERS}"]
        return [*SHORT, *places, f"gradient.analyst_workers={WORKERS}", *over_http(url)]

    def start(self, arguments: list[str], synced: Path | None = None) -> subprocess.Popen[bytes]:
        runner = ["-c", TRACKED] if synced else ["-m", "skillopt.cli"]
        command = [sys.executable, *runner, "train", "--config", "configs/sim/default.yaml", *arguments]
        env = {**os.environ, "CHAOS_SYNCED": str(synced or "")}
        return subprocess.Popen(command, cwd=REPO, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def calm(self, seed: int, url: str) -> RunDirectory:
        out = self.folder / f"calm-{seed}"
        arguments = [a for a in self.arguments(seed, out, url) if not a.startswith("env.output_root")]
        return RunDirectory(train_sim(out, *arguments).path)

    def stop_somewhere(self, process: subprocess.Popen[bytes], out: Path, how: signal.Signals, more: int) -> bool:
        """Send a signal once the run has told so many more bytes of events; False if it ended before."""
        goal = _told(out) + more
        while process.poll() is None:
            if _told(out) >= goal:
                time.sleep(self.draw.random() * 0.04)
                process.send_signal(how)
                _, errors = process.communicate(timeout=HUNG)
                assert how == signal.SIGKILL or process.returncode in {0, 130}, errors.decode()
                self.done[how.name] += 1
                self.stages[_stage(out)] += 1
                return True
            time.sleep(0.002)
        assert process.returncode == 0, process.communicate()[1].decode()
        return False

    def end(self, arguments: list[str], out: Path, calm: RunDirectory) -> None:
        """Let the run go on to its end; nothing may tell it from the calm one."""
        for _ in range(5):
            process = self.start(arguments)
            _, errors = process.communicate(timeout=HUNG)
            if process.returncode not in {2, 3} or b"damaged" in errors:  # a server that was down may be up again
                break
        assert process.returncode == 0, errors.decode()
        run = only_run(out)
        assert differing(essence(calm), essence(run)) == [], (out, differing(essence(calm), essence(run)))
        assert find_damage(run) == [], out
        assert read_json(run.summary)["best"]["test"] == read_json(calm.summary)["best"]["test"]
        self.done["runs"] += 1

    def kills(self, wanted: int, a_run: int = 20) -> None:
        """SIGKILL mostly, SIGTERM and Ctrl-C now and then, spread over runs of several seeds."""
        made, seed = 0, 0
        while made < wanted:
            seed += 1
            with sim_server(WEATHER) as (server, url):
                calm = self.calm(seed, url)
                whole = _told(calm.root.parent.parent)
                server.requests.clear()
                out = self.folder / f"kills-{seed}"
                arguments, here = self.arguments(seed, out, url), 0
                while made < wanted and here < a_run:
                    how = self.draw.choice([signal.SIGKILL] * 8 + [signal.SIGTERM, signal.SIGINT])
                    more = self.draw.randint(0, max(1, whole // min(12, a_run)))
                    if not self.stop_somewhere(self.start(arguments), out, how, more):
                        break
                    made, here = made + 1, here + 1
                self.end(arguments, out, calm)
            again = sum(count - 1 for count in server.requests.values())
            assert again <= here * WIDTH, f"{again} calls repeated by {here} stops"
            self.repeated += again

    def power_cuts(self, wanted: int) -> None:
        """SIGKILL, and every file loses some of what had not been made durable."""
        for number in range(1, wanted + 1):
            with sim_server(WEATHER) as (_, url):
                calm = self.calm(100 + number, url)
                out, synced = self.folder / f"power-{number}", self.folder / f"synced-{number}"
                arguments = self.arguments(100 + number, out, url)
                for _ in range(3):
                    more = self.draw.randint(0, max(1, _told(calm.root.parent.parent) // 3))
                    if not self.stop_somewhere(self.start(arguments, synced), out, signal.SIGKILL, more):
                        break
                    self.cut_power(out, synced)
                self.end(arguments, out, calm)

    def cut_power(self, out: Path, synced: Path) -> None:
        rows = [line.split() for line in synced.read_text().splitlines()] if synced.exists() else []
        durable = {int(inode): int(size) for inode, size in rows}
        for path in sorted(out.rglob("*")):
            if not path.is_file() or path.name in {"journal.sqlite", "run.lock"}:
                continue  # SQLite writes its main file only together with a sync
            if path.name.endswith("-shm"):  # shared memory, which is gone with the power
                path.unlink()
                continue
            stat = path.stat()
            whole = _wal_size(path) if path.name.endswith("-wal") else stat.st_size
            safe = min(whole, durable.get(stat.st_ino, 0))
            if path.name.endswith("-wal"):
                safe = whole if _checkpointed(path) else 0
            if whole > safe:
                os.truncate(path, self.draw.randint(safe, whole))
                self.done["files cut"] += 1
        self.done["power cuts"] += 1

    def server_deaths(self, wanted: int) -> None:
        """The server goes away in the middle and comes back on the same port; the run waits, or is started again."""
        for number in range(1, wanted + 1):
            seed = 200 + number
            with sim_server(WEATHER) as (_, url):
                calm = self.calm(seed, url)
            out = self.folder / f"server-{number}"
            asyncio.run(self._with_dying_server(seed, out))
            with sim_server(WEATHER) as (_, url):
                self.end(self.arguments(seed, out, url), out, calm)

    async def _with_dying_server(self, seed: int, out: Path) -> None:
        server = SimServer(WEATHER, "")
        runner, port = await server.start()
        process = self.start(self.arguments(seed, out, f"http://127.0.0.1:{port}/v1"))
        after = self.draw.randint(5, 60)
        while server.requests.total() < after and process.poll() is None:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        await runner.cleanup()
        await asyncio.sleep(self.draw.random() * 1.5)
        runner, _ = await server.start(port)
        _, errors = await asyncio.to_thread(process.communicate, timeout=HUNG)
        await runner.cleanup()
        assert process.returncode in {0, 2, 3}, errors.decode()
        self.done["server deaths"] += 1


def _checkpointed(wal: Path) -> bool:
    """Has SQLite begun to move the log into the main file? It made the log durable before that."""
    return wal.with_name("journal.sqlite").stat().st_mtime_ns > wal.stat().st_mtime_ns


def _wal_size(wal: Path) -> int:
    """The bytes of SQLite's log that count: what stands behind them is left from before the last checkpoint."""
    data = wal.read_bytes()
    frame, size = 24 + int.from_bytes(data[8:12]), 32
    while data[size + 8 : size + 16] == data[16:24] and size + frame <= len(data):
        size += frame
    return size if len(data) >= 32 else len(data)


def _told(out: Path) -> int:
    logs = list(out.glob("sim/*/events.jsonl"))
    return logs[0].stat().st_size if logs else 0


def _stage(out: Path) -> str:
    """The last event before the end."""
    logs = list(out.glob("sim/*/events.jsonl"))
    lines = logs[0].read_bytes().splitlines() if logs else []
    kinds = [line.split(b'"kind": "')[1].split(b'"')[0].decode() for line in lines if b'"kind": "' in line]
    return kinds[-1] if kinds else "start"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--power-cuts", type=int, default=40)
    parser.add_argument("--server-deaths", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chaos = Chaos(Path(folder), random.Random(given.seed))
        for work, wanted in (
            (chaos.kills, given.kills),
            (chaos.power_cuts, given.power_cuts),
            (chaos.server_deaths, given.server_deaths),
        ):
            work(wanted)
            print("done so far:", dict(chaos.done), flush=True)
    print("last event before a stop:", dict(chaos.stages.most_common()))
    print(f"every run ended as the calm one; {chaos.repeated} calls in flight at a kill were asked for again")


if __name__ == "__main__":
    main()
