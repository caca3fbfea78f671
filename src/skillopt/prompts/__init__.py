"""The optimizer's prompts: one Markdown file a stage. The stable part comes first, so that prompt caches hit."""

from __future__ import annotations

import hashlib
from importlib import resources

STAGES = ("reflect", "deep_reflect", "slow_update", "meta_skill")


def load(stage: str) -> str:
    return (resources.files(__name__) / f"{stage}.md").read_text(encoding="utf-8")


def fingerprint() -> str:
    """Changes whenever a prompt does; a run does not silently go on under other prompts."""
    return hashlib.sha256("\0".join(load(stage) for stage in STAGES).encode()).hexdigest()
