"""The sections of the config and their keys, each with its meaning below it."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationInfo, field_validator

from skillopt import plugins
from skillopt.chat_protocol import AS_GIVEN
from skillopt.config.retired import RETIRED_MODELS

FreeOptions = Annotated[dict[str, JsonValue], AS_GIVEN]
"""Options that the part they are for checks itself."""
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,
    "linear": lambda progress: 1 - progress,
}
"""The share of the way from the lowest to the full learning rate (0 to 1), by how much of the run is done (0 to 1)."""
AUTO = "auto"
"""The schedule that a run chooses for itself; training/schedule.py says how."""
GATES = {"paired": "skillopt.training.gates.paired:paired_gate", "strict": "skillopt.training.gates.strict:strict_gate"}
"""The gates, by name; training/gates imports them."""
FLOORS = ("type", "fall", "refusals", "cost", "tokens", "turns", "seconds")
"""The floors that a config may name; the first three are from 0 to 1."""
TRACKERS = ("tensorboard", "mlflow", "wandb", "otel")


def rounded(rate: float) -> int:
    """The number of edits for a rate: rates are fractional, edits are not."""
    return math.floor(rate + 0.5)


def _one_of(name: str, ours: Iterable[str], kind: str) -> str:
    """A built-in name, or one that an installed package registers."""
    if name not in ours and name not in (known := [*ours, *plugins.names(kind)]):
        raise ValueError(f"Input should be one of: {', '.join(known)}")
    return name


def attribute_docs(cls: type) -> dict[str, str]:
    """The docstring below each field, read from the source on demand (pydantic would read it at import)."""
    import ast

    body = ast.parse(inspect.getsource(cls)).body[0].body  # type: ignore[attr-defined]
    return {
        ast.unparse(field.target): inspect.cleandoc(ast.literal_eval(text.value))
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def meanings(cls) -> dict[str, str]:
        return attribute_docs(cls)

    @field_validator("*", mode="before")
    @classmethod
    def _yes_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse a bool: YAML reads `yes` and `on` as true, and Python takes true for 1."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and annotation in {int, float, int | None, float | None}:
            raise ValueError("Input should be a number")
        return value


class TrainConfig(Section):
    num_epochs: int = Field(default=4, ge=1)
    """Passes over the training split."""
    batch_size: int = Field(default=40, ge=1)
    """Training tasks in one batch of rollouts."""
    accumulation: int = Field(default=1, ge=1)
    """Batches whose edits are pooled before one update."""
    seed: int = 42
    """Fixes batches, samples and labels: same seed and same replies give the same run."""
    init_skill: str = ""
    """Path of the Markdown file or of the skill package's folder to start from (a seed, or a skill trained before);
    empty for an empty skill."""
    init_notes: str = ""
    """Folder of a run whose notes (meta skill) the optimizer starts with: a run on the same tasks, another target or
    less data; empty for no notes."""
    patience: int = Field(default=0, ge=0)
    """Stop after this many steps without improvement; 0 never does. A run also ends once every validation task is
    right: no gate would accept anything more."""


class OptimizerConfig(Section):
    learning_rate: float = Field(default=4.0, ge=1, le=64)
    """The most edits per step."""
    min_learning_rate: float = Field(default=1.0, ge=1, le=64)
    """The rate never falls below this. null (in configs of earlier versions) means 1."""
    lr_scheduler: str = AUTO
    """How the rate falls from learning_rate to min_learning_rate over the run: auto (cosine for 16 steps or more from
    an initial skill of under 200 tokens, else constant), cosine, linear, constant (only steps that are not accepted
    lower the rate), or the name of an entry point of the group skillopt.schedules."""
    reject_decay: float = Field(default=0.8, gt=0, le=1)
    """A rejected or indecisive step multiplies the rate by this; an accepted one takes one such step back."""
    use_slow_update: bool = True
    """At each epoch's end, compare two epochs' skills and write guidance into the protected region."""
    slow_update_samples: int = Field(default=20, ge=1)
    """How many training items the comparison of two epochs' skills uses."""
    slow_update_gate: Literal["keep", "strict"] = "keep"
    """keep: guidance must not lower the validation score; strict: it must raise it. Neither may lose validation items
    that earlier guidance won."""
    use_meta_skill: bool = True
    """At each epoch's end, write notes for the optimizer; they never enter the skill."""
    rejected_buffer: int = Field(default=32, ge=0)
    """How many of the last rejected edits are remembered; the exemplar analyst does not propose them again."""
    max_edit_tokens: int = Field(default=2000, ge=10)
    """A longer edit is dropped. The default leaves space for a section of worked examples."""
    max_skill_tokens: int = Field(default=8000, ge=100)
    """An edit that would make the skill longer than this is dropped."""

    @field_validator("lr_scheduler")
    @classmethod
    def _known_schedule(cls, value: str) -> str:
        return _one_of(value, (AUTO, *SCHEDULES), "schedules")

    @field_validator("min_learning_rate", mode="before")
    @classmethod
    def _null_is_the_default(cls, value: object) -> object:
        return 1.0 if value is None else value

    def static_rate(self, shape: Callable[[float], float] | None) -> str:
        """Why the rate could never change, and the fix; empty if it can. `shape` None: not chosen yet."""
        if self.min_learning_rate >= self.learning_rate:
            fix = "lower it" if self.min_learning_rate > 1 else "raise learning_rate: no rate is below one edit a step"
            below = f"{self.min_learning_rate:g} is not below learning_rate {self.learning_rate:g}"
            return f"optimizer.min_learning_rate: {below}, so the rate cannot change; {fix}"
        if (most := rounded(self.learning_rate)) == rounded(self.min_learning_rate):
            rates = f"{self.learning_rate:g} and min_learning_rate {self.min_learning_rate:g} are both {most} edits"
            return f"optimizer.learning_rate: {rates} a step, so the rate cannot change; raise it"
        if shape and self.reject_decay == 1 and len({shape(n / 10) for n in range(11)}) == 1:
            return (
                "optimizer.reject_decay: a constant schedule with reject_decay 1 is a learning rate that cannot change;"
                " choose cosine or linear, or a reject_decay below 1"
            )
        return ""


