"""List known vulnerabilities of the packages in a lock file: `make audit`, or python scripts/audit.py [LOCK_FILE].

Asks the OSV database (osv.dev), which includes PyPI's advisories. Exit codes: 0 no vulnerability is known; 1 some are
known and listed; 2 the lock file cannot be read; 3 the database cannot be reached, so the answer is unknown.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATABASE = "https://api.osv.dev"
_PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)


class UnreachableError(Exception):
    """Raised if the database gives no usable answer."""


def pinned(lock: str) -> list[tuple[str, str]]:
    return _PINNED.findall(lock)


def ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own URL, or the user's
            return json.load(answer)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UnreachableError(f"{url}: {reason}") from None


def known(packages: list[tuple[str, str]], database: str) -> Iterator[str]:
    """Yield a line for each known vulnerability of the packages."""
    queries = [{"package": {"ecosystem": "PyPI", "name": name}, "version": version} for name, version in packages]
    results = ask(f"{database}/v1/querybatch", {"queries": queries}).get("results", [])
    if len(results) != len(packages):
        raise UnreachableError(f"{database}: {len(results)} answers to {len(packages)} questions")
    for (name, version), found in zip(packages, results, strict=True):
        for entry in (found or {}).get("vulns", []):
            detail = ask(f"{database}/v1/vulns/{entry['id']}")
            if not detail.get("withdrawn"):
                yield f"{name} {version}: {_told(detail, name)}"


def _told(detail: dict[str, Any], name: str) -> str:
    ranges = [r for a in detail.get("affected", []) if a["package"]["name"] == name for r in a.get("ranges", [])]
    fixed = sorted({e["fixed"] for r in ranges if r["type"] != "GIT" for e in r["events"] if "fixed" in e})
    also = f" ({', '.join(detail['aliases'])})" if detail.get("aliases") else ""
    cure = f"; fixed in {', '.join(fixed)}" if fixed else "; no fixed version is known"
    return f"{detail['id']}{also}: {detail.get('summary') or 'no summary'}{cure}"


def main() -> int:
    parser = argparse.ArgumentParser(description="List known vulnerabilities of the packages in a lock file.")
    parser.add_argument("lock", nargs="?", default="requirements.lock", type=Path)
    parser.add_argument("--database", default=DATABASE, help="Another server that speaks OSV's protocol.")
    given = parser.parse_args()
    packages = pinned(given.lock.read_text(encoding="utf-8")) if given.lock.is_file() else []
    if not packages:
        print(f"{given.lock}: is not a lock file with name==version lines; `make lock` writes one", file=sys.stderr)
        return 2
    try:
        lines = list(known(packages, given.database))
    except UnreachableError as error:
        print(f"audit: the database cannot be reached, so vulnerabilities are unknown ({error})", file=sys.stderr)
        return 3
    for line in lines:
        print(line)
    print(f"{len(packages)} packages, {len(lines)} known vulnerabilities")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
