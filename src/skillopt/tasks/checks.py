"""Scorers of the workspace that a rollout left. `files` compares files with expected files of the same names. `command`
runs a check command."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from skillopt.config.options import Options
from skillopt.errors import SkillOptError, UserError
from skillopt.processes.process import split_command
from skillopt.tasks.base import Item, Score, Scorer, ScorerError, score_of
from skillopt.tasks.sandbox import Mode, Sandbox, SandboxLimits
from skillopt.tasks.workspace import Files, WorkspaceStart, bytes_of, hash_of, read_files

_MOST = 64 << 20
_LONGEST_FEEDBACK = 2000


# Expected files, by name


class FilesOptions(Options):
    """Options of `env.scoring: files` (`env.scoring_options`)."""

    only: bool = False
    """Fail a task if its workspace has files that are not expected and were not there at the start."""
    sandbox: Mode = "namespaces"


class FilesCheck(Scorer):
    """Compares the files that a rollout left with the item's `expected`: a folder, or an object of path → text. The
    text of a file that must not exist is null.

    JSON is compared as a value, CSV by its cells, xlsx by its cells' values, any other file as text.
    """

    needs_workspace = True
    description = (
        "The files that the agent leaves are compared with the expected ones by name: text by its lines, JSON as a "
        "value, CSV and xlsx by their cells. All must be right; the partial score is the share that is."
    )

    def __init__(self, options: FilesOptions, root: Path) -> None:
        self._options = options
        self._root = root
        self._expected: dict[str, Files] = {}
        self._sandbox: Sandbox | None = None

    def check(self, splits: Mapping[str, Sequence[Item]]) -> None:
        prints = []
        for item in (item for items in splits.values() for item in items):
            where = f"item '{item.id}': expected"
            expectation = item.get("expected")
            if not expectation:
                raise UserError(
                    f"{where}: is missing; with env.scoring=files, it must be a folder or an object {{path: text}}"
                )
            texts = expectation if isinstance(expectation, Mapping) else {}
            gone = [name for name, text in texts.items() if text is None]
            wanted = {name: text for name, text in texts.items() if text is not None} if texts else expectation
            files = read_files(wanted, self._root, where, _MOST)
            self._expected[item.id] = {**files, **dict.fromkeys(gone, b"\0gone")}
            prints += [name + hash_of(content) for name, content in self._expected[item.id].items()]
            if any(name.lower().endswith(".xlsx") for name in files):
                self._sandbox = self._sandbox or Sandbox(mode=self._options.sandbox)
        self.fingerprint = "".join(prints)

    async def score_files(self, item: Item, output: str, workspace: Path) -> Score:
        expected = self._expected[item.id]
        problems = []
        for name, content in expected.items():
            problem = await self._problem(workspace / name, bytes_of(content), name)
            problems += [f"{name}: {problem}"] if problem else []
        if self._options.only and not problems:
            starts = (read_files(item.get(key), self._root, key, _MOST) for key in ("workspace", "files"))
            allowed = {*expected, *(name for files in starts for name in files)}
            present = (p.relative_to(workspace).as_posix() for p in sorted(workspace.rglob("*")) if p.is_file())
            problems += [f"{name}: should not be there" for name in present if name not in allowed][:5]
        soft = max(0.0, 1 - len(problems) / len(expected))
        return Score(hard=float(not problems), soft=soft, feedback="; ".join(problems)[:_LONGEST_FEEDBACK])

    async def _problem(self, file: Path, want: bytes, name: str) -> str:
        if want == b"\0gone":
            return "should be gone" if file.exists() else ""
        if not file.is_file():
            return "is missing"
        got = file.read_bytes()
        if name.lower().endswith(".xlsx"):
            assert self._sandbox is not None
            return (await compare_workbooks(self._sandbox, got, want))[0]
        return compare_files(name, got, want)


def compare_files(name: str, got: bytes, want: bytes) -> str:
    """The first difference between a file and the expected one; empty if there is none."""
    suffix = name.rpartition(".")[2].lower()
    try:
        has, wants = got.decode("utf-8-sig"), want.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "" if got == want else f"has other bytes ({len(got)} of them, expected {len(want)})"
    if suffix == "json":
        return _compare_json(has, wants)
    if suffix in {"csv", "tsv"}:
        return _compare_rows(has, wants, "\t" if suffix == "tsv" else ",")
    return _compare_lines(has.splitlines(), wants.splitlines())


def _compare_lines(has: list[str], wants: list[str]) -> str:
    has, wants = _trimmed(has), _trimmed(wants)
    for number, (line, wanted) in enumerate(zip(has, wants, strict=False), 1):
        if line != wanted:
            return f"line {number} is {line[:200]!r}, expected {wanted[:200]!r}"
    return "" if len(has) == len(wants) else _length(len(has), len(wants), "lines")


def _trimmed(lines: list[str]) -> list[str]:
    """The lines without spaces at their ends and without empty lines at the end of the file."""
    stripped = [line.rstrip() for line in lines]
    while stripped and not stripped[-1]:
        stripped.pop()
    return stripped


def _length(has: int, wants: int, what: str) -> str:
    return f"has {has} {what}, expected {wants}"


def _compare_rows(has: str, wants: str, delimiter: str) -> str:
    try:
        rows, wanted = (list(csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)) for text in (has, wants))
    except csv.Error as error:
        return f"is not readable as a table: {error}"
    rows, wanted = [row for row in rows if row], [row for row in wanted if row]
    for number, (row, right) in enumerate(zip(rows, wanted, strict=False), 1):
        if [cell.strip() for cell in row] != [cell.strip() for cell in right]:
            return f"row {number} is {delimiter.join(row)[:200]!r}, expected {delimiter.join(right)[:200]!r}"
    return "" if len(rows) == len(wanted) else _length(len(rows), len(wanted), "rows")


def _compare_json(has: str, wants: str) -> str:
    try:
        got = json.loads(has)
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    return _other_value(got, json.loads(wants), "")


def _other_value(got: Any, want: Any, path: str) -> str:
    if isinstance(want, dict) and isinstance(got, dict):
        if missing := sorted(want.keys() - got.keys()):
            return f"{path or 'the object'} has no {missing[0]!r}"
        if more := sorted(got.keys() - want.keys()):
            return f"{path or 'the object'} has {more[0]!r}, which is not expected"
        return next(
            (difference for key in want if (difference := _other_value(got[key], want[key], f"{path}.{key}"))), ""
        )
    if isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            return f"{path or 'the list'} {_length(len(got), len(want), 'values')}"
        pairs = enumerate(zip(got, want, strict=True))
        return next((difference for n, (a, b) in pairs if (difference := _other_value(a, b, f"{path}[{n}]"))), "")
    same = got == want and isinstance(got, bool) == isinstance(want, bool)
    return "" if same else f"{path or 'the value'} is {got!r}, expected {want!r}"


CELLS = Path(__file__).with_name("cells.py")
"""The program that compares workbooks in the sandbox."""


async def compare_workbooks(sandbox: Sandbox, got: bytes, want: bytes, position: str = "") -> tuple[str, bool]:
    """Compare two workbooks. Returns the first difference in words (empty if there is none) and whether a cell of the
    position has a formula. Workbooks are read in the sandbox, because an agent's files are not trusted."""
    program = CELLS.read_text(encoding="utf-8")
    spec = json.dumps({"position": position}).encode()
    try:
        done = await sandbox.run(program, files={"got.xlsx": got, "want.xlsx": want, "spec.json": spec})
    except SkillOptError as error:
        raise ScorerError(f"the workbooks could not be compared: {error}") from None
    if not done.ok:
        return f"the workbook cannot be read: {done.reason}", False
    difference, formula = json.loads(done.stdout)
    return str(difference), bool(formula)


