"""SearchQA's published file with tasks of the simulated world, so that simulated models can train on it."""

from __future__ import annotations

import gzip
import json

from skillopt.sim.env import SimWorld, make_splits


def published_file(items: int, rules: int = 20) -> bytes:
    """The file as MRQA has it, packed; the ids are train-000, train-001 and so on."""
    rows: list[object] = [{"header": {"dataset": "SearchQA"}}]
    for item in make_splits(SimWorld(rules=rules, train=items, val=1, test=1))["train"]:
        asked = {"qid": item.id, "question": item.question, "answers": list(item.answers)}
        rows.append({"context": "[DOC] [TLE] Codes [PAR] The page says nothing of them.", "qas": [asked]})
    return gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), mtime=0)
