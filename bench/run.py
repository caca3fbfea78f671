"""Run every bench and keep what each prints: python bench/run.py [name …], or `make bench`.

Results go to bench/results/<name>.txt. Figures of time are ratios within one run; docs say which machine they are from.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
BENCHES = {"rulebook": [], "similarity": [], "weather": [], "gate": ["--trials", "100"], "local": []}


def main(names: list[str]) -> int:
    failed = []
    (HERE / "results").mkdir(exist_ok=True)
    for name in names or list(BENCHES):
        if name not in BENCHES:
            print(f"unknown bench '{name}'; known are: {', '.join(BENCHES)}", file=sys.stderr)
            return 2
        print(f"== {name}", flush=True)
        started = time.monotonic()
        command = [sys.executable, str(HERE / f"{name}.py"), *BENCHES[name]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line)
        (HERE / "results" / f"{name}.txt").write_text("".join(lines))
        print(f"== {name}: {'failed' if process.returncode else 'done'} after {time.monotonic() - started:.0f} s\n")
        failed += [name] if process.returncode else []
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
