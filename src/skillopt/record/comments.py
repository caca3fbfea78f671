"""People's comments and ratings, in a file next to a run's results. A later training can use them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from skillopt.errors import UserError
from skillopt.record.directory import RunDirectory
from skillopt.record.files import append_jsonl, read_jsonl

LONGEST = 2000


class Comment(BaseModel):
    """A person's comment on one item, or on one line of the skill."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["item", "line"]
    about: str
    """The item's id, or the line's text."""
    split: Literal["", "train", "val", "test"] = ""
    """The item's split. Comments on validation and test items are never shown to an optimizer."""
    rating: Literal["", "good", "bad"] = ""
    text: str = ""
    when: str = ""


def read_comments(path: Path) -> list[Comment]:
    """The newest comment on each item and on each line. A comment with neither rating nor text removes the previous
    comment on the same item or line."""
    newest: dict[tuple[str, str], Comment] = {}
    try:
        comments = [Comment.model_validate(row) for row in read_jsonl(path)]
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or not a comment
        raise UserError(f"{path}: has a line that is not a comment; remove that line") from None
    for comment in comments:
        newest.pop((comment.kind, comment.about), None)
        newest[comment.kind, comment.about] = comment
    return [comment for comment in newest.values() if comment.rating or comment.text]


def add_comment(run: RunDirectory, *, kind: str, about: str, split: str = "", rating: str = "", text: str = "") -> None:
    if len(text) > LONGEST:
        raise UserError(f"the comment is too long; a comment has at most {LONGEST} characters")
    if not about:
        raise UserError("the comment must say which item or line it is about")
    when = datetime.now(UTC).isoformat(timespec="seconds")
    fields = {"kind": kind, "about": about[:LONGEST], "split": split, "rating": rating, "text": text.strip()}
    try:
        comment = Comment.model_validate(fields | {"when": when})
    except ValidationError:
        raise UserError(
            "the comment is not valid: `kind` must be item or line, `rating` must be good, bad or empty, and `split` "
            "must be train, val, test or empty"
        ) from None
    append_jsonl(run.comments, [comment])


def feedback_of(path: Path) -> list[Comment]:
    """The comments that a later training may use: those on lines of the skill and on training items."""
    return [each for each in read_comments(path) if each.kind == "line" or each.split == "train"]