class GradientConfig(Section):
    minibatch_size: int = Field(default=0, ge=0)
    """How many trajectories one analyst reads at a time; 0: the whole batch, or as much as fits into prompt_tokens."""
    edits_per_minibatch: int = Field(default=16, ge=1, le=64)
    """The most edits that one reply may hold. If the whole batch is one request (minibatch_size 0), never more than
    the step's learning rate."""
    analyst_workers: int = Field(default=16, ge=1)
    """The most optimizer calls at the same time; a local: model has at most one per core."""
    deep_reflect_threshold: float = Field(default=0.3, ge=0, le=1)
    """A cause of more than this share of a step's failures gets a separate request, if no edit answers the cause."""
    prompt_tokens: int = Field(default=24_000, ge=500)
    """The most tokens of trajectories in one request. A larger batch is read in several requests; a single trajectory
    that is longer loses its middle."""
    feedback: str = ""
    """The folder of an earlier run. People's comments on its training items and on lines of its skill (from the web
    page) are in every request to the optimizer. A new run keeps a copy."""
    prompts_dir: str = ""
    """Folder of Markdown files (reflect.md …) that replace the package's prompts of the same names."""
    merge: Literal["local", "llm"] = "llm"
    """llm: the optimizer merges proposals of several replies by meaning; local: only nearly identical texts merge."""
    merge_fan_in: int = Field(default=8, ge=2, le=64)
    """How many replies' proposals the optimizer merges in one request; more are merged level by level."""
    analysts: tuple[str, ...] = Field(default=("llm",), min_length=1)
    """The analysts, which propose edits: llm, brief (for a small LLM), exemplar (needs no LLM), or the names of entry
    points of the group skillopt.analysts; several may work together."""
    review_risky: bool = False
    """An edit that brings a URL, a shell command or a request for secrets waits for a person (`skillopt review`) before
    it can reach the skill; guidance that does so is refused."""


class PackageConfig(Section):
    train: tuple[Literal["body", "references", "scripts"], ...] = Field(default=("body", "references"), min_length=1)
    """Which files of a skill package may be edited: body (SKILL.md below its front matter), references (its other
    Markdown and text files, and new ones below references/), scripts (below scripts/, new ones too). A skill that is
    one document is always trained."""
    review_scripts: bool = True
    """An edit to a script waits for a person (`skillopt review`); false lets the gate alone decide."""
    max_file_tokens: int = Field(default=8000, ge=100)
    """An edit that would make a file next to SKILL.md longer than this is dropped."""
    max_total_tokens: int = Field(default=40_000, ge=100)
    """An edit that would make all text files of the package together longer than this is dropped."""


