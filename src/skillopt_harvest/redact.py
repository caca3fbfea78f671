"""Secrets and personal data are removed from a text before it is stored or sent anywhere."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from skillopt.keys import redact, secrets, without_keys

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_SIGNED = re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]+)?")
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s:@\"']*:[^/\s@\"']+@", re.IGNORECASE)
_NAMED = re.compile(
    r"""((?:pass(?:word|wd|phrase)?|pwd|secret|api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|credentials?
         |(?:access|auth|refresh|id|bearer|session|api)[_-]?token|token|authorization|cookie)\w{0,20}\\?["']?\s{0,3}
         (?:[:=]|=>|\bis\b)\s{0,3}\\?["']?(?:bearer\s+|basic\s+)?)(?![$<{*~])([^\s"'\\,;<>]{6,})""",
    re.VERBOSE | re.IGNORECASE,
)
"""`password: hunter2…`; a variable or a placeholder after the sign stays."""
_NAMES = ("pass", "pwd", "secret", "key", "credential", "token", "authorization", "cookie")
"""Every name of the pattern above holds one of these: a text without them need not be searched."""
_MARGIN = 1000
_EMAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")
_HOME = re.compile(r"(?:/home/|/Users/|\b[A-Za-z]:\\{1,2}Users\\{1,2})[^/\\\s\"':,;)]+|(?<![\w/])/root(?=/|\b)")
_PROJECT_FOLDER = re.compile(r"(?<=projects/)-(?:home|Users)-[A-Za-z0-9]+")
"""Claude Code names a project's folder after its path."""


PLACEHOLDER = re.compile(r"\[(?:private key|password|key|e-mail)\]")
"""The placeholder of a removed text."""


class Redactor:
    """Removes secrets from texts, and counts what it removed by kind."""

    def __init__(self) -> None:
        self.removed: Counter[str] = Counter()
        self._secrets = secrets()
        self._home = str(Path.home())

    def __call__(self, text: str) -> str:
        text = self._replace(_PRIVATE_KEY, text, "private keys", "[private key]")
        cleaned = redact(text, self._secrets)
        self.removed["keys and tokens"] += cleaned != text
        text = self._replace(_URL, cleaned, "passwords in URLs", r"\1[password]@") if "://" in cleaned else cleaned
        text = self._replace(_SIGNED, text, "keys and tokens", "[key]")
        text = without_keys(text, self._key)
        lower = text.lower()
        if any(word in lower for word in _NAMES):
            text = self._replace(_NAMED, text, "keys and tokens", r"\1[key]")
        text = self._replace(_EMAIL, text, "e-mail addresses", "[e-mail]") if "@" in text else text
        text = self._replace(_PROJECT_FOLDER, text, "home paths", "-home")
        if len(self._home) > 3:
            self.removed["home paths"] += text.count(self._home)
            text = text.replace(self._home, "~")
        return self._replace(_HOME, text, "home paths", "~")

    def shortened(self, text: str, most: int) -> str:
        """The first characters of the redacted text. A long text is cut twice as late before it is redacted, and its
        end is dropped: half a key there would not be recognised."""
        if len(text) <= 2 * most + _MARGIN:
            return self(text)[:most]
        return self(text[: 2 * most + _MARGIN])[:-_MARGIN][:most]

    def _key(self, _: str) -> str:
        self.removed["keys and tokens"] += 1
        return "[key]"

    def _replace(self, pattern: re.Pattern[str], text: str, kind: str, replacement: str) -> str:
        text, count = pattern.subn(replacement, text)
        self.removed[kind] += count
        return text

    def lines(self) -> list[str]:
        """A sentence on the removed texts, for people."""
        counts = [f"{count} {kind}" for kind, count in sorted(self.removed.items()) if count]
        return [f"Removed before anything was stored: {', '.join(counts)}."] if counts else []
