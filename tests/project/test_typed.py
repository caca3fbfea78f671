"""What a user reads is typed: no mapping from text to anything in the packages that show results."""

from __future__ import annotations

import ast

import pytest

from support import REPO

PACKAGES = ("skillopt/view", "skillopt_webui", "skillopt_mcp")
MAPPINGS = {"dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "defaultdict"}
ANYTHING = {"Any", "object"}


def untyped(source: str) -> list[int]:
    """Lines with `dict[str, Any]` or its like: in an annotation, an alias, or text that is an annotation."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
            if _name(node.value) in MAPPINGS and _name(node.slice.elts[1]) in ANYTHING:
                lines.append(node.lineno)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            lines += [node.lineno] * (text.startswith(tuple(MAPPINGS)) and text.endswith((", Any]", ", object]")))
    return lines


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_mapping_to_anything(package: str) -> None:
    files = sorted((REPO / "src" / package).rglob("*.py"))
    assert files
    lines = [f"{path.relative_to(REPO)}:{line}" for path in files for line in untyped(path.read_text())]
    assert lines == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(x: dict[str, Any]) -> None: ...",
        "Row = dict[str, object]",
        "def f() -> list[Mapping[str, Any]]: ...",
        "x: typing.Mapping[str, typing.Any] = {}",
        "def f(x: 'dict[str, Any]') -> None: ...",
    ],
)
def test_the_rule_sees_each_form(source: str) -> None:
    assert untyped(source)


def test_the_rule_allows_typed_mappings() -> None:
    assert untyped("x: dict[str, JsonValue] = {}\ny: dict[str, int] = {}\nz: tuple[str, Any] = ('', 1)") == []
