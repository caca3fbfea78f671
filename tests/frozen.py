"""What eight trainings and checks decide, as hashes: a change that only moves code leaves them equal.

    python tests/frozen.py            # compare with tests/data/frozen.json; exit code 1 if something differs
    python tests/frozen.py --write    # after a change that is meant to change results: write the new hashes

Each case runs the command line in a folder of its own. Its hash covers every version of the skill, each step's decision
and scores, and the requests that were sent (keys of the journal). Record bytes, costs and wording are not part of it.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

REPO = Path(__file__).resolve().parents[1]
for place in ("tests", "bench"):
    sys.path.insert(0, str(REPO / place))

from learning.cells import Cell  # noqa: E402
from learning.recording import Recording, recording_of  # noqa: E402
from learning.run import Job, run_cell  # noqa: E402

import skillopt as package  # noqa: E402
from support import SIM, skillopt  # noqa: E402
from support.checking import HEAD, write_skill  # noqa: E402

KNOWN = REPO / "tests" / "data" / "frozen.json"
QUICKSTART = REPO / "tests" / "data" / "quickstart_replies.jsonl"
ONE_BY_ONE = ("hardware.workers=1", "gradient.analyst_workers=1")
"""A gate that stops early has then always sent the same requests."""
WORKSPACES = REPO / "configs" / "workspaces" / "default.yaml"


def run_facts(run: Path) -> dict[str, Any]:
    """What must not change when code moves."""
    skills = {path.name: _hash(path.read_bytes()) for path in sorted(run.glob("skills/skill_v*"))}
    steps = [
        [row["step"], row["verdict"], row["val_after"], row["train_score"], row["learning_rate"]["used"]]
        for row in json.loads((run / "history.json").read_text())
    ]
    with closing(sqlite3.connect(f"{(run / 'journal.sqlite').resolve().as_uri()}?mode=ro", uri=True)) as journal:
        keys = journal.execute("SELECT key, attempt, role FROM replies ORDER BY key, attempt").fetchall()
    summary = json.loads((run / "summary.json").read_text())
    scores = [[summary[skill][split] for split in ("val", "test")] for skill in ("initial", "best")]
    return {
        "skills": skills,
        "best": _hash((run / "best_skill.md").read_bytes()),
        "steps": steps,
        "scores": scores,
        "requests": len(keys),
        "request_hash": _hash(json.dumps(keys).encode()),
    }


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def train(out: Path, config: Path, *overrides: str, command: tuple[str, ...] = ("train",)) -> dict[str, Any]:
    done = skillopt(*command, "--config", str(config), f"env.output_root={out / 'runs'}", *ONE_BY_ONE, *overrides)
    assert done.returncode == 0, done.stdout + done.stderr
    (state,) = (out / "runs").glob("*/*/runtime_state.json")
    return run_facts(state.parent)


def sim_quiet(out: Path) -> dict[str, Any]:
    return train(out, SIM, "train.num_epochs=2")


def sim_noisy(out: Path) -> dict[str, Any]:
    return train(out, SIM, "train.num_epochs=2", "models.target_model=sim:world?noise=0.1")


def skill_package(out: Path) -> dict[str, Any]:
    files = {
        "SKILL.md": "---\nname: codes\ndescription: Codes of the house. Use for tickets.\n---\n# Codes\n\n"
        "Answer with the codes alone, separated by single spaces. More: references/codes.md\n",
        "references/codes.md": "# Codes\n\n- For maple, answer ZZ-99.\n",
    }
    for name, text in files.items():
        (out / "codes" / name).parent.mkdir(parents=True, exist_ok=True)
        (out / "codes" / name).write_text(text)
    return train(out, SIM, f"train.init_skill={out / 'codes'}", "train.num_epochs=2", "train.batch_size=24")


def workspace(out: Path) -> dict[str, Any]:
    return train(out, WORKSPACES, "train.num_epochs=2")


def handoff_replay(out: Path) -> dict[str, Any]:
    cell = Cell(set="tickets", target="0.5b", optimizer="handoff", method="ours", seed=2)
    recording = Recording.read(recording_of(cell))
    result = run_cell(Job(cell=cell, out=out, recording=recording))
    assert not result.error, result.error
    (state,) = out.glob("*/runs/*/*/runtime_state.json")
    return {**run_facts(state.parent), "changed_requests": recording.changed}


def quickstart_replay(out: Path) -> dict[str, Any]:
    model = Recording.read(QUICKSTART).model("target")
    config = package.Config.load(REPO / "configs" / "quickstart" / "default.yaml", [f"env.output_root={out}"])
    return run_facts(package.train(config, models={"target": model}).path)


def judge(out: Path) -> dict[str, Any]:
    rows = [{"id": f"q{n}", "question": f"Answer letter {n}."} for n in range(15)]
    (out / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    env = {
        "data": str(out / "tasks.jsonl"),
        "split": {"train": 1, "val": 1, "test": 1},
        "scoring": "judge",
        "scoring_options": {"rubric": "It must be friendly."},
    }
    (out / "config.yaml").write_text(json.dumps({"train": {"num_epochs": 1, "batch_size": 5}, "env": env}))
    models = ["models.target_model=vllm:writer", "models.optimizer_model=vllm:judge"]
    with _endpoint() as port:
        url = f"hardware.vllm_url=http://127.0.0.1:{port}/v1"
        return train(out, out / "config.yaml", *models, url, "models.target_deterministic=true")


class _Friendly(BaseHTTPRequestHandler):
    """An endpoint that writes letters, judges them by one word, and proposes the rule that helps."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        schema = body.get("response_format", {}).get("json_schema")
        text = body["messages"][-1]["content"]
        if schema is None:
            reply = "a kind answer" if "kind" in body["messages"][0]["content"] else "an answer"
        elif schema["name"] == "judge":
            kind = "kind" in json.loads(text.partition("answer: ")[2].splitlines()[0])
            reply = json.dumps({"reason": "kind" if kind else "it is not friendly", "score": 4 if kind else 1})
        elif schema["name"] == "meta_skill":
            reply = json.dumps({"memory": "The judge likes kind answers."})
        else:
            patterns = schema["schema"]["properties"]["patterns"]
            ids = patterns["items"]["properties"]["trajectory_ids"]["items"]["enum"]
            edit = {"op": "add", "section": "Tone", "anchor": "", "text": "Give kind answers.", "rationale": "r"}
            edit |= {"pattern": "tone", "trajectory_ids": ids[:1], "impact": 1}
            reply = json.dumps({"patterns": [], "edits": [edit]})
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}
        data = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 9}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def _endpoint() -> Iterator[int]:
    # The port is part of a request's key: a fixed one, like the endpoint of a real provider.
    server = ThreadingHTTPServer(("127.0.0.1", 28461), _Friendly)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def check(out: Path) -> dict[str, Any]:
    """A better, an equal and a worse skill, against the same base, with a noisy target."""
    base = write_skill(out / "base.md", 10)
    facts = {}
    for name, known in {"better": 14, "equal": 10, "worse": 7}.items():
        new = write_skill(out / f"{name}.md", known, head=HEAD.replace("alone", "only"))
        noisy = "models.target_model=sim:world?noise=0.1"
        place = [f"env.output_root={out / name}", "--out", str(out / f"{name}-out")]
        done = skillopt("check", str(new), "--base", str(base), "--config", str(SIM), noisy, *place, *ONE_BY_ONE)
        [entry] = json.loads((out / f"{name}-out" / "check.json").read_text())
        result = entry["result"]
        facts[name] = [done.returncode, *(result[key] for key in ("verdict", "difference", "measured", "rollouts"))]
    return facts


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    case.__name__: case
    for case in (sim_quiet, sim_noisy, skill_package, workspace, handoff_replay, quickstart_replay, judge, check)
}


def facts_of(name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        facts: dict[str, Any] = json.loads(json.dumps(CASES[name](Path(folder))))
        return facts


def main() -> int:
    write = "--write" in sys.argv
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    found = {name: facts_of(name) for name in CASES}
    for name, facts in found.items():
        differs = [key for key in facts if facts[key] != known.get(name, {}).get(key)]
        print(f"{name}: {'differs in ' + ', '.join(differs) if differs else 'the same'}", flush=True)
    if write:
        KNOWN.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if write or found == known else 1


if __name__ == "__main__":
    raise SystemExit(main())
