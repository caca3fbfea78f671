"""Makes tasks with checks from evals that people have written: skill-creator's evals.json, promptfoo, Inspect."""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from skillopt.errors import UserError
from skillopt.record.files import read_bytes
from skillopt.tasks.check_fields import MinedCheck
from skillopt.tasks.nested import at, text_of
from skillopt.tasks.promptfoo import read_promptfoo
from skillopt_harvest.records import Correction, MinedTask, short_id
from skillopt_harvest.redact import Redactor
from skillopt_harvest.sources.reading import LARGEST_FILE, session_id

Eval = tuple[str, MinedCheck | None]
"""A request and its check. The check is None if SkillOpt has no check of this kind."""


def read_evals(path: Path, source: str, redactor: Redactor, skipped: Counter[str]) -> list[MinedTask]:
    tasks = []
    skill, evals = EVALS[source](path)
    for number, (request, check) in enumerate(evals, 1):
        if check is None or not request.strip():
            skipped["evals whose check cannot be expressed"] += 1
            continue
        clean = check.model_copy(
            update={"values": tuple(map(redactor, check.values)), "unwanted": tuple(map(redactor, check.unwanted))}
        )
        if clean != check and check.kind != "rubric":  # no answer could pass a check with redacted words
            skipped["evals whose check holds a secret or personal data"] += 1
            continue
        text, name = redactor(request), session_id(path.stem[:40], redactor)
        case = Correction(
            source=source, session=name, line=number, last_line=number, request=text, rejected="", words=""
        )
        tasks.append(
            MinedTask(
                id=short_id(f"{source}/{text}/{check}"),
                rule=text[:200],
                check=clean,
                occurrences=(case,),
                skill=redactor(skill),
                written=True,
            )
        )
    return tasks


def _skill_creator(path: Path) -> tuple[str, Iterator[Eval]]:
    value = _json(path)

    def cases() -> Iterator[Eval]:
        for case in value.get("evals") or []:
            wanted = case.get("expectations") or case.get("assertions") or []
            lines = [at(each, "text") or each for each in wanted if isinstance(each, str | dict)]
            expected = str(case.get("expected_output") or "")
            rubric = "\n".join([*map(str, lines), f"Expected: {expected}" * bool(expected)]).strip()
            yield str(case.get("prompt") or ""), MinedCheck(kind="rubric", values=(rubric,)) if rubric else None

    return str(value.get("skill_name") or ""), cases()


def _promptfoo(path: Path) -> tuple[str, Iterator[Eval]]:
    return "", ((case.request, None if case.problem else case.check) for case in read_promptfoo(path))


def _inspect(path: Path) -> tuple[str, Iterator[Eval]]:
    def cases() -> Iterator[Eval]:
        for sample in _samples(path):
            given, target = at(sample, "input"), at(sample, "target")
            users = [each for each in given if at(each, "role") == "user"] if isinstance(given, list) else []
            request = text_of(at(users[-1], "content")) if users else text_of(given)
            answers = tuple(str(answer) for answer in _listed(target) if str(answer).strip())
            yield request, _inspect_check(at(sample, "scores"), answers) if answers else None

    return "", cases()


def _inspect_check(scores: Any, answers: tuple[str, ...]) -> MinedCheck:
    """Return the check that is most like the sample's scorer."""
    scorer = str(next(iter(scores), "")).rpartition("/")[2] if isinstance(scores, dict) else ""
    if scorer.startswith("model_graded"):
        return MinedCheck(kind="rubric", values=(f"The answer agrees with: {' / '.join(answers)}",))
    if scorer in {"includes", "match"}:
        return MinedCheck(kind="regex", values=tuple(f"(?i){re.escape(each)}" for each in answers))
    return MinedCheck(kind="exact", values=answers)


def _samples(path: Path) -> Iterator[Any]:
    """Yield the samples of a JSON log or of an `.eval` file, which is a zip with a file for each sample."""
    if path.suffix != ".eval":
        yield from _json(path).get("samples") or []
        return
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.filename.startswith("samples/") and info.file_size <= LARGEST_FILE:
                    yield json.loads(archive.read(info))
    except (zipfile.BadZipFile, ValueError) as error:
        raise UserError(f"{path}: is not a log of Inspect ({error})") from None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _json(path: Path) -> Any:
    if path.stat().st_size > LARGEST_FILE:
        raise UserError(f"{path}: has more than {LARGEST_FILE >> 20} MB, the limit for files that are read whole")
    try:
        value = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: must be a JSON object")
    return value


EVALS: dict[str, Callable[[Path], tuple[str, Iterator[Eval]]]] = {
    "skill-creator": _skill_creator,
    "promptfoo": _promptfoo,
    "inspect": _inspect,
}
