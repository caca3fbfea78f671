"""The commands letters and answer, for a run whose optimizer or judge is a handoff."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skillopt.cli.app import app, say

if TYPE_CHECKING:
    from skillopt.models.handoff import Box
    from skillopt.models.handoff.status import LettersStatus

LettersArgument = Annotated[
    Path, typer.Argument(help="A run's folder, a folder of runs (then its newest run), or a folder of letters.")
]


@app.command()
def letters(
    run: LettersArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until a letter is open, or the run has ended.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, help="The maximum number of seconds to wait with --wait.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: status, reason and open letters.")
    ] = False,
) -> None:
    """List the open letters of a run whose optimizer is a handoff."""
    import json

    from skillopt.models.handoff.status import letter_status, wait_for_letter

    found = wait_for_letter(run, timeout) if wait else letter_status(run)
    if as_json:
        print(json.dumps(found))
        return
    say(*_lines(found))


@app.command()
def answer(
    run: LettersArgument,
    number: Annotated[int, typer.Argument(min=1, help="The letter's number.")],
    file: Annotated[str, typer.Argument(help="The file with the reply; - (the default) is standard input.")] = "-",
) -> None:
    """Check the reply to a letter and hand it in. If the reply does not fit the letter, the exit code is 2 and the
    letter stays open."""
    from skillopt.models.handoff import box_of
    from skillopt.training.requests.answers import hand_in

    box = box_of(run)
    box.letter(number)
    letter = hand_in(box, number, _data(file))
    say(f"Accepted: {letter.reply} ({_left(box)})")


def _data(file: str) -> bytes:
    """Return the reply as bytes. If it is much too long to be used, read only its beginning."""
    from skillopt.errors import UserError
    from skillopt.models.handoff.box import LONGEST_REPLY

    if file == "-":
        return sys.stdin.buffer.read(LONGEST_REPLY * 64)
    path = Path(file)
    if not path.is_file():
        raise UserError(f"{file}: no such file; give the file with the reply, or '-' for standard input")
    with path.open("rb") as opened:
        return opened.read(LONGEST_REPLY * 64)


def _left(box: Box) -> str:
    left = len(box.open_letters())
    return f"{left} more open" if left else "no other letter is open"


def _lines(found: LettersStatus) -> list[str]:
    reason = f" ({found['reason']})" if found["reason"] else ""
    lines = [f"Run {found['run']}: {found['status']}{reason}"]
    for letter in found["letters"]:
        lines.append(f"  {letter['number']}  {letter['stage']}  {letter['page']}")
        if letter["problem"]:
            lines.append(f"     the last reply did not fit: see {letter['page'].removesuffix('.md')}.problem.md")
    if not found["letters"]:
        lines.append("No letter is open.")
    else:
        lines.append(f"Read a letter, then: skillopt answer {found['run']} NUMBER FILE")
        if found["status"] not in {"running", "unknown"}:
            lines.append(
                "No process is working on this run: when all letters are answered, run the same training command again."
            )
    return lines
