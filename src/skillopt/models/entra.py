"""Gets Entra ID tokens for Azure: from AZURE_OPENAI_AD_TOKEN, or from the optional package azure-identity."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import os
import time
from typing import Any

from skillopt.keys import redact, remember
from skillopt.models.base import FatalError

TOKEN_NAME = "AZURE_OPENAI_AD_TOKEN"  # noqa: S105 - a variable's name
_SCOPE = "https://cognitiveservices.azure.com/.default"


def available() -> bool:
    """Is there a token, or a library that gets one?"""
    if os.environ.get(TOKEN_NAME):
        return True
    return importlib.util.find_spec("azure") is not None and importlib.util.find_spec("azure.identity") is not None


class EntraToken:
    """Returns a token when it is called. A token that it fetched stays valid for at least five more minutes."""

    def __init__(self) -> None:
        self._credential: Any = None
        self._token, self._old_at = "", -math.inf

    async def __call__(self) -> str:
        if from_environment := os.environ.get(TOKEN_NAME, "").strip():
            return from_environment
        if time.monotonic() >= self._old_at:
            try:
                token = await asyncio.to_thread(self._fetch)
            except Exception as error:  # the library raises many types of errors, all about the login
                raise FatalError(
                    f"azure: no Entra ID token: {redact(str(error))[:300]}; set {TOKEN_NAME}, or log in"
                ) from None
            good_for = float(token.expires_on) - time.time() - 300  # the machine's clock may be set meanwhile
            self._token, self._old_at = token.token, time.monotonic() + good_for
            remember(self._token)
        return self._token

    def _fetch(self) -> Any:
        from azure.identity import DefaultAzureCredential

        self._credential = self._credential or DefaultAzureCredential()
        return self._credential.get_token(_SCOPE)