class EvaluationConfig(Section):
    use_gate: bool = True
    """Accept a candidate only if its score on the validation split is higher. `false` is refused."""
    metric: Literal["hard", "soft", "mixed"] = "hard"
    """hard: 0 or 1 per task; soft: 0 to 1; mixed: their mean."""
    gate: str = "paired"
    """The gate. strict: accept a candidate if its validation score is higher than the current skill's. paired: fresh
    samples of both skills, on the items on which they differ, must also confirm it; if nothing is noisy, it is the
    same as strict. Or the name of an entry point of the group skillopt.gates."""
    vetoes: tuple[str, ...] = ()
    """Vetoes that may reject what the gate accepts: functions of the items' scores before and after, by names in the
    group skillopt.gates."""
    credit_gates: int = Field(default=1, ge=0, le=16)
    """After a rejection: how many more gates may test the step without the edits that broke something; 0: none."""
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    """The highest share of useless edits that the paired gate may accept (0.05: one in twenty)."""
    max_repeats: int = Field(default=5, ge=1, le=30)
    """The most fresh samples of an item under each skill; if these do not decide, the verdict is indecisive."""
    floors: dict[str, float] = {}
    """Limits that every accepted candidate must keep: {"type:refund": 0.8, fall: 0.1, refusals: 0.02, tokens: 500}.
    type:NAME: the least score of a task type; fall: the most that any type may lose; refusals: the most tasks that the
    endpoint refuses, as a share; cost (dollars), tokens, turns, seconds: the most that a task may take, as the mean
    over the validation tasks."""
    test: bool = True
    """Measure the initial and the best skill on the test split at the end. With false the split stays unread; run the
    same command with true to read it later."""
    baselines: bool = True
    """Measure the empty skill on the test split at the end, unless the initial skill has only a line or two. Also
    compute the scores of doing nothing and of always giving the most frequent answer, which costs nothing."""

    @field_validator("floors", mode="before")
    @classmethod
    def _numbers(cls, value: object) -> object:
        wrong = [name for name, limit in value.items() if isinstance(limit, bool)] if isinstance(value, dict) else []
        if wrong:
            raise ValueError(f"{wrong[0]}: is not a number")
        return value

    @field_validator("floors")
    @classmethod
    def _known_floors(cls, value: dict[str, float]) -> dict[str, float]:
        for name, limit in value.items():
            kind = "type" if name.startswith("type:") else name
            if kind not in FLOORS or name == "type":
                raise ValueError(f"unknown floor '{name}'; known are: type:NAME, {', '.join(FLOORS[1:])}")
            if not 0 <= limit <= (1 if kind in FLOORS[:3] else math.inf):
                raise ValueError(f"{name}: {limit:g} is out of range")
        return value

    @field_validator("gate")
    @classmethod
    def _known_gate(cls, value: str) -> str:
        return _one_of(value, GATES, "gates")


Effort = Literal["", "none", "minimal", "low", "medium", "high", "xhigh"]


class ModelSettings(Section):
    max_tokens: int | None = Field(default=None, ge=1)
    """The most tokens of a reply."""
    workers: int | None = Field(default=None, ge=1)
    """The most calls at the same time."""
    call_timeout: float | None = Field(default=None, gt=0)
    """Seconds until a call without an answer is ended and retried."""
    deterministic: bool | None = None
    """Does the same request always give the same reply?"""


