"""A real browser for tests: a headless Chromium page that must stay free of errors.

    with open_page(path.as_uri(), width=390) as page:
        assert page.title()

A console error, an uncaught exception or a failed request inside the block fails the test at its end. Where there is
no Chromium or no playwright the test is skipped; `make test-all` installs both where it can.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import pytest

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]

PATIENCE = 300_000.0
"""Milliseconds after which a page hangs. No page is that slow, on no machine."""


def chromium() -> str:
    """Where the browser is; skips the test where there is none."""
    pytest.importorskip("playwright", reason="playwright is not installed (pip install playwright)")
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no chromium on this machine; install its package (Debian: sudo scripts/install_chromium.sh)")
    return found


@contextmanager
def open_page(
    url: str,
    *,
    width: int = 1280,
    height: int = 900,
    scheme: Literal["light", "dark"] = "light",
    forgives: Sequence[str] = (),
) -> Iterator[Any]:
    """A playwright `Page` at `url`, of that size and colour scheme. Troubles that name one of `forgives` are meant."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    troubles: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.set_default_timeout(PATIENCE)
            page.on("console", lambda said: said.type in {"error", "warning"} and troubles.append(said.text))
            page.on("pageerror", lambda error: troubles.append(str(error)))
            page.on("requestfailed", lambda request: troubles.append(f"{request.url}: {request.failure}"))
            page.goto(url, wait_until="load")
            yield page
        finally:
            browser.close()
    troubles = [text for text in troubles if not any(word in text for word in forgives)]
    assert not troubles, troubles


def close_drawer(page: Any) -> None:
    """Close the drawer of a trajectory and wait until its entry of the history is gone."""
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    page.wait_for_function("() => !/[?&]t=/.test(location.hash)")
