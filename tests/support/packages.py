"""A skill package with a front matter that must be kept byte for byte."""

from __future__ import annotations

from pathlib import Path

FRONT = (
    "---\r\nname:   house-codes\r\ndescription: >-\r\n  Codes of the house:\r\n  which goes where.\r\n"
    'license: "MIT"\r\nmetadata:\r\n  author: someone  # as it stands\r\n---\r\n'
)
BODY = "# Ticket codes\n\nAnswer with the codes alone, separated by single spaces.\n"


def write_package(folder: Path, front: str = FRONT, body: str = BODY) -> Path:
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_bytes((front + body).encode())
    (folder / "scripts" / "check.py").write_bytes(b"print('x')\r\n\xff\x00")
    (folder / ".hidden").write_text("kept")
    return folder
