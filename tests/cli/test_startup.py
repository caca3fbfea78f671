"""Commands start quickly because they load little; bench/startup.py measures how quickly."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from skillopt.cli.app import PROJECT_FILE, app
from skillopt.config.project import FILE
from support import skillopt as command

HEAVY = (
    "aiohttp", "asyncio", "bpe_openai", "genai_prices", "jsonschema", "pydantic", "yaml", "skillopt.config",
    "skillopt.record", "skillopt.models",
)  # fmt: skip


@pytest.mark.parametrize("start", ["import skillopt", "import skillopt.cli"])
def test_what_only_some_commands_need_is_not_loaded_for_all(start: str) -> None:
    code = f"{start}; import sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == ""


def test_tokens_are_estimated_without_a_tokenizer() -> None:
    code = "from skillopt.skill.tokens import count_tokens as c;import sys;print(c('a b'),'bpe_openai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2 False\n"


def test_help_shows_every_command_in_one_of_five_groups_with_a_whole_sentence() -> None:
    text = command("--help").stdout
    assert [line for line in text.splitlines() if line.endswith("...") and "Usage" not in line] == [], "cut off"
    titles = re.findall(r"^(?!Options)\w.*:$", text, re.MULTILINE)
    assert len(titles) == 5
    rows = re.findall(r"^  (\w+)  +(.*(?:\n {5,}.*)*)", text.partition(titles[0])[2], re.MULTILINE)
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    assert next(name for name, _ in rows) == "init"
    assert sorted(name for name, _ in rows) == sorted(commands)
    assert [name for name, said in rows if not said.endswith(".")] == []


def test_the_shell_completes_commands_and_options() -> None:
    program = str(Path(sys.executable).with_name("skillopt"))
    shown = subprocess.run([program, "--show-completion", "bash"], capture_output=True, text=True, check=False)
    assert (shown.returncode, "complete -o default" in shown.stdout) == (0, True), shown.stderr
    for words, choice in (("skillopt tra", "train"), ("skillopt train --fr", "--fresh")):
        asked = {"_SKILLOPT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run([program], capture_output=True, text=True, check=False, env={**os.environ, **asked})
        assert choice in done.stdout.split(), done.stderr


def test_the_project_file_has_one_name() -> None:
    assert PROJECT_FILE == FILE


@pytest.mark.parametrize("module", ["skillopt_webui", "skillopt_webui.app"])
def test_the_page_starts_by_its_packages_name(module: str) -> None:
    process = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=False)
    assert process.returncode == 0
    assert "--port" in process.stdout
