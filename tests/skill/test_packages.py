"""Skill packages: a run becomes one, one becomes a run, and only what is trained changes. The validator is real."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from skills_ref import read_properties, validate

import skillopt
from skillopt.cli.train import for_description
from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.models.base import ChatReply, ChatRequest
from skillopt.record.directory import RunDirectory
from skillopt.record.export import export
from skillopt.record.files import read_json
from skillopt.record.package import checked_package
from skillopt.skill import Skill
from skillopt.skill.package import Package, quoted, read_package
from skillopt.training.initial import read_initial
from support import SIM, train_sim
from support import skillopt as command
from support.packages import BODY, FRONT, write_package


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def quick(out: Path) -> list[str]:
    small = "env.options={rules: 8, train: 16, val: 8, test: 8}"
    return [f"env.output_root={out}", "train.num_epochs=1", "optimizer.learning_rate=8", small]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    out = tmp_path_factory.mktemp("out")
    return RunDirectory(train_sim(out, *quick(out)).path)


def test_an_exported_run_passes_the_real_validator_and_says_where_it_comes_from(tmp_path: Path) -> None:
    result = train_sim(tmp_path / "out", "train.num_epochs=2", "optimizer.learning_rate=2")
    run = RunDirectory(result.path)
    guidance = run.read_skill(read_json(run.state)["best"]["version"]).guidance
    assert guidance
    done = command("export", str(result.path), "--to", str(tmp_path / "ticket-codes"), "--description", "Codes: a, b")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "ticket-codes"
    assert validate(folder) == []
    properties = read_properties(folder)
    assert (properties.name, properties.description) == ("ticket-codes", "Codes: a, b")
    assert properties.metadata is not None
    assert properties.metadata["sha256"] == result.best_skill.hash
    assert properties.metadata["score-test"] == f"{result.summary['best']['test']:.3f}"
    text = (folder / "SKILL.md").read_text()
    assert "skillopt:" not in text
    assert guidance in text


@pytest.mark.parametrize(
    "text", ['a "quoted" one: yes', "back\\slash # no comment", "--- three", "{curly} [x] é 日本", "- a"]
)
def test_any_description_survives_the_front_matter(text: str, run: RunDirectory, tmp_path: Path) -> None:
    export(run, tmp_path / "x", description=text)
    assert validate(tmp_path / "x") == []
    assert read_properties(tmp_path / "x").description == text.replace("---", "—")


def test_a_round_trip_changes_only_the_body(tmp_path: Path) -> None:
    before = write_package(tmp_path / "a" / "house-codes")
    goal = tmp_path / "b" / "house-codes"
    out = tmp_path / "out"
    done = command("train", "--package", str(before), "-c", str(SIM), *quick(out), "package.train=[body]")
    assert done.returncode == 0, done.stderr
    assert command("export", str(out / "sim"), "--to", str(goal)).returncode == 0
    assert validate(goal) == []
    old, new = files(before), files(goal)
    assert {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)} == {"SKILL.md"}
    assert new["SKILL.md"].startswith(FRONT.encode() + b"# Ticket codes\n")
    assert b"answer " in new["SKILL.md"]
    kept = files(before)
    assert kept == old


def test_a_link_out_of_a_package_is_refused_and_a_dotenv_stays_out_of_a_run_and_an_export(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("not the package's")
    package = write_package(tmp_path / "house-codes")
    (package / "link.txt").symlink_to(outside)
    (package / ".env").write_text("SOME_API_KEY=of-the-user")
    init = f"train.init_skill={package}/SKILL.md"
    with pytest.raises(UserError, match=r"link\.txt: is a link that leads out of the package"):
        train_sim(tmp_path / "out", *quick(tmp_path / "out"), init)
    assert not (tmp_path / "out").exists()
    (package / "link.txt").unlink()
    run = RunDirectory(train_sim(tmp_path / "out", *quick(tmp_path / "out"), init).path)
    assert ".env" not in files(run.package).keys() | files(run.best_package).keys()
    (run.package / "planted.txt").symlink_to(outside)  # a run from elsewhere may hold anything
    with pytest.raises(UserError, match=r"planted\.txt: is a link"):
        export(RunDirectory(run.root), tmp_path / "to" / "house-codes")
    assert not (tmp_path / "to").exists()


def test_a_package_that_holds_a_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "of-the-user-0123456789")
    package = write_package(tmp_path / "house-codes")
    (package / "script.py").write_text("key = 'of-the-user-0123456789'")
    with pytest.raises(UserError, match=r"script\.py: contains the value of SOME_API_KEY"):
        train_sim(tmp_path / "out", *quick(tmp_path / "out"), f"train.init_skill={package}/SKILL.md")


def test_the_model_reads_the_body_and_never_the_front_matter(tmp_path: Path) -> None:
    package = write_package(tmp_path / "house-codes")
    assert read_initial(str(package / "SKILL.md")).text == BODY
    assert read_initial(str(package)).text == BODY
    plain = tmp_path / "notes.md"
    plain.write_text("---\na: b\n---\nText")
    assert read_initial(str(plain)).text == "---\na: b\n---\nText"


def test_another_front_matter_is_another_run(tmp_path: Path) -> None:
    runs = []
    for number, front in enumerate((FRONT, FRONT.replace("MIT", "BSD"))):
        package = write_package(tmp_path / str(number) / "house-codes", front)
        runs.append(train_sim(tmp_path / "out", *quick(tmp_path / "out"), f"train.init_skill={package}/SKILL.md").path)
    assert runs[0] != runs[1]
    export(RunDirectory(runs[1]), tmp_path / "house-codes")
    assert 'license: "BSD"' in (tmp_path / "house-codes" / "SKILL.md").read_text()


@pytest.mark.parametrize(
    ("front", "folder", "message"),
    [
        ("", "house-codes", "is not a skill package"),
        (FRONT, "other", "must be called that"),
        ("---\nname: X_y\ndescription: d\n---\n", "X_y", "cannot be a package's name"),
        ("---\nname: x\n---\n", "x", "description is empty"),
        ("---\nname: x\ndescription: d\ncolour: red\n---\n", "x", "unknown field 'colour'"),
        ("---\nname: [x\n---\n", "x", "not readable as YAML"),
        (f"---\nname: x\ndescription: {'d' * 1025}\n---\n", "x", "1025 characters; 1024 are allowed"),
    ],
)
def test_a_package_that_is_none_is_refused(front: str, folder: str, message: str, tmp_path: Path) -> None:
    package = write_package(tmp_path / folder, front)
    assert validate(package) != []
    with pytest.raises(skillopt.UserError, match=re.escape(message)):
        checked_package(package)
    done = command("train", "--package", str(package), "-c", str(SIM), f"env.output_root={tmp_path / 'out'}")
    assert done.returncode == 2
    assert not (tmp_path / "out").exists()


def test_an_import_copies_a_package_and_trains_nothing(tmp_path: Path) -> None:
    package = write_package(tmp_path / "house-codes")
    done = command("import", str(package), "--to", str(tmp_path / "mine"))
    assert done.returncode == 0, done.stderr
    assert f"skillopt train --package {tmp_path}/mine/house-codes" in done.stdout
    assert files(tmp_path / "mine" / "house-codes") == files(package)
    assert "exists already" in command("import", str(package), "--to", str(tmp_path / "mine")).stderr
    done = command("import", str(package), "-c", str(SIM))
    assert (done.returncode, "skillopt train --package" in done.stderr) == (2, True)


def test_an_export_never_writes_over_what_is_there_unasked(run: RunDirectory, tmp_path: Path) -> None:
    goal = tmp_path / "codes"
    goal.mkdir()
    (goal / "mine.txt").write_text("mine")
    with pytest.raises(skillopt.UserError, match="exists already"):
        export(run, goal)
    assert files(goal) == {"mine.txt": b"mine"}
    export(run, goal, overwrite=True)
    assert set(files(goal)) == {"mine.txt", "SKILL.md"}


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run whose package has further files."""
    folder = tmp_path_factory.mktemp("packaged")
    package = write_package(folder / "house-codes")
    return RunDirectory(train_sim(folder, *quick(folder), f"train.init_skill={package}").path)