class ModelsConfig(Section):
    target_model: str = "openai:gpt-4o-mini"
    """The target as provider:model: it does the tasks."""
    target_url: str = ""
    """Base URL of the target's endpoint; empty for the provider's own."""
    target_temperature: float | None = Field(default=0.0, ge=0)
    """Sampling temperature; null leaves it to the endpoint."""
    target_max_tokens: int = Field(default=1024, ge=1)
    """The most tokens of the target's reply."""
    target_deterministic: bool | None = None
    """Does the same request always give the same reply? null: as the provider usually does."""
    target_reasoning_effort: Effort = ""
    """The reasoning effort of a reasoning model; empty leaves it to the endpoint."""
    target_key_name: str = ""
    """The environment variable that holds the key, never the key itself; empty for the provider's usual one."""
    target_rpm: int | None = Field(default=None, ge=1)
    """Requests per minute that the endpoint allows; null: any number."""
    target_tpm: int | None = Field(default=None, ge=1)
    """Tokens per minute that the endpoint allows; null: any number."""
    targets: dict[str, ModelSettings] = {}
    """Settings for single targets, by `provider:model` or by provider, such as {local: {max_tokens: 20}}: max_tokens,
    workers, call_timeout, deterministic. They override the keys for every target, unless these are given on the
    command line."""
    optimizer_model: str = "openai:gpt-4o"
    """The optimizer as provider:model: it reads trajectories and proposes edits."""
    optimizer_url: str = ""
    """Base URL of the optimizer's endpoint; empty for the provider's own."""
    optimizer_temperature: float | None = Field(default=None, ge=0)
    """Sampling temperature; null leaves it to the endpoint."""
    optimizer_max_tokens: int = Field(default=12_000, ge=1)
    """The most tokens of the optimizer's reply."""
    optimizer_deterministic: bool | None = None
    """As target_deterministic."""
    optimizer_reasoning_effort: Effort = ""
    """As target_reasoning_effort."""
    optimizer_key_name: str = ""
    """As target_key_name."""
    optimizer_options: FreeOptions = {}
    """Options of a command as the optimizer, such as {timeout: 600, pass_env: [MY_KEY], args: [--fast], at_once: 4}."""
    optimizers: dict[str, ModelSettings] = {}
    """As targets."""
    optimizer_rpm: int | None = Field(default=None, ge=1)
    """As target_rpm."""
    optimizer_tpm: int | None = Field(default=None, ge=1)
    """As target_tpm."""
    judge_model: str = ""
    """provider:model that grades answers if env.scoring is judge; empty: the optimizer grades, also its own edits."""
    judge_url: str = ""
    """Base URL of the judge's endpoint; empty for the provider's own."""
    judge_temperature: float | None = Field(default=None, ge=0)
    """Sampling temperature; null leaves it to the endpoint."""
    judge_max_tokens: int = Field(default=2000, ge=1)
    """The most tokens of the judge's reply."""
    judge_deterministic: bool | None = None
    """As target_deterministic. A judge whose grades changed in its calibration is never taken for deterministic."""
    judge_reasoning_effort: Effort = ""
    """As target_reasoning_effort."""
    judge_key_name: str = ""
    """As target_key_name."""
    judge_workers: int = Field(default=8, ge=1)
    """The most judge calls at the same time."""
    judge_rpm: int | None = Field(default=None, ge=1)
    """As target_rpm."""
    judge_tpm: int | None = Field(default=None, ge=1)
    """As target_tpm."""
    judge_calibration: str = ""
    """The file that `skillopt judge calibrate` wrote; empty: judge_calibration.json next to the config, if it is
    there."""

    @field_validator("target_model", "optimizer_model", "judge_model")
    @classmethod
    def _not_retired(cls, value: str) -> str:
        if instead := RETIRED_MODELS.get(value.partition("?")[0]):
            raise ValueError(instead)
        return value


class EnvConfig(Section):
    name: str = "qa"
    """The kind of tasks: qa (questions with answers), sim (the simulated world), trigger (is a skill loaded), folders
    (task folders in Harbor's form), a benchmark (docs/benchmarks.md), a plug-in's name, or `module:Class`."""
    task: str = ""
    """The tasks in a sentence or two, for the optimizer; empty: the env's own description."""
    benchmark: str = ""
    """The folder of the runs below output_root; empty for the env's name."""
    split_dir: str = ""
    """Folder with train/, val/ and test/, each with items.json, items.jsonl or items.csv."""
    data: str = ""
    """One file with all items (.jsonl, .json, .csv, .parquet, .arrow, promptfoo's .yaml) in place of split_dir, or a
    data set of Hugging Face, hf:org/name[:config][@revision][#split]; its split is saved next to it."""
    columns: dict[str, str] = {}
    """Columns of env.data by field, or paths inside of a column, such as {question: inputs.question, answer:
    outputs.text}; only needed for names that SkillOpt does not recognise."""
    split: dict[str, float] = {"train": 0.5, "val": 0.25, "test": 0.25}
    """The shares by which env.data is divided; only read if there is no saved split yet."""
    split_seed: int = 0
    """Seed of the division of env.data."""
    scoring: str = "exact"
    """The scorer of answers: its name, judge, or your function as `scorer.py:fn`; for tasks with files,
    files (expected files), command (a check), or a function with a third parameter, the workspace."""
    scoring_note: str = ""
    """More about the score for the optimizer: what gives partial credit, whether order counts, …"""
    scoring_options: FreeOptions = {}
    """Options of the scorer, such as {tolerance: 0.01}; for your function {timeout: 10, memory_mb: 2048}."""
    agent: str = ""
    """Your agent as the target, `module:fn` or `file.py:fn`; shell: the target model with a sandboxed shell, for tasks
    with files; empty: one question, one reply."""
    command: str | list[str] = ""
    """A command line as the target (task on stdin, answer on stdout), or a coding agent: claude-code, codex,
    opencode, gemini-cli, qwen-code, copilot, goose."""
    agent_options: FreeOptions = {}
    """Options of the agent or command, such as {timeout: 600, pass_env: [MY_KEY]}."""
    options: FreeOptions = {}
    """Options of this env, which checks them itself."""
    output_root: str = "outputs"
    """The folder of all runs."""
    private: bool | None = None
    """Keep runs from other users of the machine: folders 0700, journals 0600. null: if there is a .env in the
    working folder, in output_root or next to it."""


