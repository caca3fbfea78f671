"""Rules of the source tree that no linter has."""

import ast
import subprocess
import sys
from collections import defaultdict

import pytest

from support import REPO

SRC = REPO / "src"


def test_no_class_name_is_used_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(SRC)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


@pytest.mark.slow
def test_at_most_nine_functions_are_between_fit_and_the_socket() -> None:
    command = [sys.executable, "scripts/count_frames.py", "--most", "9"]
    counted = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert counted.returncode == 0, counted.stdout + counted.stderr
