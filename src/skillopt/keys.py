"""Keys are named in a config, never given: a value that looks like a key is refused, and never repeated."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from skillopt.errors import UserError

_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)\Z")
_ENV_NAME = re.compile(r"[A-Z_][A-Z0-9_]*\Z")
_KEY = re.compile(
    r"""\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}      # OpenAI, Anthropic, OpenRouter and others
      | \b(?:gsk|hf|xai|r8|fw|pplx|nvapi|tgp|csk)[-_][A-Za-z0-9_-]{20,}
      | \bAIza[0-9A-Za-z_-]{30,}              # Google
      | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b         # AWS
      | \beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}   # a signed token, such as Entra ID's
      | (?i:\bbearer\s+)[A-Za-z0-9._~+/-]{16,}
      | (?i:[?&](?:api[-_]?key|key|token|sig)=)[^&\s]{8,}
      | \A[0-9a-f]{32}\Z                     # Azure, the older form
      | \A(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9]{80,100}\Z   # Azure, the newer form
    """,
    re.VERBOSE,
)


def refuse_keys(tree: Mapping[str, Any], where: str) -> None:
    """Raise where a config holds a key's value."""
    known = _known()
    for dotted, value in _texts(tree, ""):
        if dotted.endswith("_key_name") and value and not _ENV_NAME.match(value):
            raise UserError(
                f"{where}: {dotted}: must be the name of an environment variable, such as OPENAI_API_KEY; put the key "
                "itself into the environment or .env"
            )
        if _KEY.search(value) or any(secret in value for secret in known):
            raise UserError(
                f"{where}: {dotted}: looks like a key; keys belong in the environment or .env (see .env.example), "
                "and models.target_key_name or models.optimizer_key_name names the variable"
            )


def is_secret_name(name: str) -> bool:
    """Does a variable's name say that its value is secret?"""
    return bool(_SECRET_NAME.search(name.upper()))


def redact(text: str) -> str:
    """The text without any key that the environment holds; endpoints like to repeat keys in their complaints."""
    for secret in _known():
        text = text.replace(secret, "***")
    return text


def _known() -> list[str]:
    """Values of variables whose names say that they are secret; the longest first."""
    values = [value.strip() for name, value in os.environ.items() if is_secret_name(name)]
    return sorted((value for value in values if len(value) >= 12), key=len, reverse=True)


def _texts(value: Any, dotted: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _texts(below, f"{dotted}.{key}" if dotted else str(key))
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _texts(below, dotted)
    elif isinstance(value, str):
        yield dotted, value
