"""Images of tasks: the fields `image` and `images`, for targets that can see.

An image is a file below the folder of the tasks, or a data: URL. Stored trajectories contain only the names of images.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from skillopt.chat_protocol import ContentPart, Message
from skillopt.errors import UserError
from skillopt.tasks.base import Item, image_names

KINDS = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
LARGEST_IMAGE = 10 << 20
MOST_IMAGES = 20
"""The maximum number of images of one task."""
_DATA_URL = re.compile(r"data:(image/[a-z]+);base64,([A-Za-z0-9+/]+={0,2})")
_BEGINNINGS = ((b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


def kind_of(content: bytes) -> str:
    """The media type of an encoded image; empty for other bytes."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begins, kind in _BEGINNINGS if content.startswith(begins)), "")


def safe_file(root: Path, name: str, where: str) -> Path:
    """The path of a file that a row names. The file must be below `root`, so that a data set cannot make SkillOpt read
    any other file."""
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()):
        raise UserError(f"{where}: '{name}' leads out of {root}; it must be a file below {root}")
    if not path.is_file():
        raise UserError(f"{where}: the file '{name}' is not in {root}; put it there, or run `skillopt data prepare`")
    return path


def image_file(root: Path, name: str, where: str) -> Path:
    """The path of an image's file; raises UserError if the image may not be read or sent."""
    if "://" in name or Path(name).is_absolute():
        raise UserError(f"{where}: '{name[:80]}' must be a path relative to {root}; images are not downloaded")
    path = safe_file(root, name, where)
    if path.suffix.lower() not in KINDS:
        raise UserError(f"{where}: '{path.name}' has none of the formats {', '.join(sorted(KINDS))}; convert it")
    if path.stat().st_size > LARGEST_IMAGE:
        size = f"{path.stat().st_size >> 20} MB; at most {LARGEST_IMAGE >> 20} MB are sent"
        raise UserError(f"{where}: '{path.name}' has {size}: make it smaller")
    return path


def with_image_hashes(items: Sequence[Item], root: Path) -> list[Item]:
    """The items, each with a hash of its images. So the hash of the data changes if an image changes. Raises UserError
    for an image that cannot be sent."""
    return [_checked(item, root) if image_names(item) else item for item in items]


def _checked(item: Item, root: Path) -> Item:
    where, names = f"item '{item.id}': image", image_names(item)
    if len(names) > MOST_IMAGES:
        raise UserError(f"{where}: there are {len(names)} images; a task has at most {MOST_IMAGES}")
    hashes = [hashlib.sha256(_content(root, name, where)[1]).hexdigest() for name in names]
    return item.model_copy(update={"image_sha256": " ".join(hashes)})


def _content(root: Path, name: str, where: str) -> tuple[str, bytes]:
    """The media type and the bytes of an image."""
    if not name.startswith("data:"):
        path = image_file(root, name, where)
        return KINDS[path.suffix.lower()], path.read_bytes()
    match = _DATA_URL.fullmatch(name)
    if not match or match[1] not in KINDS.values():
        raise UserError(f"{where}: '{name[:40]}…' must be data:image/png;base64,… (or jpeg, gif, webp)")
    if len(match[2]) * 3 // 4 > LARGEST_IMAGE:
        raise UserError(f"{where}: has more than {LARGEST_IMAGE >> 20} MB: make it smaller")
    try:
        return match[1], base64.b64decode(match[2], validate=True)
    except ValueError as error:
        raise UserError(f"{where}: is not base64 ({error})") from None


def image_parts(item: Item, root: Path) -> list[ContentPart]:
    """An item's images as parts of a message."""
    found = [_content(root, name, f"item '{item.id}': image") for name in image_names(item)]
    urls = [f"data:{kind};base64,{base64.b64encode(content).decode()}" for kind, content in found]
    return [{"type": "image_url", "image_url": {"url": url}} for url in urls]


def named_parts(item: Item) -> list[ContentPart]:
    """The names of an item's images as parts of a message, for stored messages and for analysts."""
    names = (name if not name.startswith("data:") else f"{name[:40]}…" for name in image_names(item))
    return [{"type": "text", "text": f"[image: {name}]"} for name in names]


def without_images(messages: Iterable[Message], item: Item) -> list[Message]:
    """A conversation with the names of the item's images in place of the images."""
    names = named_parts(item)
    talk: list[Message] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list) and any(part.get("type") == "image_url" for part in content):
            texts = [part for part in content if part.get("type") != "image_url"]
            message = {**message, "content": [*names, *texts]}  # noqa: PLW2901 - with names
        talk.append(message)
    return talk


def copy_images(items: Iterable[Item], root: Path, folder: Path) -> None:
    """Copy the images of these items to another task folder. They keep their relative paths."""
    for item in items:
        for name in image_names(item):
            if not name.startswith("data:"):
                path = image_file(root, name, f"item '{item.id}': image")
                target = folder / os.path.normpath(name)
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target)