class HardwareConfig(Section):
    workers: int = Field(default=8, ge=1)
    """The most target calls at the same time; a local: model has at most one per core."""
    executor: Literal["local", "processes", "ray"] = "local"
    """local: this process does and scores the tasks; processes: other processes of this machine, at most one per core;
    ray: a Ray cluster. This process always makes the model calls."""
    ray_address: str = ""
    """The cluster's address; `auto` for the cluster that this machine is part of; empty to start a cluster on this
    machine."""
    call_timeout: float | None = Field(default=None, gt=0)
    """Seconds until a call without an answer is ended and retried; null: 120, and 300 for local: models."""
    max_retries: int = Field(default=5, ge=0)
    """Retries of a call that failed for a reason that may go away (5xx, timeouts, resets). Rejected calls (429, 503,
    529) are retried for max_retry_seconds, however often; 0 retries nothing."""
    max_retry_seconds: float = Field(default=300, gt=0)
    """A call is not retried if its next try would be more than this many seconds after its first. If an endpoint asks
    for a longer wait than this (Retry-After), the run stops at once and can be continued later."""
    vllm_url: str = ""
    """Base URL for vllm: models, unless a role has its own."""
    azure_endpoint: str = ""
    """https://<resource>.openai.azure.com for azure: models."""
    azure_api_version: str = "2024-10-21"
    """The API version in azure: requests."""


class Price(Section):
    input: float = Field(ge=0)
    """Dollars per million prompt tokens."""
    output: float = Field(ge=0)
    """Dollars per million completion tokens."""
    cached: float | None = Field(default=None, ge=0)
    """Dollars per million prompt tokens that the endpoint reads from its cache; null: the price of `input`."""
    written: float | None = Field(default=None, ge=0)
    """Dollars per million prompt tokens that the endpoint writes into its cache; null: the price of `input`."""


class BudgetConfig(Section):
    max_usd: float | None = Field(default=None, gt=0)
    """Stop when this many dollars are spent; needs a price for every model."""
    max_calls: int | None = Field(default=None, ge=1)
    """Stop after this many model calls."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Stop after this many tokens, prompts and replies together."""
    max_minutes: float | None = Field(default=None, gt=0)
    """Stop this many minutes after the start of this session."""
    prices: dict[str, Price] = {}
    """Prices that override the list, such as {"openai:gpt-4o": {input: 2.5, output: 10, cached: 1.25}}."""


class TrackersConfig(Section):
    use: tuple[str, ...] = ()
    """Trackers that get events as they happen: tensorboard, mlflow, wandb, otel (each an extra of that name), or the
    names of entry points of the group skillopt.trackers. `trackers: [mlflow]` for short."""
    project: str = Field(default="skillopt", min_length=1)
    """The group of the runs: the experiment of mlflow, the project of wandb, the service of otel."""
    mlflow_uri: str = ""
    """MLflow's tracking server; empty for files in the run's folder."""
    wandb_mode: Literal["offline", "online"] = "offline"
    """offline writes into the run's folder, for `wandb sync`; online sends, with the key of `wandb login`."""
    otel_endpoint: str = ""
    """OTLP over HTTP, such as http://127.0.0.1:4318; empty: OTEL_EXPORTER_OTLP_ENDPOINT, else a file in the run."""

    @field_validator("use")
    @classmethod
    def _known_trackers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_one_of(name, TRACKERS, "trackers") for name in value)


class NotesConfig(Section):
    init_skill: str = ""
    """Why you chose this initial skill."""
    schedule: str = ""
    """Why you chose this schedule."""
