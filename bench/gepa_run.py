"""Run gepa in the simulated world, in a separate venv without skillopt: python gepa_run.py URL ITEMS SEED.

Prints one JSON line: rollouts and seconds until the validation score is 1.0. gepa gets the same as a run of SkillOpt:
the same target over the same server, eight calls at once, the same feedback, and a reflection model that states every
rule that the failures show.
"""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gepa
from gepa.core.adapter import EvaluationBatch
from gepa.utils import ScoreThresholdStopper

ASKED = re.compile(r"Give the codes for: ([a-z, ]+)\.")
REFLECTION_SECONDS = 0.3
MINIBATCH = 8


class Adapter:
    """Calls the target over HTTP, eight calls at once, and gives the same feedback as SkillOpt's scorer."""

    propose_new_texts = None

    def __init__(self, url: str) -> None:
        self.url = url
        self.rollouts = 0
        self.pool = ThreadPoolExecutor(8)

    def ask(self, skill: str, question: str) -> str:
        messages = [{"role": "system", "content": skill}, {"role": "user", "content": question}]
        body = json.dumps({"model": "sim", "messages": messages}).encode()
        request = urllib.request.Request(f"{self.url}/chat/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return str(json.load(answer)["choices"][0]["message"]["content"])

    def evaluate(self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        self.rollouts += len(batch)
        outputs = list(self.pool.map(lambda item: self.ask(candidate["skill"], item["question"]), batch))
        scores = [float(output == item["answer"]) for output, item in zip(outputs, batch, strict=True)]
        traces = [{"item": item, "output": output} for item, output in zip(batch, outputs, strict=True)]
        return EvaluationBatch(outputs=outputs, scores=scores, trajectories=traces if capture_traces else None)

    def make_reflective_dataset(self, candidate: Any, found: Any, components: list[str]) -> Any:
        rows = [
            {
                "Inputs": trace["item"]["question"],
                "Generated Outputs": trace["output"],
                "Feedback": "right" if score else f'expected "{trace["item"]["answer"]}"',
            }
            for trace, score in zip(found.trajectories, found.scores, strict=True)
        ]
        return dict.fromkeys(components, rows)


def reflect(prompt: Any) -> str:
    """Reply as the simulated optimizer, in gepa's form: the old text, and a line for each rule in the failures."""
    time.sleep(REFLECTION_SECONDS)
    text = prompt if isinstance(prompt, str) else json.dumps(prompt)
    skill = next((part for part in re.findall(r"```\n?(.*?)```", text, re.DOTALL)), "").strip()
    lines = [skill] if skill else []
    for example in text.split("# Example")[1:]:
        asked, wanted = ASKED.search(example), re.search(r'expected "([^"]+)"', example)
        if asked and wanted:
            rules = zip(asked[1].split(", "), wanted[1].split(), strict=True)
            told = [f"- For {topic}, answer {code}." for topic, code in rules]
            lines += [rule for rule in told if rule not in "\n".join(lines)]
    return "```\n" + "\n".join(lines) + "\n```"


def main(url: str, items: str, seed: int) -> None:
    data = json.loads(Path(items).read_text())
    adapter = Adapter(url)
    started = time.monotonic()
    result = gepa.optimize(
        seed_candidate={"skill": "Answer with the codes alone."},
        trainset=data["train"],
        valset=data["val"],
        adapter=adapter,
        reflection_lm=reflect,
        reflection_minibatch_size=MINIBATCH,
        max_metric_calls=1500,
        stop_callbacks=ScoreThresholdStopper(1.0),
        display_progress_bar=False,
        logger=Quiet(),
        seed=seed,
    )
    best = max(result.val_aggregate_scores)
    found = {"seed": seed, "rollouts": adapter.rollouts, "seconds": time.monotonic() - started, "val": best}
    print(json.dumps(found), flush=True)


class Quiet:
    def log(self, message: str) -> None:
        return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
