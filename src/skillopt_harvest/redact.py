"""Removes secrets and personal data from a text before the text is stored or sent anywhere."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from skillopt.keys import redact, secrets, without_keys

_HIDDEN = re.compile(
    r"""(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~] | \x1b\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\) | \x1b[ -~]?  # a terminal's colours
      | [\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]
      | (?<=[!-~])[\u00ad\u200b-\u200f\u2060\ufeff]+(?=[!-~])
      | (?<=\S)\\\n(?=\S)                                                               # a shell's line goes on
    """,
    re.VERBOSE,
)
"""Matches invisible characters, which could hide a key. Joiners in writing systems that need them do not match."""
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_SIGNED = re.compile(
    r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]+)?"
    r"|\b(?:[srp]k_(?:live|test)_|whsec_|AGE-SECRET-KEY-1|hvs\.|npm_|pypi-)[\w-]{10,}"
)
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://)[^/\s:@\"']*:[^/\s@\"']+@", re.IGNORECASE)
_NAMED = re.compile(
    r"""((?:(?P<short>pass(?:word|wd|phrase|(?=\\?["']?\s{0,3}[:=]\s{0,12}\S{0,40}\d))|pwd)
         |secret|(?:api|access|private|account|signing|encryption|master)[_-]?key|credentials?|\b_?auth\b
         |token(?!s\b|iz)|authorization)\w{0,20}
         \\?["']?(?:\s{0,3}(?:[:=]|=>)\s{0,12}|\s{1,3}is\s{1,3}(?=\S{6}))\\?["']?(?:bearer\s+|basic\s+)?)
         (?![$<{\[*~])
         (?:(?<=["'])[^"'\\\n]{4,200}(?=\\?["'])
          |[^\s"'\\,;<>]{4}(?(short)|[^\s"'\\,;<>]{2})[^\s"'\\,;<>]*)""",
    re.VERBOSE | re.IGNORECASE,
)
"""Matches a secret after its name, as in `password: hunter2…`. A variable (`$KEY`) or a
placeholder (`<key>`) after the name does not match."""
_COOKIE = re.compile(r"(\bcookie\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?)[^\s\"'\\][^\n\"'\\]{3,}", re.IGNORECASE)
_COMMAND = re.compile(
    r"""(\b(?:login|user)\s+\S{1,100}\s+password\s+                                      # .netrc
      | \s(?:-u|--user)[\s=]\s{0,3}["']?[^\s:"']{1,100}:                                  # curl
      | \b(?:mysql\w{0,10}|mariadb|sshpass|redis-cli|docker\ login)\b[^\n|;&]{0,200}?\s-[ap]\s?)
      (?![$<{*~])[^\s"']{4,}""",
    re.VERBOSE,
)
_NAMES = (
    (_COOKIE, ("cookie",)),
    (_COMMAND, ("password", " -u", "--user", " -p", " -a")),
    (_NAMED, ("pass", "pwd", "secret", "key", "credential", "token", "auth")),
)
"""Patterns, each with a list of words. Every match contains one of these words, so a text without them is not
searched."""
_TOKEN = re.compile(r"[\w.+=-]{20,}", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_RUN = re.compile(r"[A-Za-z0-9]{20,}")
_HEX = re.compile(r"[0-9a-fA-F]{32,}")
_KINDS = (str.isdigit, str.isupper, str.islower)
_MARGIN = 1000
_EMAIL = re.compile(r"[\w.+-]{1,64}(?:@|%40)[\w-]+(?:\.[\w-]+)+")
_HOME = re.compile(
    r"(?:(?:/|%2F)(?:home|Users)(?:/|%2F)|\b[A-Za-z]:[\\/]{1,4}Users[\\/]{1,4})[^/\\%\s\"':,;)]+|(?<![\w/])/root(?=/|\b)"
)
_PROJECT_FOLDER = re.compile(r"(?<=projects/)-(?:home|Users)-[A-Za-z0-9]+")
"""Matches the user's name in the name of a folder of Claude Code. Such a folder is named after the path of a
project."""


PLACEHOLDER = re.compile(r"\[(?:private key|password|key|e-mail)\]")
"""Matches the placeholders that replace removed texts."""


def _is_random(text: str) -> bool:
    """Return True if a part of the text looks like a key: a long hexadecimal number, or letters and digits
    that alternate."""
    runs = _RUN.findall(text)
    changes = (sum(a.isdigit() != b.isdigit() for a, b in pairwise(run)) for run in runs)
    return any(map(_HEX.search, runs)) or any(count >= 4 for count in changes)


class Redactor:
    """Removes secrets from texts, and counts the removed secrets by kind."""

    def __init__(self) -> None:
        self.removed: Counter[str] = Counter()
        self._secrets = secrets()
        self._home = str(Path.home())

    def __call__(self, text: str) -> str:
        shown = text.replace("\n", " ")
        if not (shown.isascii() and shown.isprintable()) or "\\\n" in text:
            text = _HIDDEN.sub("", text.replace("\r", "\n"))
        text = self._replace(_PRIVATE_KEY, text, "private keys", "[private key]")
        cleaned = redact(text, self._secrets)
        self.removed["keys and tokens"] += cleaned != text
        text = self._replace(_URL, cleaned, "passwords in URLs", r"\1[password]@") if "://" in cleaned else cleaned
        text = self._replace(_SIGNED, text, "keys and tokens", "[key]")
        text = without_keys(text, self._key)
        text = _BASE64.sub(lambda match: self._key("") if self._holds_key(match[0]) else match[0], text)
        text = _TOKEN.sub(lambda match: self._key("") if _is_random(match[0]) else match[0], text)
        lower = text.lower()
        for pattern, words in _NAMES:
            if any(word in lower for word in words):
                text = self._replace(pattern, text, "keys and tokens", r"\1[key]")
        text = self._replace(_EMAIL, text, "e-mail addresses", "[e-mail]") if "@" in text or "%40" in text else text
        text = self._replace(_PROJECT_FOLDER, text, "home paths", "-home")
        if len(self._home) > 3:
            self.removed["home paths"] += text.count(self._home)
            text = text.replace(self._home, "~")
        named = "home" in lower or "users" in lower or "/root" in lower
        return self._replace(_HOME, text, "home paths", "~") if named else text

    def shortened(self, text: str, most: int) -> str:
        """Return the first `most` characters of the redacted text. A very long text is first cut to a bit more than
        twice `most`. This cut may leave half a key at the end, which redaction does not recognise; so the last
        characters are dropped after redaction."""
        if len(text) <= 2 * most + _MARGIN:
            return self(text)[:most]
        return self(text[: 2 * most + _MARGIN])[:-_MARGIN][:most]

    def joined(self, pieces: Sequence[str], most: int) -> str:
        """Join the pieces of one text as lines. A key that begins in one piece and ends in the next is removed."""
        text = pieces[0] if pieces else ""
        for piece in pieces[1:]:
            before, after = text.split(" ")[-1][-300:], piece.split(" ")[0][:300]
            parts = before.splitlines()[-1:], after.splitlines()[:1]
            left, right = ("".join(part) for part in parts)
            if left and right and self.is_secret(left + right, left, right):
                text = f"{text.removesuffix(left)}{self._key('')}\n{piece.removeprefix(right)}"
            else:
                text = f"{text}\n{piece}"
        return self.shortened(text.strip(), most)

    def is_secret(self, text: str, *parts: str) -> bool:
        """Return True if redaction removes anything from the text. With `parts` (the text cut into
        parts), return True if redaction of the whole text removes more than redaction of the parts one by one."""
        counted = self.removed.copy()
        more = self(text) != ("".join(map(self, parts)) if parts else text)
        self.removed = counted
        return more

    def _holds_key(self, text: str) -> bool:
        """Return True if the text is a secret key of AWS, or if it contains a key in base64 form."""
        if len(text) == 40 and not {"_", "-"} & {*text} and all(any(map(is_kind, text)) for is_kind in _KINDS):
            return True
        for part in {text, *text.split("/")}:
            try:
                whole = part.rstrip("=").translate(str.maketrans("-_", "+/"))
                decoded = base64.b64decode(f"{whole}{'=' * (-len(whole) % 4)}", validate=True).decode()
            except ValueError:
                continue
            if len(decoded) >= 12 and decoded.replace("\n", "").isprintable() and self.is_secret(decoded):
                return True
        return False

    def _key(self, _: str) -> str:
        self.removed["keys and tokens"] += 1
        return "[key]"

    def _replace(self, pattern: re.Pattern[str], text: str, kind: str, replacement: str) -> str:
        text, count = pattern.subn(replacement, text)
        self.removed[kind] += count
        return text

    def lines(self) -> list[str]:
        """Return one sentence that says what was removed; an empty list if nothing was removed."""
        counts = [f"{count} {kind}" for kind, count in sorted(self.removed.items()) if count]
        return [f"Removed before anything was stored: {', '.join(counts)}."] if counts else []
