"""Tables on the terminal: columns are as wide as their content, and nothing is cut, even on a narrow terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich.cells import cell_len

from skillopt.view.text import printable


def table_lines(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: Collection[int] = (0,)) -> list[str]:
    """A table as lines. The columns in `left` are aligned on the left, all others on the right. Put long text into the
    last column: if a line is too long, the terminal wraps this column."""
    shown = [[printable(str(cell)) for cell in row] for row in (head, *rows)]
    widths = [max(cell_len(row[n]) for row in shown) for n in range(len(head))]
    return [_line(row, widths, left) for row in shown]


def _line(row: Sequence[str], widths: Sequence[int], left: Collection[int]) -> str:
    cells = []
    for n, (cell, width) in enumerate(zip(row, widths, strict=True)):
        space = " " * (width - cell_len(cell))
        cells.append(cell + space if n in left else space + cell)
    return "  ".join(cells).rstrip()
