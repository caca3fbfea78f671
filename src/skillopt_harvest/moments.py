"""`--since` as a moment."""

from __future__ import annotations

import re
import time
from datetime import datetime

from skillopt.errors import UserError

_SPAN = re.compile(r"(\d{1,5})([hdw])")
_SECONDS = {"h": 3600, "d": 86400, "w": 604800}


def moment(text: str, last: float) -> float:
    """`30d`, `12h`, `2w`, a day such as 2026-01-31, or `last`: seconds since 1970; 0 without any."""
    if not text:
        return 0.0
    if text == "last":
        return last
    if span := _SPAN.fullmatch(text):
        return time.time() - int(span[1]) * _SECONDS[span[2]]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        raise UserError(f"--since: '{text}' must be a span such as 30d, a day such as 2026-01-31, or last") from None
