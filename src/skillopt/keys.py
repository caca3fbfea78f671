"""Protects secrets: configs only name them, child processes do not get them, texts from outside are redacted.

The secrets are: the values of environment variables with a name such as `…_KEY`, `…_TOKEN_2` or `DB_PASS_PROD`; the
values of variables that a config names as keys; the password in a variable's URL (in the URL of a proxy, also the
whole `user:password@host`); and tokens that SkillOpt fetched. Every text from outside (a reply, an error, the result of
a rollout) is redacted before it is used, so no secret gets into a journal, a file, a log or onto the screen. Secrets of
fewer than twelve characters are not searched for, because they may be ordinary words.
"""

from __future__ import annotations

import html
import json
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from skillopt.errors import UserError

T = TypeVar("T")
Secrets = Mapping[str, str]
"""The secrets of the environment, the longest first, each with the name of its variable."""

_SHORTEST = 12
_SECRET_NAME = re.compile(
    r"""(?:^|_)(?:[A-Z0-9]*(?:KEYS?|TOKEN|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?)
                 |O?AUTH|AUTHORIZATION|BEARER|CREDS|SK)(?=_|\Z)
      | (?:^|_)(?:CONNECTION_STRING|COOKIES?|DSN|HEADERS|JWT|PASS|PAT)\Z
      | _PWD\Z
    """,
    re.VERBOSE,
)
_SECRET_URL = re.compile(r"(?:^|_)(?:SECRET_URL|WEBHOOK(?:_URL)?|KUBECONFIG_(?:B|BASE|CONTENT|DATA))\Z")
"""Matches the names of variables that contain a secret address or a kubeconfig (a text with keys). Digits are removed
from a name before the match: `_B64` becomes `_B`."""
_NUMBER = re.compile(r"\d+(?=_|\Z)")
_STAGE = re.compile(
    r"(?:_(?:BACKUP|CI|DEV|DEVELOPMENT|LIVE|NEW|OLD|PRIMARY|PROD|PRODUCTION|SECONDARY|STAGING|TEST))+\Z"
)
_ABOUT_SECRET = re.compile(
    r"""_(?:ALG|ALGORITHM|AUDIENCE|BACKEND|COUNT|DIR|DISABLED|DOMAIN|EMAIL|ENABLED|ENDPOINT|EXPIRES|EXPIRY|FIELD|FILE
         |FOLDER|FORMAT|HOST|ID|ISSUER|KIND|LENGTH|LIMIT|LOCATION|METHOD|MODE|NAME|PATH|PORT|PREFIX|PROVIDER|REALM
         |REGION|REQUIRED|SCOPES?|SERVER|SIZE|SOCK|STRATEGY|SUFFIX|TIMEOUT|TTL|TYPE|URI|URL|USER|USERNAME|VERSION)\Z
    """,
    re.VERBOSE,
)
"""Matches the last word of a variable's name if the value only describes a secret, such as its file or its length."""
_KEY_WORDS = re.compile(r"(?:DON|HOC|HOT|JOC|LESS|MON|TUR|WHIS)KEYS?(?=_|\Z)")
"""Matches ordinary words that end in KEY, such as MONKEY."""
_ENV_NAME = re.compile(r"[A-Z_][A-Z0-9_]*\Z")
_IN_URL = re.compile(r"://([^/\s:@]*:([^/\s@]+)@[^/\s,]+)")
_KEY = re.compile(
    r"""\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}      # OpenAI, Anthropic, OpenRouter and others
      | \b(?:gsk|hf|xai|r8|fw|pplx|nvapi|tgp|csk)[-_][A-Za-z0-9_-]{20,}
      | \b(?:gh[pousr]|github_pat|glpat|xox[abprs])[-_][A-Za-z0-9_-]{16,}
      | \bAIza[0-9A-Za-z_-]{30,}              # Google
      | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b         # AWS
      | \beyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,}   # a signed token, such as Entra ID's
      | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----
      | (?i:\bbearer\s+)[A-Za-z0-9._~+/-]{16,}
      | (?i:[?&][\w.-]*(?:key|token|secret|sig|signature|password|passwd|auth|code)=)[^&\s]{8,}
      | (?i:(?<!-)--?[a-z-]{0,40}(?:api-?key|token|password|passwd|secret)[=\s]+)(?![$<{])\S{8,}
      | \b[A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD)=(?![$<{])\S{8,}
      | \A[0-9a-f]{32}\Z                     # Azure, the older form
      | \A(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9]{80,100}\Z   # Azure, the newer form
    """,
    re.VERBOSE,
)
_PLACEHOLDER = re.compile(r"your|example|placeholder|x{4}|\*{3}|\.{3}|…", re.IGNORECASE)
"""Matches placeholders that documents show in place of a key."""
_HOLDS_KEY = re.compile(
    r"(?:api|access|auth|bearer|private|secret|session)[-_]?(?:key|token)|passw(?:or)?d|passphrase|secret|credentials?",
    re.IGNORECASE,
)
"""Matches the name of an option whose value can only be a secret."""

_named: set[str] = set()
"""The environment variables that configs name as API keys."""
_fetched: dict[str, str] = {}
"""Tokens that SkillOpt fetched and that are not in the environment."""


# Text that a user writes


