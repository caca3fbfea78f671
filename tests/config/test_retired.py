"""Config keys that no longer exist."""

from __future__ import annotations

import re

import pytest

from skillopt.config import Config
from skillopt.config.retired import FORMER_DEFAULTS, RETIRED
from skillopt.errors import UserError
from support import SIM, skillopt


@pytest.mark.parametrize("key", RETIRED)
def test_a_retired_key_is_refused_and_the_error_says_what_to_do(key: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"{key}: is no longer a key; {RETIRED[key]}")):
        Config.load(SIM, [f"{key}=another"])


@pytest.mark.parametrize("key", FORMER_DEFAULTS)
def test_a_stored_config_may_name_the_value_that_changed_nothing(key: str) -> None:
    section, name = key.split(".")
    assert Config.parse({section: {name: FORMER_DEFAULTS[key]}}) == Config()


def test_the_command_line_exits_with_2() -> None:
    done = skillopt("train", "--config", str(SIM), "gradient.rank=llm")
    assert done.returncode == 2
    assert "gradient.rank: is no longer a key" in done.stderr
