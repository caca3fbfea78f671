"""Rules of the source tree that no linter has."""

import ast
import subprocess
import sys
from collections import defaultdict

import pytest

from support import REPO

SRC = REPO / "src"
UNTYPED = [f"{kind}[str, {value}]" for kind in ("dict", "Mapping", "MutableMapping") for value in ("Any", "object")]


def test_no_class_name_is_used_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(SRC)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_dicts_of_anything_are_few() -> None:
    """`dict[str, Any]` and its like, and the names that stand for one, wherever they are used."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SRC.rglob("*.py"))}
    modules = {path: ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__") for path in trees}
    aliases = {
        (modules[path], node.targets[0].id)
        for path, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_untyped(node.value)
    }
    uses = []
    for path, tree in trees.items():
        imports = [
            (node.module, name.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        ]
        known = {name for module, name in aliases if (module, name) in imports or module == modules[path]}
        for node in ast.walk(tree):
            used = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in known
            if used or _is_untyped(node):
                uses.append(f"{path.relative_to(SRC)}:{node.lineno}")
    assert len(uses) <= 90, "\n".join(uses)


def _is_untyped(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and ast.unparse(node) in UNTYPED


@pytest.mark.slow
def test_at_most_nine_functions_are_between_fit_and_the_socket() -> None:
    command = [sys.executable, "scripts/count_frames.py", "--most", "9"]
    counted = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert counted.returncode == 0, counted.stdout + counted.stderr
