"""Text games: real engines in worker processes, many turns, no barrier, and a skill that teaches a player to win."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from skillopt.config import Config, EnvConfig
from skillopt.errors import UserError
from skillopt.models.base import ChatReply, Message
from skillopt.skill import Skill
from skillopt.tasks import open_env
from skillopt.tasks.base import Episode, Item, check_splits, score_output
from skillopt.tasks.executor.worker import EnvWorker
from skillopt.training.trainer import TrainingLoop
from skillopt_benchmarks.games import AlfWorldEnv, GameEnv, TextWorldEnv
from skillopt_benchmarks.games.env import read_action, shown
from skillopt_benchmarks.games.pool import GameError, GamePool
from support import REPO, until, write_rows
from support.simulated_player import SimulatedPlayer, next_action

GET_ALFWORLD = "pip install 'skillopt[alfworld]' (it compiles for some minutes), then run this test again"
GET_TEXTWORLD = "pip install 'skillopt[textworld]'"
needs_textworld = pytest.mark.skipif(importlib.util.find_spec("textworld") is None, reason=GET_TEXTWORLD)
needs_alfworld = pytest.mark.skipif(importlib.util.find_spec("alfworld") is None, reason=GET_ALFWORLD)


class Player:
    """Plays by a function of the item's turn."""

    def __init__(self, act: Callable[[int, Sequence[Message]], str]) -> None:
        self.act, self.turn = act, 0
        self.asked: list[Sequence[Message]] = []

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] = ()) -> ChatReply:
        self.asked.append(messages)
        self.turn += 1
        return ChatReply(text=self.act(self.turn - 1, messages))

    async def opaque_rollout(self, identity: Sequence[Any], work: Any) -> dict[str, Any]:
        raise NotImplementedError


def by_walkthrough(item: Item) -> Player:
    way = item.get("walkthrough")
    return Player(lambda turn, _: f"I know the way.\nAction: {way[turn]}" if turn < len(way) else "look")


async def play(env: GameEnv, item: Item, player: Player) -> Episode:
    return await env.run(item, Skill("Play."), player)


@pytest.fixture(scope="module")
def games() -> Any:
    """The mini set, the smallest games first: making one takes seconds."""
    pytest.importorskip("textworld", reason=GET_TEXTWORLD)
    env = open_env(Config.load(REPO / "configs" / "textworld" / "mini.yaml"))
    assert isinstance(env, TextWorldEnv)
    yield env
    env.close()


# What a player is shown and how its reply is read


def test_the_history_window_keeps_the_task_and_the_last_turns() -> None:
    turns = [{"role": "user", "content": "task"}]
    for n in range(6):
        turns += [{"role": "assistant", "content": f"a{n}"}, {"role": "user", "content": f"o{n}"}]
    seen = shown(turns, ["look", "go east"], 2)
    last = "o5\n\nPossible actions: look, go east\nReply with one action."
    assert [m["content"] for m in seen] == ["task\n\n[4 turns left out]", "a4", "o4", "a5", last]
    assert [m["role"] for m in seen][-1] == "user"
    assert len(shown(turns, ["look"], 0)) == len(turns)
    assert "Possible actions" not in json.dumps(shown(turns, ["look"], 0)[:-1])


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("go east", "go east"),
        ("Let me think.\nAction: Go East.", "go east"),
        ("<action>open red door</action> because it is shut", "open red door"),
        ("`open red door`", "open red door"),
        ("> look", "look"),
        ("I will open red door now", "open red door"),
        ("fly", "fly"),
        ("", ""),
    ],
)
def test_an_action_is_read_from_a_reply(reply: str, action: str) -> None:
    assert read_action(reply, ["look", "open red", "open red door", "go east"]) == action


def test_the_simulated_player_follows_instructions_as_far_as_its_rules_go() -> None:
    goal = "Hey. First, go east. Then, open the red box in the hall! After that, take the key from the red box."
    possible = ["go east", "go west", "look", "open red box", "take key from red box", "take lamp"]
    every = {"go", "open", "take"}
    assert next_action(goal, [], possible, every) == "go east"
    assert next_action(goal, [], possible, {"open"}) == "look"
    assert next_action(goal, ["go east"], possible, every) == "open red box"
    assert next_action(goal, ["go east", "look", "open red box"], possible, every) == "take key from red box"
    assert next_action(goal, ["go east", "open red box", "take key from red box"], possible, every) == "look"