def refuse_keys(tree: Mapping[str, Any], where: str) -> None:
    """Raise UserError if a config contains an API key. The values of the environment variables that the config names as
    keys are secrets from now on."""
    known = secrets()
    for dotted, value in _texts(tree, ""):
        if dotted.endswith("_key_name") and value:
            if not _ENV_NAME.match(value):
                raise UserError(
                    f"{where}: {dotted}: must be the name of an environment variable, such as OPENAI_API_KEY; put the "
                    "key itself into the environment or .env"
                )
            _named.add(value)
            continue
        named_as_key = _HOLDS_KEY.fullmatch(dotted.rpartition(".")[2]) and value and not _ENV_NAME.match(value)
        if named_as_key or _KEY.search(value) or any(secret in value for secret in known):
            raise UserError(
                f"{where}: {dotted}: looks like a key; put the key into the environment or .env (see .env.example), "
                "and set models.target_key_name (or optimizer_key_name, judge_key_name) to the name of the variable"
            )


def refuse_secrets(text: str, where: str, known: Secrets | None = None) -> None:
    """Raise UserError if a text, which the caller wants to store and show, contains a secret of the environment."""
    for secret, name in (secrets() if known is None else known).items():
        if secret in text:
            raise UserError(
                f"{where}: contains the value of {name}; this value would be stored and sent with every call: remove "
                "it from the text"
            )


def key_lines(text: str) -> list[int]:
    """The numbers (from 1) of the lines that contain a secret of the environment, or a text that looks like a key.
    Placeholders are ignored."""
    known = secrets()
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        likely = (match[0] for match in _KEY.finditer(line.strip()))
        if any(secret in line for secret in known) or any(not _PLACEHOLDER.search(match) for match in likely):
            lines.append(number)
    return lines


def without_keys(text: str, replacement: Callable[[str], str]) -> str:
    """Replace everything in a text that looks like a key, except placeholders."""
    return _KEY.sub(lambda key: key[0] if _PLACEHOLDER.search(key[0]) else replacement(key[0]), text)


def _texts(value: Any, dotted: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield dotted or "config", str(key)
            yield from _texts(below, f"{dotted}.{key}" if dotted else str(key))
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _texts(below, dotted)
        yield dotted, " ".join(word for word in value if isinstance(word, str))  # a command's flag and its value
    elif isinstance(value, str):
        yield dotted, value


# Texts from outside


def redact(text: str, known: Secrets | None = None) -> str:
    """Replace each secret in a text by `***`. Redact a text before you cut it: half a key would not be found."""
    for values in (secrets() if known is None else known, _fetched):
        for secret in values:
            if secret in text:
                text = text.replace(secret, "***")
    return text


def scrub(value: T, known: Secrets | None = None) -> T:
    """Redact every text in a JSON value, also the keys of objects."""
    known = secrets() if known is None else known
    if not known and not _fetched:
        return value
    if isinstance(value, str):
        return redact(value, known)  # type: ignore[return-value]
    if isinstance(value, Mapping):
        return {redact(str(key), known): scrub(inner, known) for key, inner in value.items()}  # type: ignore[return-value]
    if isinstance(value, list | tuple):
        return type(value)(scrub(inner, known) for inner in value)
    return value


def secrets() -> Secrets:
    """The secrets that are in the environment now, as plain text and as they are written in JSON, URLs and HTML."""
    forms = {
        form: name
        for name, value in os.environ.items()
        for secret in _values(name, value)
        if len(secret) >= _SHORTEST
        for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe=""), html.escape(secret))
    }
    return {form: forms[form] for form in sorted(forms, key=len, reverse=True)}


def remember(token: str) -> None:
    """Add a token to the secrets: SkillOpt fetched the token, so no environment variable contains it."""
    if len(token) >= _SHORTEST:
        _fetched[token] = "a fetched token"


def _values(name: str, value: str) -> Iterator[str]:
    for whole, password in _IN_URL.findall(value):
        yield password
        if name.upper().endswith("_PROXY"):  # a command that gets the URL may print the password, even a short one
            yield whole
    if not is_secret_name(name):
        return
    yield value.strip()
    if name.upper().endswith("HEADERS"):  # OTEL_EXPORTER_OTLP_HEADERS: Authorization=Bearer%20…,other=…
        for pair in value.split(","):
            yield unquote(pair.partition("=")[2]).split(" ")[-1].strip()


# The environment of child processes


def is_secret_name(name: str) -> bool:
    """True if a variable's name says that the value is secret, or if a config names the variable as a key. Numbers and
    stages at the end of the name (`API_KEY_2`, `OPENAI_KEY_PROD`) make no difference."""
    words = _STAGE.sub("", _NUMBER.sub("", _KEY_WORDS.sub("", re.sub(r"\W", "_", name.upper()))).rstrip("_"))
    named = _SECRET_URL.search(words) or (_SECRET_NAME.search(words) and not _ABOUT_SECRET.search(words))
    return name in _named or bool(named)


def no_secrets(named: Iterable[str] = ()) -> dict[str, str]:
    """The environment for a child process, without secrets and without URLs that have a password. URLs of proxies and
    the variables in `named` are kept."""
    wanted = set(named)
    return {name: value for name, value in os.environ.items() if name in wanted or not _withheld(name, value)}


def _withheld(name: str, value: str) -> bool:
    return is_secret_name(name) or bool(_IN_URL.search(value) and not name.upper().endswith("_PROXY"))


# The terminal


def guard_terminal() -> None:
    """Redact the errors that threads and logs print: the texts may come from any library and contain secrets."""

    def show(args: threading.ExceptHookArgs) -> None:
        sys.stderr.write(redact("".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback))))

    threading.excepthook = show
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_RedactedFormatter())


class _RedactedFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))
