"""Images of own tasks reach a target that can see, are not stored, and cannot lead out of the tasks' folder."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config, EnvConfig
from skillopt.errors import UserError
from skillopt.models.base import ChatReply
from skillopt.preflight.doctor import cheap
from skillopt.preflight.plan import plan_run
from skillopt.preflight.starter import InitOptions, write_folder
from skillopt.skill import Skill
from skillopt.tasks.base import check_splits, data_hash
from skillopt.tasks.memory import own_env
from skillopt.tasks.qa import QAEnv

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def rows() -> list[dict[str, Any]]:
    """The same question about another image is another task."""
    return [{"question": "What is the total?", "answer": f"{n}", "image": f"pages/{n}.png"} for n in range(12)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "data" / "pages").mkdir(parents=True)
    for n in range(12):
        (tmp_path / "data" / "pages" / f"{n}.png").write_bytes(PNG)
    return write(tmp_path, rows())


def write(tmp_path: Path, rows: list[dict[str, Any]]) -> Path:
    file = tmp_path / "data" / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def open_env(file: Path) -> QAEnv:
    env = QAEnv(EnvConfig(data=str(file)))
    check_splits(env)
    return env


def reply(env: QAEnv, item: Any, skill: Skill | None = None) -> tuple[list[Any], Any]:
    seen: list[Any] = []

    class Target:
        async def __call__(self, messages: Any, **_: Any) -> ChatReply:
            seen.extend(messages)
            return ChatReply(text="3")

        async def opaque_rollout(self, identity: Any, work: Any) -> Any:
            return await work()

    return seen, asyncio.run(env.run(item, skill or Skill("Look closely."), Target()))


@pytest.mark.parametrize("packaged", [False, True])
def test_the_target_sees_the_image_and_what_is_stored_names_it(file: Path, packaged: bool) -> None:
    env = open_env(file)
    item = next(item for item in env.items("train") if item["image"])
    package = Skill("Look closely.", "---\nname: look\ndescription: Totals.\n---\n", {"references/a.md": b"Add up."})
    sent, episode = reply(env, item, package if packaged else None)
    image, text = sent[-1]["content"]
    assert image == {"type": "image_url", "image_url": {"url": URL}}
    assert text == {"type": "text", "text": "What is the total?"}
    stored = episode.model_dump_json()
    assert f"[image: {item['image']}]" in stored
    assert "base64" not in stored


def test_several_images_and_data_urls_are_sent_in_their_order(tmp_path: Path, file: Path) -> None:
    changed = [{**row, "images": [f"pages/{n}.png", URL]} for n, row in enumerate(rows())]
    env = open_env(write(tmp_path, changed))
    sent, episode = reply(env, env.items("val")[0])
    assert [part["type"] for part in sent[1]["content"]] == ["image_url"] * 3 + ["text"]
    assert URL not in episode.model_dump_json()


def test_other_pixels_are_other_data(file: Path) -> None:
    before = data_hash(open_env(file))
    (file.parent / "pages" / "3.png").write_bytes(PNG + b"\0")
    assert data_hash(open_env(file)) != before


@pytest.mark.parametrize(
    ("image", "told"),
    [
        ("../secret.png", "leads out of"),
        ("pages/link.png", "leads out of"),
        ("pages/none.png", "is not in"),
        ("https://example.com/a.png", "images are not downloaded"),
        ("tasks.jsonl", "has none of the formats .gif"),
        ("pages/large.png", "at most 10 MB"),
        ("data:text/html;base64,AAAA", "must be data:image/png"),
    ],
)
def test_an_image_that_may_not_be_read_is_refused_by_name(tmp_path: Path, file: Path, image: str, told: str) -> None:
    (tmp_path / "secret.png").write_bytes(PNG)
    (file.parent / "pages" / "link.png").symlink_to(tmp_path / "secret.png")
    with (file.parent / "pages" / "large.png").open("wb") as large:
        large.truncate((10 << 20) + (1 << 20))
    with pytest.raises(UserError, match="image: ") as caught:
        open_env(write(tmp_path, [*rows()[:11], {**rows()[11], "image": image}]))
    assert told in str(caught.value)


def test_init_and_python_take_the_images_with_them(tmp_path: Path, file: Path) -> None:
    write_folder(tmp_path / "own", InitOptions(source=file))
    assert len(open_env(tmp_path / "own" / "tasks.jsonl").items("train")) == 6
    config = Config.parse({"env": {"output_root": str(tmp_path / "out")}})
    loaded, env = own_env(config, None, file, None, None)
    assert isinstance(env, QAEnv)
    assert reply(env, env.items("train")[0])[0][1]["content"][0]["image_url"]["url"] == URL
    assert QAEnv(loaded.env).items("test")  # by the commands later


@pytest.mark.parametrize(("target", "status"), [("sim:world", "fail"), ("openai:gpt-4o-mini", "warn")])
def test_the_doctor_says_if_the_target_cannot_see(file: Path, target: str, status: str) -> None:
    config = Config.parse({"env": {"data": str(file)}, "models": {"target_model": target}})
    env = open_env(file)
    checks = cheap(config, env, Skill("S"), plan_run(config, env, Skill("S")))
    assert [check.status for check in checks if check.name == "images"] == [status]