def test_the_simulated_player_is_refused_in_a_config() -> None:
    with pytest.raises(UserError, match=r"models\.target_model: .*no longer part of SkillOpt; choose another model"):
        Config.parse({"models": {"target_model": "sim:player"}})


# TextWorld


@pytest.mark.extras
@needs_textworld
def test_the_walkthrough_wins_and_doing_nothing_does_not(games: TextWorldEnv) -> None:
    check_splits(games)
    item = min(games.items("test"), key=lambda each: len(each.get("walkthrough")))

    async def both() -> tuple[Episode, Episode]:
        won = await play(games, item, by_walkthrough(item))
        return won, await play(games, item, Player(lambda turn, _: "dance" if turn == 3 else "look"))

    won, lost = asyncio.run(both())
    assert won.score
    assert won.score.hard == won.score.soft == 1
    assert won.output == f"won after {len(item.get('walkthrough'))} actions"
    assert lost.score
    assert lost.score.hard == 0
    assert lost.score.feedback.startswith("not won within 12 actions; 1 of them were not possible; a way to win: ")
    assert len([m for m in lost.messages if m["role"] == "assistant"]) == 12
    assert asyncio.run(score_output(games, item, "")).hard == 0


@pytest.mark.extras
@needs_textworld
def test_episodes_run_side_by_side_and_do_not_disturb_each_other(games: TextWorldEnv) -> None:
    item = min(games.items("test"), key=lambda each: len(each.get("walkthrough")))

    async def at_once(count: int) -> list[Episode]:
        everybody = asyncio.Barrier(count)

        class Waiting(Player):
            async def __call__(self, messages: Sequence[Message], **more: Any) -> ChatReply:
                if self.turn in {0, 5}:  # nobody comes past here before all games have come so far
                    await asyncio.wait_for(everybody.wait(), 120)
                return await super().__call__(messages)

        players = [Waiting(lambda turn, _: "look") for _ in range(count)]
        return list(await asyncio.gather(*(play(games, item, player) for player in players)))

    episodes = asyncio.run(at_once(6))
    assert all(episode.messages == episodes[0].messages for episode in episodes)


@pytest.mark.extras
@needs_textworld
def test_a_skill_learns_the_rules_that_win_the_games(tmp_path: Path) -> None:
    simulated = ["models.target_model=sim:world", "models.optimizer_model=sim:world", f"env.output_root={tmp_path}"]
    config = Config.load(REPO / "configs" / "textworld" / "mini.yaml", simulated)
    player = SimulatedPlayer("sim:world")
    result = asyncio.run(TrainingLoop(config, models={"target": player, "optimizer": player}).fit())
    assert result.summary["initial"]["test"] == 0
    assert result.summary["best"]["test"] >= 0.9
    assert 'Use "' in result.best_skill.text
    assert result.summary["baselines"]["do_nothing"]["test"] == 0


