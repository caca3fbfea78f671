"""Python that an editor and a notebook understand: typed keywords with meanings, tables, one error with one message."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import skillopt
from skillopt.api import shows_progress
from skillopt.arguments import HEADING
from skillopt.config import Config
from support import REPO
from support.api import small

FUNCTIONS = ("Trainer", "train", "train_async", "evaluate", "evaluate_async", "compare", "compare_async", "replicate")
PARTS = {"agent", "analysts", "gate", "split", "vetoes"}
"""Keywords that may be objects, or that mean something else in a measurement."""
PROJECT = REPO / "examples" / "typed_project" / "train.py"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_config_key_is_a_keyword_with_its_type_default_and_meaning(name: str) -> None:
    function = getattr(skillopt, name)
    shown = inspect.signature(function).parameters
    text = inspect.getdoc(function.__init__ if inspect.isclass(function) else function) or ""
    meanings = dict(re.findall(r"^    (\w+): (.+)$", text.partition(HEADING)[2], re.MULTILINE))
    for section, model in Config():
        for key, value in () if section == "notes" else model:
            if key in Config.model_fields or (key in PARTS and "train" not in name.lower() and name != "replicate"):
                continue  # by its section alone
            assert key in shown, f"{name} has no {key}"
            assert shown[key].annotation, key
            assert meanings[key], key
            if key not in PARTS:
                assert shown[key].default == value, key
    assert {"tasks", "scorer", "agent", "env", "models", "budget", "progress"} <= shown.keys()


def test_a_result_prints_as_a_table_and_escapes_what_a_model_wrote(tmp_path: Path) -> None:
    result = skillopt.train(**small(tmp_path))
    lines = str(result).splitlines()
    assert repr(result) == str(result)
    assert lines[0] == result.verdict
    assert [line.split()[0] for line in lines[2:]] == ["val", "test", "tokens", "step", "cost", "run"]
    assert re.search(r"^val score +0\.\d\d +1\.00$", str(result), re.MULTILINE)
    summary = result.summary.model_copy(update={"verdict": "<script>alert(1)</script>"})
    html = dataclasses.replace(result, summary=summary)._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert html.count("<tr>") == 6


def test_progress_is_shown_where_somebody_watches_unless_the_program_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shows_progress(None) is False  # a script whose output goes into a file
    skillopt.train(**small(tmp_path / "quiet"))
    assert capsys.readouterr().out == ""
    skillopt.train(**small(tmp_path / "loud"), progress=True)
    assert "Step 1/" in capsys.readouterr().out
    skillopt.evaluate(None, skillopt.Skill(""), **small(tmp_path / "measured"), split="val", progress=True)
    assert "on 12 val items" in capsys.readouterr().out
    with monkeypatch.context() as patched:
        patched.setattr(sys.stdout, "isatty", lambda: True)
        assert (shows_progress(None), shows_progress(False)) == (True, False)
    kernel = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", kernel)  # type: ignore[arg-type]
    assert (shows_progress(None), shows_progress(False)) == (True, False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda out: skillopt.train(epochs=3), "did you mean 'num_epochs'?"),
        (lambda out: skillopt.train("nowhere.yaml"), "nowhere.yaml: no such config file"),
        (lambda out: skillopt.train(tasks="nowhere.csv"), "nowhere.csv: no such file"),
        (lambda out: skillopt.train(**small(out) | {"batch_size": "many"}), "valid integer"),
        (lambda out: skillopt.Trainer(budget={"max_usdd": 3}), "did you mean 'max_usd'?"),
        (lambda out: skillopt.evaluate(None, "nowhere.md", **small(out)), "does not exist"),
        (lambda out: skillopt.compare(None, skillopt.Skill(""), "nowhere.md", **small(out)), "does not exist"),
        (lambda out: skillopt.replicate(**small(out), scorer=3), "scorer: 3 is neither"),
        (lambda out: skillopt.train(**small(out), max_calls=5), "budget.max_calls: the limit of 5"),
    ],
)
def test_an_error_is_one_exception_with_one_message(tmp_path: Path, call: Callable[[Path], Any], message: str) -> None:
    with pytest.raises(skillopt.SkillOptError) as caught:
        call(tmp_path)
    assert message in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    files = [entry.path.name for entry in caught.traceback]
    assert set(files) == {Path(__file__).name, "sync.py"}, "only the caller's own frames, and the one that raises"


IMPORT = re.compile(r"^[ ]*(?:from|import) +(skillopt\w*[\w.]+)", re.MULTILINE)
DIFF = re.compile(r"^```diff\n.*?^```$", re.DOTALL | re.MULTILINE)
"""Changes to SkillOpt itself."""


def test_the_docs_and_examples_import_nothing_but_public_names() -> None:
    pages = [REPO / "README.md", *(REPO / "docs").glob("*.md"), *(REPO / "agent").rglob("*.md")]
    programs = [path for ext in ("py", "md", "ipynb") for path in (REPO / "examples").rglob(f"*.{ext}")]
    templates = [*(REPO / "src/skillopt/preflight/templates").rglob("*.txt")]
    assert len(pages) > 20
    assert programs
    assert templates
    found = {
        str(path.relative_to(REPO)): names
        for path in [*pages, *programs, *templates]
        if (names := [name for name in IMPORT.findall(DIFF.sub("", path.read_text())) if name != "skillopt"])
    }
    assert found == {}


def test_the_typed_example_runs(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, PROJECT], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "step 1: accept" in done.stdout
    assert re.search(r"^test score +0\.00 +1\.00$", done.stdout, re.MULTILINE)


WRONG = """import skillopt
skillopt.train(num_epochs="two")
skillopt.train(num_epoch=2)
skillopt.train(budget={"max_usdd": 2})
skillopt.evaluate(None, "", evaluation={"metric": "weird"})
skillopt.Trainer(models={"target": 3})
"""


@pytest.mark.slow
def test_the_typed_example_passes_a_strict_check_and_wrong_keywords_do_not(tmp_path: Path) -> None:
    from mypy import api

    (tmp_path / "wrong.py").write_text(WRONG)
    files = [str(PROJECT), str(tmp_path / "wrong.py")]
    shown, _, _ = api.run(["--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"), *files])
    assert "typed_project" not in shown, shown
    assert sorted({int(line) for line in re.findall(r"wrong\.py:(\d+): error", shown)}) == [2, 3, 4, 5, 6], shown
