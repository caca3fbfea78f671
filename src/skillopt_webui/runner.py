"""Runs one `skillopt` command in a separate process, which continues if the server ends.

The process holds the lock of the command's folder. Before the process ends, it writes the command's exit code into this
folder. So even a server that is started later knows how the command ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

from skillopt.cli import main as skillopt
from skillopt.record.files import write_json


def main() -> None:
    code = 1
    try:
        skillopt(sys.argv[2:])
    except SystemExit as exited:
        code = exited.code if isinstance(exited.code, int) else int(bool(exited.code))
    finally:
        write_json(Path(sys.argv[1]) / "exit.json", {"code": code})
    sys.exit(code)


if __name__ == "__main__":
    main()
