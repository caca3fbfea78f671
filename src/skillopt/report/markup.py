"""HTML from values. Whatever comes from models, tasks or files goes through `text`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from skillopt.report.text import printable


def text(value: object) -> str:
    """Any text as text: nothing in it is markup, moves or hides."""
    return escape(printable(str(value)))


def tag(name: str, *inner: str, cls: str = "", **attributes: str) -> str:
    """An element around markup that is ready."""
    known = {"class": cls} if cls else {}
    said = "".join(f' {key}="{escape(value)}"' for key, value in (known | attributes).items())
    return f"<{name}{said}>{''.join(inner)}</{name}>"


def section(anchor: str, title: str, *inner: str, lead: str = "") -> str:
    head = tag("h2", text(title)) + (tag("p", text(lead), cls="lead") if lead else "")
    return tag("section", head, *inner, id=anchor)


def bullets(lines: Iterable[str]) -> str:
    """A list of texts; nothing where there are none."""
    items = "".join(tag("li", text(line)) for line in lines)
    return tag("ul", items) if items else ""


def fold(title: str, *inner: str, opened: bool = False) -> str:
    """A part that can be opened; `title` is markup."""
    return f"<details{' open' if opened else ''}><summary>{title}</summary>{''.join(inner)}</details>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """Cells are markup; the columns in `numbers` are set as figures. Wide tables scroll on their own."""
    top = "".join(f"<th{_number(n, numbers)}>{text(name)}</th>" for n, name in enumerate(head))
    lines = ("".join(f"<td{_number(n, numbers)}>{cell}</td>" for n, cell in enumerate(row)) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return tag("div", f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>", cls="scroll")


def _number(column: int, numbers: Sequence[int]) -> str:
    return ' class="n"' if column in numbers else ""
