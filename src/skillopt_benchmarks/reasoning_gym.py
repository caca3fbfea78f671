"""reasoning-gym: puzzles of any of its families, stored as JSON, with strict scores.

Some families make different items in every process, so the items are stored. Some scorers give partial credit to a
longer text that contains the right answer, so `hard` is 1 only if the score is at least 0.99. If a scorer raises an
error, the answer is wrong. Some scorers evaluate the answer as Python or SymPy code; SkillOpt gives them only answers
that are plain arithmetic or plain data.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from skillopt.config import EnvConfig
from skillopt.errors import UserError
from skillopt.tasks.base import Item, Score
from skillopt.tasks.qa import QAEnv
from skillopt.tasks.scoring import extract_answer
from skillopt_benchmarks.rows import read_rows

HOW_TO_GET = "make it with `skillopt data generate reasoning_gym --families chain_sum,gcd --out FOLDER`"
HARD = 0.99
Entry = Mapping[str, Any]
"""A row as the generator made it. The scorer of its family needs the row."""
_EVALUATING = {
    "string_insertion", "spiral_matrix", "binary_matrix", "n_queens", "simple_integration", "intermediate_integration",
    "polynomial_multiplication", "puzzle24", "countdown",
}  # fmt: skip
_FUNCTIONS = {"sin", "cos", "tan", "exp", "log", "ln", "sqrt", "sec", "csc", "cot", "Abs", "asin", "acos", "atan", "pi"}
_PLAIN = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Load, ast.UnaryOp, ast.USub, ast.UAdd, ast.BinOp, ast.Add,
    ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.Name, ast.Call, ast.Mod,
)  # fmt: skip


class ReasoningGymEnv(QAEnv):
    """Puzzles of reasoning-gym. An item has `family` and `entry`, the generator's row, which the scorer needs."""

    task = "Each task is a small reasoning puzzle of one of several families."
    scoring = "Each family has its own check of the last <answer>…</answer> tag, or of the whole reply without one."

    def __init__(self, config: EnvConfig) -> None:
        library()
        super().__init__(config, read_rows(config, ("family", "entry"), HOW_TO_GET))

    def score(self, item: Item, output: str) -> Score:
        return score_answer(str(item.get("family")), item.get("entry"), extract_answer(output))


def library() -> Any:
    try:
        import reasoning_gym
    except ImportError:
        raise UserError("env.name: reasoning_gym needs its package: pip install 'skillopt[reasoning_gym]'") from None
    return reasoning_gym


def score_answer(family: str, entry: Entry, answer: str) -> Score:
    """Score an answer with the scorer of the puzzle's family. If the score is at least 0.99, the answer is right; a
    lower score is partial credit."""
    gold = entry.get("answer")
    expected = "" if gold is None else f'expected "{gold}"'
    if family in _EVALUATING and answer != gold and not is_plain(answer):
        return Score(hard=0, soft=0, feedback=expected or "the answer is not a plain expression")
    try:
        value = float(_scorer(family)(answer, entry))
    except Exception as error:  # any error of a family's scorer on an unexpected text
        return Score(hard=0, soft=0, feedback=expected or f"the answer cannot be read ({type(error).__name__})")
    if value >= HARD:
        return Score(hard=1, soft=1)
    return Score(hard=0, soft=min(1.0, max(0.0, value)), feedback=expected or "the answer does not solve the task")


@lru_cache(None)
def _scorer(family: str) -> Any:
    return library().get_score_answer_fn(family)


def is_plain(text: str) -> bool:
    """Return True if the text has only numbers, lists, single letters and common functions, and no large powers."""
    if len(text) > 2000:
        return False
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    texts = any(isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) for node in nodes)
    if texts and any(isinstance(node, ast.BinOp) for node in nodes):
        return False  # a text times a number could be very long
    return len(nodes) < 400 and all(isinstance(node, _PLAIN) and _harmless(node) for node in nodes)


def _harmless(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return len(node.id) == 1 or node.id in _FUNCTIONS
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return abs(node.value) < 10**30
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        below = [part for part in ast.walk(node) if part is not node]
        powers = any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Pow) for part in below)
        sizes = [part.value for part in ast.walk(node.right) if isinstance(part, ast.Constant)]
        return not powers and all(isinstance(size, int | float) and abs(size) <= 64 for size in sizes)
    return True


def generate(families: Sequence[str], seed: int, sizes: Mapping[str, int]) -> dict[str, list[Item]]:
    """Make the items of each split, alternating between families. Every stored answer has the scorer's full score."""
    gym = library()
    available = set(gym.factory.DATASETS)
    if unknown := [name for name in families or ("",) if name not in available]:
        raise UserError(f"--families: unknown '{unknown[0]}'; reasoning-gym has: {', '.join(sorted(available))}")
    need = sum(sizes.values())
    pools = {name: _pool(gym, name, seed, need) for name in families}
    splits: dict[str, list[Item]] = {}
    drawn = dict.fromkeys(families, 0)
    for split, size in sizes.items():
        splits[split] = []
        for number in range(size):
            name = families[number % len(families)]
            if drawn[name] >= len(pools[name]):
                raise UserError(f"--families: {name} has only {len(pools[name])} different tasks; ask for fewer items")
            entry = pools[name][drawn[name]]
            drawn[name] += 1
            splits[split].append(_item(name, entry, f"{name}-{seed}-{drawn[name]:04d}"))
    return splits


def _pool(gym: Any, name: str, seed: int, need: int) -> list[Entry]:
    """Return tasks of a family, without duplicates, that can be stored as JSON and read back."""
    pool: list[Entry] = []
    seen: set[str] = set()
    for entry in _frozen(gym, name, seed, need * 3 + 20):
        text = " ".join(entry["question"].casefold().split())
        if text in seen or len(pool) >= need:
            continue
        seen.add(text)
        gold = entry.get("answer")
        if gold is None or score_answer(name, entry, str(gold)).hard == 1:
            pool.append(entry)
    if not pool:
        raise UserError(
            f"--families: {name} cannot be used, because its scorer rejects right answers that were stored as JSON; "
            "choose a different family"
        )
    return pool


def _frozen(gym: Any, name: str, seed: int, count: int) -> Sequence[Entry]:
    dataset = gym.create_dataset(name, size=count, seed=seed)
    rows = []
    for number in range(count):
        try:
            rows.append(json.loads(json.dumps(dataset[number], default=str)))
        except (TypeError, ValueError):
            continue  # an item that cannot be stored
    return rows


def _item(family: str, entry: Entry, identity: str) -> Item:
    gold = entry.get("answer")
    answers = [] if gold is None else [str(gold)]
    return Item.model_validate(
        {
            "id": identity,
            "question": entry["question"],
            "answers": answers,
            "type": family,
            "family": family,
            "entry": entry,
        }
    )
