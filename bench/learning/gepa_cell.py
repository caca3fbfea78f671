"""One run of gepa 0.1.4 on a task set, in a venv that has gepa and nothing of ours: python gepa_cell.py JOB.json.

run.py writes the job and reads the result. Target replies and reflections are recorded next to the job: a run that was
interrupted repeats what it had from the record and continues.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import gepa
from gepa.core.adapter import EvaluationBatch
from scoring import SCORERS


class Record:
    """What was asked and answered, one line of JSON each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("}")]
        self._known = {row["asked"]: row["reply"] for row in rows}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, asked: str) -> str | None:
        return self._known.get(asked)

    def put(self, asked: str, reply: str) -> str:
        self._known[asked] = reply
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"asked": asked, "reply": reply}) + "\n")
        return reply


class Target:
    """target.py in a process of its own, started when the record does not have a reply."""

    def __init__(self, command: list[str], record: Record) -> None:
        self._command = command
        self._record = record
        self._process: subprocess.Popen[str] | None = None

    def ask(self, skill: str, question: str) -> str:
        request = json.dumps({"skill": skill, "question": question})
        if (known := self._record.get(request)) is not None:
            return known
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(request, file=self._process.stdin, flush=True)
        return self._record.put(request, json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


class Adapter:
    """What gepa asks of a system: rollouts, their scores, and the examples that the reflection model is shown."""

    propose_new_texts = None

    def __init__(self, target: Target, scorer: str) -> None:
        self._target = target
        self._feedback = SCORERS[scorer]
        self.rollouts = 0

    def evaluate(self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        self.rollouts += len(batch)
        outputs = [self._target.ask(candidate["skill"], item["question"]) for item in batch]
        told = [self._feedback(output, item["answer"]) for output, item in zip(outputs, batch, strict=True)]
        rows = zip(batch, outputs, told, strict=True)
        traces = [{"question": item["question"], "output": output, "feedback": text} for item, output, text in rows]
        scores = [float(not text) for text in told]
        return EvaluationBatch(outputs=outputs, scores=scores, trajectories=traces if capture_traces else None)

    def make_reflective_dataset(self, candidate: Any, found: Any, components: list[str]) -> Any:
        rows = [
            {
                "Inputs": trace["question"],
                "Generated Outputs": trace["output"],
                "Feedback": trace["feedback"] or "right",
            }
            for trace in found.trajectories
        ]
        return dict.fromkeys(components, rows)


class Reflection:
    """The optimizer behind an endpoint of the OpenAI form."""

    def __init__(self, url: str, model: str, timeout: float, record: Record) -> None:
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._model = model
        self._timeout = timeout
        self._record = record
        self.requests = 0

    def __call__(self, prompt: Any) -> str:
        self.requests += 1
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        body = json.dumps({"model": self._model, "messages": messages})
        # The same letter may come twice, and another reply is then wanted: the count is part of what was asked.
        asked = f"{self.requests}: {body}"
        if (known := self._record.get(asked)) is not None:
            return known
        request = urllib.request.Request(self._url, body.encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=self._timeout) as answer:
            return self._record.put(asked, str(json.load(answer)["choices"][0]["message"]["content"]))


class Proposals:
    """The score of each proposal on the selection split; None where gepa's minibatch already ruled it out."""

    def __init__(self) -> None:
        self.val: list[float | None] = []

    def on_candidate_rejected(self, event: Any) -> None:
        self.val.append(None)

    def on_valset_evaluated(self, event: Any) -> None:
        if event["iteration"] > 0:
            self.val.append(float(event["average_score"]))


class Quiet:
    def log(self, message: str) -> None:
        print(message[:300], file=sys.stderr, flush=True)


def main(path: Path) -> None:
    job = json.loads(path.read_text(encoding="utf-8"))
    target = Target(job["target"], Record(path.with_name("replies.jsonl")))
    adapter = Adapter(target, job["scoring"])
    optimizer = job["optimizer"]
    letters = Record(path.with_name("letters.jsonl"))
    reflection = Reflection(optimizer["url"], optimizer["model"], optimizer["timeout"], letters)
    proposals = Proposals()
    result = gepa.optimize(
        seed_candidate={"skill": job["start"]},
        trainset=job["train"],
        valset=job["val"],
        adapter=adapter,
        reflection_lm=reflection,
        reflection_minibatch_size=job["minibatch"],
        max_metric_calls=job["metric_calls"],
        callbacks=[proposals],
        logger=Quiet(),
        seed=job["seed"],
    )
    found = {
        "val_initial": result.val_aggregate_scores[0],
        "val": proposals.val,
        "val_best": result.val_aggregate_scores[result.best_idx],
        "rollouts": adapter.rollouts,
        "requests": reflection.requests,
        "skill": result.best_candidate["skill"],
    }
    target.close()
    path.with_name("found.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