# A command


class CommandCheckOptions(Options):
    """Options of `env.scoring: command` (`env.scoring_options`)."""

    command: str | list[str] = ""
    files: str = ""
    timeout: int = Field(default=60, ge=1)
    limits: SandboxLimits = SandboxLimits()
    sandbox: Mode = "namespaces"
    pass_at: float = Field(default=1.0, gt=0, le=1)


class CommandCheck(Scorer):
    """Runs the check command in the sandbox, in a copy of the workspace. `$SKILLOPT_CHECK` is a folder with the check's
    own files, the agent's last message in `output.txt` and the item in `item.json`.

    The last line of the command's output may be JSON: a number or {score, feedback}. If it is not JSON, exit code 0
    means right and 1 means wrong. Any other exit code means that the check itself failed; the item is then set aside.
    """

    needs_workspace = True
    description = "A command looks at the files that the agent leaves and gives the score."

    def __init__(self, options: CommandCheckOptions, root: Path) -> None:
        self._options = options
        self._root = root
        self._sandbox = Sandbox(options.limits.model_copy(update={"seconds": options.timeout}), mode=options.sandbox)
        self._files: dict[str, Files] = {}

    def check(self, splits: Mapping[str, Sequence[Item]]) -> None:
        prints = []
        for item in (item for items in splits.values() for item in items):
            self._command(item)
            folder = self._folder(item)
            if folder not in self._files:
                own = folder != self._options.files
                where = f"item '{item.id}': check_files" if own else "env.scoring_options.files"
                self._files[folder] = read_files(folder, self._root, where, _MOST)
                prints += [name + hash_of(content) for name, content in self._files[folder].items()]
        self.fingerprint = "".join(prints)

    def _folder(self, item: Item) -> str:
        return str(item.get("check_files") or self._options.files)

    def _command(self, item: Item) -> str | list[str]:
        command = item.get("check") or self._options.command
        if not isinstance(command, str | list) or not command:
            raise UserError(
                f"item '{item.id}': check: is missing; with env.scoring=command, put a command line into this field, "
                "or set env.scoring_options.command for all tasks"
            )
        split_command(command, f"item '{item.id}': check", "write it as a list: [python, check.py]")
        return command if isinstance(command, str) else [str(word) for word in command]

    async def score_files(self, item: Item, output: str, workspace: Path) -> Score:
        check_folder = workspace.parent / "check"
        WorkspaceStart(files=self._files[self._folder(item)], executable=frozenset(), digest="").write_to(check_folder)
        (check_folder / "output.txt").write_text(output, encoding="utf-8", errors="replace")
        (check_folder / "item.json").write_text(item.model_dump_json(), encoding="utf-8")
        try:
            done = await self._sandbox.shell(
                self._command(item),
                workspace,
                others={"check": check_folder},
                variables={"SKILLOPT_CHECK": "check"},
                keep="",
            )
        except SkillOptError as error:
            raise ScorerError(f"the check could not be run: {error}") from None
        return read_result(done.stdout, done.stderr, done.code, done.reason, self._options.pass_at)


def read_result(stdout: str, stderr: str, code: int, reason: str, pass_at: float = 1.0) -> Score:
    """The score of a check: from the JSON on the last line of its output, else from its exit code."""
    printed = stdout.strip().splitlines()
    value = _score_in(printed[-1] if printed else "")
    if value is not None:
        try:
            score = score_of(value, pass_at)
        except ValueError as error:
            raise ScorerError(f"the check failed: {error}") from None
        return score.model_copy(update={"feedback": score.feedback[:_LONGEST_FEEDBACK]})
    if code not in {0, 1}:
        last = (stderr.strip().splitlines() or printed or [""])[-1]
        raise ScorerError(f"the check failed: {reason or f'exit code {code}'}{f' ({last[:200]})' if last else ''}")
    tail = "\n".join((stdout.strip() + "\n" + stderr.strip()).strip().splitlines()[-15:])
    return Score(hard=float(code == 0), soft=float(code == 0), feedback="" if code == 0 else tail[-_LONGEST_FEEDBACK:])


def _score_in(line: str) -> Any:
    """The score on a line, if it is JSON with a score; else None."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    named = isinstance(value, dict) and value.keys() & {"score", "reward", "hard", "soft"}
    return value if named or isinstance(value, int | float) else None