@pytest.mark.extras
@needs_textworld
def test_a_game_that_fails_or_dies_is_that_items_trouble_alone(
    tmp_path: Path, games: TextWorldEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillopt_benchmarks.games.pool.STEP_SECONDS", 15.0)
    (tmp_path / "broken.z8").write_bytes(b"no game")

    async def drill() -> None:
        pool = GamePool("textworld", 1)
        try:
            async with pool.game() as game:
                with pytest.raises(GameError, match="a game"):
                    await game.start(tmp_path / "broken.z8")
            worker = pool._workers[0]
            worker._process._process.kill()
            with pytest.raises(GameError, match="ended"):
                await worker.ask(do="step", game=1, command="look")
            until(lambda: not worker.alive)
            path = await games.game_file(games.items("test")[0])
            async with pool.game() as game:
                assert (await game.start(path)).commands, "another process takes its place"
        finally:
            pool.close()

    asyncio.run(drill())


@pytest.mark.parametrize("broken", ["import", "engine"])
def test_an_engine_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    if broken == "import":
        (tmp_path / "skillopt").mkdir()
        (tmp_path / "skillopt" / "__init__.py").write_text("raise OSError('no licence for the engine')")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def start() -> str:
        pool = GamePool("textworld" if broken == "import" else "no such engine", 1)
        try:
            async with pool.game() as game:
                await game.start(tmp_path / "game.z8")
        except GameError as error:
            return str(error)
        finally:
            pool.close()
        return "started"

    reason = "no licence for the engine" if broken == "import" else "KeyError: 'no such engine'"
    assert reason in asyncio.run(start())


@needs_textworld
@pytest.mark.parametrize("limit", [-1, 0])
def test_a_limit_is_a_number_of_games(limit: int) -> None:
    mini = REPO / "configs" / "textworld" / "mini.yaml"
    with pytest.raises(UserError, match=r"env\.options\.limit\.val: Input should be greater than or equal to 1"):
        open_env(Config.load(mini, [f"env.options={{limit: {{val: {limit}}}}}"]))


def test_a_clusters_worker_takes_one_core_for_its_games(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLOPT_CORES", "")  # so that what the worker sets is taken back
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("SKILLOPT_CORES")
    assert GamePool("textworld")._most == 8
    EnvWorker()
    assert GamePool("textworld")._most == 1


@pytest.mark.extras
@needs_textworld
def test_bad_items_are_refused_with_their_place(tmp_path: Path) -> None:
    def refusal(row: dict[str, Any]) -> str:
        write_rows(tmp_path, {split: [{**row, "id": split}] for split in ("train", "val", "test")})
        with pytest.raises(UserError) as caught:
            TextWorldEnv(EnvConfig(name="textworld", split_dir=str(tmp_path)))
        return str(caught.value)

    assert "needs either the field 'game' (a file) or the field 'recipe'" in refusal({"question": "Win."})
    assert "leads out of" in refusal({"question": "Win.", "game": "../../etc/passwd"})
    assert "is not in" in refusal({"question": "Win.", "game": "none.z8"})
    assert "question must not be empty" in refusal({"question": ""})


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'skillopt\[alfworld\]'"):
        AlfWorldEnv(EnvConfig(name="alfworld", split_dir="x"))


# ALFWorld


@pytest.mark.extras
@needs_alfworld
def test_games_of_all_six_types_are_made_and_won_in_the_real_engine(tmp_path: Path) -> None:
    from skillopt_benchmarks.games.generate import TASKS, generate

    sizes = {"train": 6, "val": 1, "test": 1}
    assert asyncio.run(generate("alfworld", sizes, 5, tmp_path / "a", files=True)) == sizes
    env = AlfWorldEnv(EnvConfig(name="alfworld", split_dir=str(tmp_path / "a")))
    try:
        check_splits(env)
        items = env.items("train")
        assert {item.type for item in items} == set(TASKS)

        async def every() -> list[Episode]:
            return await asyncio.gather(*(play(env, item, by_walkthrough(item)) for item in items))

        episodes = asyncio.run(every())
        assert [episode.score.hard for episode in episodes if episode.score] == [1] * 6
        assert "Your task is to: " in episodes[0].messages[1]["content"]
        lost = asyncio.run(play(env, items[0], Player(lambda turn, _: "look")))
        assert lost.score
        assert lost.score.hard == 0
        assert len(lost.messages) == 2 + 2 * 50, "50 actions at most"
    finally:
        env.close()
    game = json.loads((tmp_path / "a" / items[0].get("game")).read_text())
    assert {"pddl_domain", "grammar", "pddl_problem"} <= game.keys()


@pytest.mark.extras
@needs_alfworld
def test_the_stock_environment_loads_our_games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alfworld.agents.environment.alfred_tw_env import AlfredTWEnv

    from skillopt_benchmarks.games.generate import generate

    asyncio.run(generate("alfworld", {"train": 6, "val": 1, "test": 1}, 5, tmp_path, files=True))
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    config = {
        "env": {"goal_desc_human_anns_prob": 0, "task_types": [1, 2, 3, 4, 5, 6], "domain_randomization": False,
                "expert_type": "planner", "expert_timeout_steps": 150},
        "dataset": {"data_path": str(tmp_path / "json_2.1.1" / "train"), "num_train_games": -1},
        "general": {"training_method": "dagger"},
        "dagger": {"training": {"max_nb_steps_per_episode": 50}},
    }  # fmt: skip
    stock = AlfredTWEnv(config, train_eval="train")
    assert len(stock.game_files) == 6
    env = stock.init_env(batch_size=1)
    observations, info = env.reset()
    assert "Your task is to" in observations[0]
    assert info["admissible_commands"][0]
    assert os.environ["ALFWORLD_DATA"]
