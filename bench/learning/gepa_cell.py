"""Do one run of gepa 0.1.4, in a venv with gepa and without SkillOpt: python gepa_cell.py JOB.json.

rivals.py writes the job, serves rollouts and reflections on a loopback address (serve.py) and reads found.json.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import gepa
from gepa.core.adapter import EvaluationBatch


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(error.read().decode()) from None


class Adapter:
    """The interface that gepa needs: rollouts, their scores, and the examples for the reflection model."""

    propose_new_texts = None

    def __init__(self, url: str) -> None:
        self._url = url
        self.rollouts = 0

    def evaluate(self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        self.rollouts += len(batch)
        rows = [post(f"{self._url}/rollout", {**item, "skill": candidate["skill"]}) for item in batch]
        return EvaluationBatch(
            outputs=[row["output"] for row in rows],
            scores=[row["score"] for row in rows],
            trajectories=rows if capture_traces else None,
        )

    def make_reflective_dataset(self, candidate: Any, found: Any, components: list[str]) -> Any:
        rows = [
            {"Inputs": row["input"], "Generated Outputs": row["output"], "Feedback": row["feedback"] or "right"}
            for row in found.trajectories
        ]
        return dict.fromkeys(components, rows)


class Reflection:
    """Calls the optimizer through an endpoint with OpenAI's protocol."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/chat/completions"
        self.requests = 0

    def __call__(self, prompt: Any) -> str:
        self.requests += 1
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        # The same request may come twice and needs another reply the second time: the count makes them different.
        reply = post(self._url, {"model": "optimizer", "messages": messages, "seed": self.requests})
        return str(reply["choices"][0]["message"]["content"])


class Proposals:
    """Records each proposal's score on the validation split (None if gepa's minibatch already rejected it), and the
    best score so far with the rollouts paid for it."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self.val: list[float | None] = []
        self.curve: list[tuple[int, float]] = []

    def on_candidate_rejected(self, event: Any) -> None:
        self.val.append(None)

    def on_valset_evaluated(self, event: Any) -> None:
        score = float(event["average_score"])
        if event["iteration"] > 0:
            self.val.append(score)
        best = max([score, *(value for _, value in self.curve)])
        self.curve.append((self._adapter.rollouts, best))


class Quiet:
    def log(self, message: str) -> None:
        print(message[:300], file=sys.stderr, flush=True)


def main(path: Path) -> None:
    job = json.loads(path.read_text(encoding="utf-8"))
    adapter, reflection = Adapter(job["url"]), Reflection(job["url"])
    proposals = Proposals(adapter)
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
        "curve": proposals.curve,
        "val_best": result.val_aggregate_scores[result.best_idx],
        "rollouts": adapter.rollouts,
        "requests": reflection.requests,
        "skill": result.best_candidate["skill"],
    }
    path.with_name("found.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