def test_an_export_into_a_folder_that_is_there_follows_no_link_in_it(packaged: RunDirectory, tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside.txt", tmp_path / "outside"
    outside.write_text("kept")
    folder.mkdir()
    goal = tmp_path / "house-codes"
    goal.mkdir()
    (goal / "SKILL.md").symlink_to(outside)
    done = command("export", str(packaged.root), "--to", str(goal), "--overwrite")
    assert outside.read_text() == "kept"
    assert done.returncode == 0, done.stderr
    assert "Ticket codes" in (goal / "SKILL.md").read_text()
    first = next(name for name in packaged.read_best().others if "/" in name).split("/")[0]
    shutil.rmtree(goal / first)
    (goal / first).symlink_to(folder)
    done = command("export", str(packaged.root), "--to", str(goal), "--overwrite")
    assert list(folder.iterdir()) == []
    assert (done.returncode, f"{goal / first}: is not a folder" in done.stderr) == (2, True), done.stderr


def test_an_export_removes_no_folder_that_has_the_name_of_its_draft(run: RunDirectory, tmp_path: Path) -> None:
    mine = tmp_path / ".codes.tmp" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    export(run, tmp_path / "codes")
    assert mine.is_file()


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_export_that_cannot_be_written_leaves_no_draft(run: RunDirectory, tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "codes").write_text("a file")
    (tmp_path / "full" / "codes" / "SKILL.md").mkdir(parents=True)
    for goal in (tmp_path / "codes", tmp_path / "full" / "codes"):
        before = sorted(goal.parent.iterdir())
        done = command("export", str(run.root), "--to", str(goal), *["--overwrite"] * overwrite)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: {goal}"), done.stderr
        assert sorted(goal.parent.iterdir()) == before


def test_an_export_changes_no_file_of_its_run(packaged: RunDirectory) -> None:
    before = files(packaged.root)
    for name in ("package", "skills", "house-codes"):
        done = command("export", str(packaged.root), "--to", str(packaged.root / name), "--overwrite")
        assert (done.returncode, "is inside the run" in done.stderr) == (2, True), done.stderr
    assert files(packaged.root) == before


def test_a_folder_that_the_user_names_by_a_link_is_written_to(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "codes").symlink_to(tmp_path / "real")
    export(run, tmp_path / "codes")
    assert (tmp_path / "codes").is_symlink()
    assert "name: codes" in (tmp_path / "real" / "SKILL.md").read_text()


@given(st.text(max_size=60), st.text(alphabet="ab:-#\n '\"", max_size=60))
def test_any_text_is_taken_apart_and_put_together_unchanged(front: str, body: str) -> None:
    for text in (front + body, f"---\n{front}\n---\n{body}"):
        package = read_package(text)
        assert package.text == text
        assert package.with_body("x").text == package.front + "x"


@given(st.text(min_size=1, max_size=60).filter(lambda text: quoted(text) != '""'))
def test_a_new_description_is_read_back_and_its_neighbours_stay(text: str) -> None:
    package = Package(FRONT, BODY).with_description(text)
    fields = yaml.safe_load(package.front.split("---", 2)[1]) if "---" not in text else package.fields
    assert fields["description"] == json.loads(quoted(text))
    assert package.front.replace(re.search(r"description.*\r\n", package.front)[0], "") == re.sub(  # type: ignore[index]
        r"description(.|\r|\n)*?(?=license)", "", FRONT
    )


WORDS = ("invoice", "refund", "receipt", "payment", "billing")
OTHER = ("weather", "recipe", "poem", "garden", "football")


class Agent:
    """A target that picks the skill whose description has a word of the request; an optimizer that adds such words."""

    name, endpoint, deterministic = "test:agent", "test", True

    async def chat(self, request: ChatRequest) -> ChatReply:
        system, user = (str(m["content"]) for m in request.messages[:2])
        if request.schema is None:
            skills = re.findall(r"<name>(.*?)</name>\n<description>(.*?)</description>", system)
            words = set(re.findall(r"[a-z]+", user.lower())) - {"please", "my", "about", "the", "help", "with"}
            return ChatReply(text=next((n for n, d in skills if words & set(re.findall("[a-z]+", d.lower()))), "none"))
        if request.schema.name != "reflect":
            return ChatReply(text=json.dumps({"patterns": [], "edits": [], "guidance": "", "memory": "-"}))
        ids = re.findall(r'"id": ?"([^"]+)"', user)
        edits = [
            _edit(word, ids) for word in WORDS if f"the {word}" in user and f" {word}" not in user.split("</skill>")[0]
        ]
        return ChatReply(text=json.dumps({"patterns": [], "edits": edits[:4]}))

    async def close(self) -> None:
        return


def _edit(word: str, ids: list[str]) -> dict[str, Any]:
    text = f"Use it for questions about a {word}."
    common = {"section": "", "anchor": "", "rationale": "", "pattern": "left out", "impact": 0.5}
    return {"op": "add", "text": text, "trajectory_ids": ids, **common}


def requests(split: str) -> list[dict[str, Any]]:
    number = {"train": 0, "val": 1, "test": 2}[split]
    rows = []
    for word, answer in [(w, "use") for w in WORDS] + [(w, "leave") for w in OTHER]:
        rows += [f"{'Please ' * number}help {n} with the {word}" + f"|{answer}" for n in range(4)]
    pairs = [row.split("|") for row in rows]
    return [{"id": f"{split}{n}", "question": q, "answers": [a]} for n, (q, a) in enumerate(pairs)]


def test_training_the_description_raises_the_trigger_score_and_changes_that_line_alone(tmp_path: Path) -> None:
    package = write_package(tmp_path / "skills" / "house-codes")
    other = tmp_path / "skills" / "cook"
    other.mkdir()
    (other / "SKILL.md").write_text("---\nname: cook\ndescription: Any recipe.\n---\nCook.\n")
    for split in ("train", "val", "test"):
        (tmp_path / "data" / split).mkdir(parents=True)
        (tmp_path / "data" / split / "items.json").write_text(json.dumps(requests(split)))
    plain = Config.parse(
        {
            "train": {"init_skill": f"{package}/SKILL.md", "batch_size": 20, "num_epochs": 2},
            "env": {"split_dir": str(tmp_path / "data"), "output_root": str(tmp_path / "out")},
        }
    )
    config = for_description(plain)
    config = config.model_copy(
        update={"env": config.env.model_copy(update={"options": {**config.env.options, "others": str(other.parent)}})}
    )
    result = skillopt.train(config, models={"target": Agent(), "optimizer": Agent()})
    assert result.summary["initial"]["val"] == 0.5
    assert result.summary["best"]["test"] == 1.0
    assert result.best_skill.text.startswith("Codes of the house: which goes where.")
    export(RunDirectory(result.path), tmp_path / "b" / "house-codes")
    assert validate(tmp_path / "b" / "house-codes") == []
    old, new = files(package), files(tmp_path / "b" / "house-codes")
    assert {name for name in old if old[name] != new[name]} == {"SKILL.md"}
    made = read_package(new["SKILL.md"].decode())
    assert made.body == BODY
    assert "questions about a refund" in made.description
    assert made.front.endswith('license: "MIT"\r\nmetadata:\r\n  author: someone  # as it stands\r\n---\r\n')
    initial = json.loads((result.path / "evaluations" / "val_initial.json").read_text())
    assert initial["skill_hash"] == Skill("Codes of the house: which goes where.").hash


def test_a_description_that_no_agent_would_load_scores_nothing_and_asks_nobody(tmp_path: Path) -> None:
    package = write_package(tmp_path / "house-codes")
    for split in ("train", "val", "test"):
        (tmp_path / "data" / split).mkdir(parents=True)
        (tmp_path / "data" / split / "items.json").write_text(json.dumps(requests(split)))
    keys: dict[str, Any] = {
        "env": {"name": "trigger", "split_dir": str(tmp_path / "data"), "output_root": str(tmp_path)}
    }
    keys["env"]["options"] = {"package": str(package)}
    measured = skillopt.evaluate(keys, Skill("x " * 600), split="val", models={"target": Agent()})
    assert measured["score"] == 0
    assert measured["paid"]["calls"] == 0


LOADER = """import json, os, pathlib, re, sys
request = sys.stdin.read()
for file in sorted(pathlib.Path(os.environ["HOME"]).glob(".claude/skills/*/SKILL.md")):
    described = re.search("description: (.*)", file.read_text())[1]
    if any(word in described for word in request.split() if len(word) > 4):
        call = {"type": "tool_use", "id": "t", "name": "Skill", "input": {"skill": file.parent.name}}
        print(json.dumps({"type": "assistant", "message": {"content": [call]}}))
print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": "I used house-codes and cook."}))
"""


def test_with_a_coding_agent_the_trigger_metric_counts_what_it_really_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in loads by the words of the description, and claims in its last words that it used everything."""
    package = write_package(tmp_path / "skills" / "house-codes")
    (tmp_path / "skills" / "cook").mkdir()
    (tmp_path / "skills" / "cook" / "SKILL.md").write_text("---\nname: cook\ndescription: Any recipe.\n---\nCook.\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "claude").write_text(f"#!{sys.executable}\n{LOADER}")
    (tmp_path / "bin" / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    asked = [("a refund please", "use"), ("a recipe please", "leave"), ("my invoice please", "use")]
    rows = [{"id": f"q{n}", "question": f"{q} {n}", "answers": [a]} for n in range(4) for q, a in asked]
    data = tmp_path / "items.jsonl"
    data.write_text("".join(json.dumps({**row, "id": f"q{n}"}) + "\n" for n, row in enumerate(rows)))
    options = {"package": str(package), "others": str(tmp_path / "skills")}
    env = {"name": "trigger", "data": str(data), "output_root": str(tmp_path / "out"), "options": options}
    keys = {"env": {**env, "command": "claude-code"}}
    good = skillopt.evaluate(keys, Skill("Use for every refund and every invoice."), split="train")
    assert good["score"] == 1
    poor = skillopt.evaluate(keys, Skill("Use for every refund."), split="train")
    assert 0 < poor["score"] < 1
    with pytest.raises(UserError, match="must be a coding agent"):
        skillopt.evaluate({"env": {**env, "command": "cat"}}, Skill("x"), split="train")
