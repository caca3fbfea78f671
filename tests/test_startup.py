"""Commands start quickly because they load little; bench/startup.py measures how quickly."""

from __future__ import annotations

import subprocess
import sys

import pytest

from skillopt.cli.app import PROJECT_FILE
from skillopt.config.project import FILE

HEAVY = ("aiohttp", "asyncio", "bpe_openai", "pydantic", "yaml", "skillopt.config", "skillopt.run", "skillopt.models")


@pytest.mark.parametrize("start", ["import skillopt", "import skillopt.cli"])
def test_what_only_some_commands_need_is_not_loaded_for_all(start: str) -> None:
    code = f"{start}; import sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == ""


def test_tokens_are_counted_without_the_tokenizers_python_half() -> None:
    code = "from skillopt.skill.tokens import count_tokens as c;import sys;print(c('a b'),'bpe_openai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2 False\n"


def test_the_project_file_has_one_name() -> None:
    assert PROJECT_FILE == FILE
