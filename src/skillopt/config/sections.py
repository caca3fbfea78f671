"""The sections of the config with their keys. The docstring below a key is its text in docs/reference/config.md."""

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
"""Options of one part, such as the env or the scorer; that part checks them."""
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,
    "linear": lambda progress: 1 - progress,
}
"""Schedules by name. Each maps the run's progress (0 to 1) to the position of the learning rate: 0 means the lowest
value, 1 the full value."""
AUTO = "auto"
"""With this value of `lr_scheduler`, the run chooses its schedule by the rule in training/schedule.py."""
GATES = {"paired": "skillopt.training.gates.paired:paired_gate", "strict": "skillopt.training.gates.strict:strict_gate"}
"""Import paths of the built-in gates, by their names in `evaluation.gate`."""
FLOORS = ("type", "fall", "refusals", "cost", "tokens", "turns", "seconds")
"""Names of the floors in `evaluation.floors`. The limits of the first three are from 0 to 1."""
TRACKERS = ("tensorboard", "mlflow", "wandb", "otel")


def rounded(rate: float) -> int:
    """The number of edits that a learning rate allows; the rate may be a fraction."""
    return math.floor(rate + 0.5)


def _one_of(name: str, ours: Iterable[str], kind: str) -> str:
    """Return the name if it is built in or an installed package registers it; else raise ValueError."""
    if name not in ours and name not in (known := [*ours, *plugins.names(kind)]):
        raise ValueError(f"Input should be one of: {', '.join(known)}")
    return name


def attribute_docs(cls: type) -> dict[str, str]:
    """The docstrings of a class's fields, by field. The source is read only on demand, to keep imports fast."""
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
        """Refuse a bool in place of a number: YAML reads `yes` and `on` as true, and Python treats true as 1."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and annotation in {int, float, int | None, float | None}:
            raise ValueError("Input should be a number")
        return value


class TrainConfig(Section):
    num_epochs: int = Field(default=4, ge=1)
    """The number of passes through the training split."""
    batch_size: int = Field(default=40, ge=1)
    """The number of training tasks in a batch."""
    accumulation: int = Field(default=1, ge=1)
    """The number of batches whose edits are collected before the skill is changed once."""
    seed: int = 42
    """The seed of all random choices; the same seed and the same replies give the same run."""
    init_skill: str = ""
    """Path of the skill that training starts from: a Markdown file or a package's folder. Empty: training starts from
    an empty skill."""
    init_notes: str = ""
    """The folder of an earlier run on the same tasks, such as a run with another target or with less data. The
    optimizer starts with that run's notes (meta skill). Empty: the optimizer starts without notes."""
    patience: int = Field(default=0, ge=0)
    """The number of steps without improvement after which training stops; 0: no limit. A run also ends when every
    validation task is right, because then no gate can accept a further candidate."""


class OptimizerConfig(Section):
    learning_rate: float = Field(default=4.0, ge=1, le=64)
    """The maximum number of edits that a step may apply."""
    min_learning_rate: float = Field(default=1.0, ge=1, le=64)
    """The lowest learning rate, in edits per step. `null` (in configs of earlier versions) means 1."""
    lr_scheduler: str = AUTO
    """The schedule of the learning rate. With `cosine` and `linear`, the rate falls from `learning_rate` to
    `min_learning_rate` over the run, along the curve of that name. With `constant`, only steps that are not accepted
    lower the rate. `auto` means `cosine` if the run has at least 16 steps and the initial skill has fewer than 200
    tokens; else it means `constant`. Any other value is the name of an entry point of the group
    `skillopt.schedules`."""
    reject_decay: float = Field(default=0.8, gt=0, le=1)
    """After a rejected or indecisive step, the learning rate is multiplied by this factor. An accepted step undoes one
    such decrease."""
    use_slow_update: bool = True
    """`true`: at the end of each epoch from the second on, compare the epoch's skill with the previous epoch's, and
    write guidance into the skill's protected region."""
    slow_update_samples: int = Field(default=20, ge=1)
    """The number of training items on which the slow update compares the skills of two epochs."""
    slow_update_gate: Literal["keep", "strict"] = "keep"
    """The gate's rule for guidance. `keep`: guidance must not lower the validation score. `strict`: guidance must raise
    the validation score. Both rules also look at the validation items that earlier guidance solved: their total score
    must not fall."""
    use_meta_skill: bool = True
    """`true`: at the end of each epoch, the optimizer writes notes for its later requests. These notes never enter the
    skill."""
    rejected_buffer: int = Field(default=32, ge=0)
    """The maximum number of rejected edits that the run remembers; older ones are forgotten. The analyst `exemplar`
    does not propose a remembered edit again."""
    max_edit_tokens: int = Field(default=2000, ge=10)
    """The maximum number of tokens of an edit; longer edits are dropped. The default is enough for a section of worked
    examples."""
    max_skill_tokens: int = Field(default=8000, ge=100)
    """The maximum number of tokens of the skill; an edit that would exceed this limit is dropped."""

    @field_validator("lr_scheduler")
    @classmethod
    def _known_schedule(cls, value: str) -> str:
        return _one_of(value, (AUTO, *SCHEDULES), "schedules")

    @field_validator("min_learning_rate", mode="before")
    @classmethod
    def _null_is_the_default(cls, value: object) -> object:
        return 1.0 if value is None else value

    def static_rate(self, shape: Callable[[float], float] | None) -> str:
        """The reason why the learning rate can never change, and the remedy; empty if it can change. `shape` is the
        schedule's function, or None if the schedule is not known yet."""
        if self.min_learning_rate >= self.learning_rate:
            lower = self.min_learning_rate > 1
            fix = "lower min_learning_rate" if lower else "raise learning_rate above 1, the lowest possible rate"
            below = f"{self.min_learning_rate:g} is not below learning_rate {self.learning_rate:g}"
            return f"optimizer.min_learning_rate: {below}, so the rate cannot change; {fix}"
        if (most := rounded(self.learning_rate)) == rounded(self.min_learning_rate):
            rates = f"{self.learning_rate:g} and min_learning_rate {self.min_learning_rate:g} both mean {most} edits"
            return f"optimizer.learning_rate: {rates} per step, so the rate cannot change; raise learning_rate"
        if shape and self.reject_decay == 1 and len({shape(n / 10) for n in range(11)}) == 1:
            return (
                "optimizer.reject_decay: with a constant schedule and reject_decay 1, the learning rate cannot change;"
                " choose cosine or linear, or a reject_decay below 1"
            )
        return ""


class GradientConfig(Section):
    minibatch_size: int = Field(default=0, ge=0)
    """The number of trajectories in one request of an analyst. 0: the whole batch, or as many trajectories as fit into
    `prompt_tokens`."""
    edits_per_minibatch: int = Field(default=16, ge=1, le=64)
    """The maximum number of edits in one reply. If one request contains the whole batch (`minibatch_size: 0`), the
    step's learning rate is a second limit."""
    analyst_workers: int = Field(default=16, ge=1)
    """The maximum number of optimizer calls at the same time; for a `local:` model, at most one per core and at most
    four."""
    deep_reflect_threshold: float = Field(default=0.3, ge=0, le=1)
    """If a cause has more than this share of a step's failures and no edit answers it, the optimizer gets a separate
    request about that cause."""
    prompt_tokens: int = Field(default=24_000, ge=500)
    """The maximum number of tokens of trajectories in one request. A larger batch is read in several requests. If a
    single trajectory is longer, its middle is left out."""
    feedback: str = ""
    """The folder of an earlier run with people's comments from the web page. Comments on training items and on lines of
    the skill are in every request to the optimizer. A new run stores a copy of the comments."""
    prompts_dir: str = ""
    """Folder of Markdown files (`reflect.md`, …). Each file replaces the SkillOpt prompt of the same name."""
    merge: Literal["local", "llm"] = "llm"
    """How edits are merged. `llm`: the optimizer merges edits that mean the same. `local`: only nearly identical edits
    are merged."""
    merge_fan_in: int = Field(default=8, ge=2, le=64)
    """The maximum number of replies whose edits one request merges. If there are more replies, their edits are merged
    in groups, and then the results of the groups are merged."""
    analysts: tuple[str, ...] = Field(default=("llm",), min_length=1)
    """The analysts, which propose edits: `llm`, `brief` (for a small LLM), `exemplar` (needs no LLM), or the names of
    entry points of the group `skillopt.analysts`. Several analysts may work together."""
    review_risky: bool = False
    """`true`: an edit that contains a URL, a shell command or a request for secrets waits until a person approves the
    edit (`skillopt review`). Guidance with such content is refused."""


class PackageConfig(Section):
    train: tuple[Literal["body", "references", "scripts"], ...] = Field(default=("body", "references"), min_length=1)
    """The files of a skill package that edits may change: `body` (SKILL.md below its front matter), `references` (other
    Markdown and text files, and new files in `references/`), `scripts` (files in `scripts/`, also new files). If the
    skill is not a package but one document, edits may always change the document."""
    review_scripts: bool = True
    """`true`: an edit to a script waits until a person approves the edit (`skillopt review`). `false`: only the gate
    decides."""
    max_file_tokens: int = Field(default=8000, ge=100)
    """The maximum number of tokens of a file next to SKILL.md; an edit that would exceed this limit is dropped."""
    max_total_tokens: int = Field(default=40_000, ge=100)
    """The maximum number of tokens of all text files of the package together; an edit that would exceed this limit is
    dropped."""


class EvaluationConfig(Section):
    use_gate: bool = True
    """`true`: accept a candidate only if its validation score is higher than the current skill's. `false` is not
    allowed."""
    metric: Literal["hard", "soft", "mixed"] = "hard"
    """Which score of a task is used. `hard`: 0 or 1. `soft`: from 0 to 1. `mixed`: the mean of the hard and the soft
    score."""
    gate: str = "paired"
    """The gate: `strict`, `paired`, or the name of an entry point of the group `skillopt.gates`. `strict` accepts a
    candidate if its validation score is higher than the current skill's. `paired` also takes fresh samples of both
    skills on the items on which their scores differ; these samples must confirm the gain. If nothing is noisy, `paired`
    is the same as `strict`."""
    vetoes: tuple[str, ...] = ()
    """Names of entry points of the group `skillopt.gates`: functions that may reject a candidate after the gate
    accepted it. Each function gets the items' scores under the current skill and under the candidate."""
    credit_gates: int = Field(default=1, ge=0, le=16)
    """The maximum number of times per step that the gate tries a rejected candidate again, without the edits that broke
    items. 0: never."""
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    """The maximum share of useless edits that the gate `paired` may accept (0.05: one in twenty)."""
    max_repeats: int = Field(default=5, ge=1, le=30)
    """The maximum number of fresh samples of an item under each skill. If the result is uncertain even after these
    samples, the gate is indecisive."""
    floors: dict[str, float] = {}
    """Limits that every accepted candidate must keep, such as `{"type:refund": 0.8, fall: 0.1, refusals: 0.02, tokens:
    500}`. `type:NAME`: the minimum score of a task type. `fall`: the maximum fall of any type's score. `refusals`: the
    maximum share of tasks that the endpoint refuses. `cost` (dollars), `tokens`, `turns`, `seconds`: the maximum mean
    per validation task."""
    test: bool = True
    """`true`: measure the initial and the best skill on the test split at the end. `false`: do not read the test split;
    the same command with `true` can measure both skills later."""
    baselines: bool = True
    """`true`: measure the empty skill on the test split at the end, unless the initial skill has only a line or two.
    Also compute (at no cost) the score of doing nothing, and the score of always giving the most frequent answer."""

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
    """The maximum number of tokens of a reply."""
    workers: int | None = Field(default=None, ge=1)
    """The maximum number of calls at the same time."""
    call_timeout: float | None = Field(default=None, gt=0)
    """Seconds until a call without an answer is ended and retried."""
    deterministic: bool | None = None
    """`true` if the same request always gets the same reply."""


class ModelsConfig(Section):
    target_model: str = "openai:gpt-4o-mini"
    """The target, which does the tasks, as `provider:model`."""
    target_url: str = ""
    """Base URL of the target's endpoint; empty: the provider's usual URL."""
    target_temperature: float | None = Field(default=0.0, ge=0)
    """The target's sampling temperature; `null`: the endpoint's default."""
    target_max_tokens: int = Field(default=1024, ge=1)
    """The maximum number of tokens of the target's reply."""
    target_deterministic: bool | None = None
    """`true` if the same request to the target always gets the same reply; `null`: the provider's usual value."""
    target_reasoning_effort: Effort = ""
    """The target's reasoning effort, if the target is a reasoning model; empty: the endpoint's default."""
    target_key_name: str = ""
    """The name of the environment variable with the target's API key (never the key itself); empty: the provider's
    usual variable."""
    target_rpm: int | None = Field(default=None, ge=1)
    """The maximum number of requests per minute to the target; `null`: no limit."""
    target_tpm: int | None = Field(default=None, ge=1)
    """The maximum number of tokens per minute to and from the target; `null`: no limit."""
    targets: dict[str, ModelSettings] = {}
    """Settings (`max_tokens`, `workers`, `call_timeout`, `deterministic`) for certain targets only, by `provider:model`
    or by provider, such as `{local: {max_tokens: 20}}`. They override the keys for all targets, such as
    `target_max_tokens`, but not values from the command line."""
    optimizer_model: str = "openai:gpt-4o"
    """The optimizer, which reads trajectories and proposes edits, as `provider:model`."""
    optimizer_url: str = ""
    """Base URL of the optimizer's endpoint; empty: the provider's usual URL."""
    optimizer_temperature: float | None = Field(default=None, ge=0)
    """The optimizer's sampling temperature; `null`: the endpoint's default."""
    optimizer_max_tokens: int = Field(default=12_000, ge=1)
    """The maximum number of tokens of the optimizer's reply."""
    optimizer_deterministic: bool | None = None
    """`true` if the same request to the optimizer always gets the same reply; `null`: the provider's usual value."""
    optimizer_reasoning_effort: Effort = ""
    """The optimizer's reasoning effort, if the optimizer is a reasoning model; empty: the endpoint's default."""
    optimizer_key_name: str = ""
    """The name of the environment variable with the optimizer's API key (not the key itself); empty: the provider's
    usual variable."""
    optimizer_options: FreeOptions = {}
    """If the optimizer is a command: the command's options, such as `{timeout: 600, pass_env: [MY_KEY], args: [--fast],
    at_once: 4}`."""
    optimizers: dict[str, ModelSettings] = {}
    """Settings for certain optimizers only, by `provider:model` or by provider. The keys are those of
    `models.targets`."""
    optimizer_rpm: int | None = Field(default=None, ge=1)
    """The maximum number of requests per minute to the optimizer; `null`: no limit."""
    optimizer_tpm: int | None = Field(default=None, ge=1)
    """The maximum number of tokens per minute to and from the optimizer; `null`: no limit."""
    judge_model: str = ""
    """The judge, as `provider:model`, if `env.scoring` is `judge`. Empty: the optimizer is the judge, although it then
    judges the effect of its own edits."""
    judge_url: str = ""
    """Base URL of the judge's endpoint; empty: the provider's usual URL."""
    judge_temperature: float | None = Field(default=None, ge=0)
    """The judge's sampling temperature; `null`: the endpoint's default."""
    judge_max_tokens: int = Field(default=2000, ge=1)
    """The maximum number of tokens of the judge's reply."""
    judge_deterministic: bool | None = None
    """`true` if the same request to the judge always gets the same reply; `null`: the provider's usual value. A judge
    whose grades varied in its calibration is always treated as noisy."""
    judge_reasoning_effort: Effort = ""
    """The judge's reasoning effort, if the judge is a reasoning model; empty: the endpoint's default."""
    judge_key_name: str = ""
    """The name of the environment variable with the judge's API key (never the key itself); empty: the provider's usual
    variable."""
    judge_workers: int = Field(default=8, ge=1)
    """The maximum number of judge calls at the same time."""
    judge_rpm: int | None = Field(default=None, ge=1)
    """The maximum number of requests per minute to the judge; `null`: no limit."""
    judge_tpm: int | None = Field(default=None, ge=1)
    """The maximum number of tokens per minute to and from the judge; `null`: no limit."""
    judge_calibration: str = ""
    """The file that `skillopt judge calibrate` wrote; empty: `judge_calibration.json` next to the config, if that file
    exists."""

    @field_validator("target_model", "optimizer_model", "judge_model")
    @classmethod
    def _not_retired(cls, value: str) -> str:
        if instead := RETIRED_MODELS.get(value.partition("?")[0]):
            raise ValueError(instead)
        return value


class EnvConfig(Section):
    name: str = "qa"
    """The kind of tasks: `qa` (questions with answers), `sim` (the simulated world), `trigger` (when to load a skill),
    `folders` (task folders in Harbor's format), the name of a benchmark (docs/benchmarks.md) or of a plug-in, or
    `module:Class`."""
    task: str = ""
    """A description of the tasks in a sentence or two, for the optimizer; empty: the env's own description."""
    benchmark: str = ""
    """Name of the folder in `output_root` in which the runs are stored; empty: the env's name."""
    split_dir: str = ""
    """Folder with `train/`, `val/` and `test/`; each of them contains `items.json`, `items.jsonl` or `items.csv`."""
    data: str = ""
    """In place of `split_dir`: a file with all items (.jsonl, .json, .csv, .parquet, .arrow, promptfoo's .yaml), or a
    Hugging Face data set, `hf:org/name[:config][@revision][#split]`. SkillOpt divides the items into splits and saves
    the division."""
    columns: dict[str, str] = {}
    """For each field of a task, its column in `env.data` or a path inside a column, such as `{question:
    inputs.question, answer: outputs.text}`. This is only needed if SkillOpt does not recognise the column names."""
    split: dict[str, float] = {"train": 0.5, "val": 0.25, "test": 0.25}
    """The share of the items of `env.data` in each split. The shares are only read if no split is saved yet."""
    split_seed: int = 0
    """The seed for dividing `env.data` into splits."""
    scoring: str = "exact"
    """The scorer of answers: the name of a scorer, `judge`, or your function as `scorer.py:fn`. For tasks with files:
    `files` (compares with expected files), `command` (runs a check), or a function whose third parameter is the
    workspace."""
    scoring_note: str = ""
    """A note on the scorer for the optimizer: what gives partial credit, whether order counts, …"""
    scoring_options: FreeOptions = {}
    """Options of the scorer, such as `{tolerance: 0.01}`. Example for your own function: `{timeout: 10, memory_mb:
    2048}`."""
    agent: str = ""
    """The agent that does the tasks. `module:fn` or `file.py:fn`: your function. `shell`: the target model with a
    sandboxed shell, for tasks with files. Empty: the target model gets one question and gives one reply."""
    command: str | list[str] = ""
    """A command line that does the tasks (it reads the task on stdin and prints the answer on stdout), or a coding
    agent: `claude-code`, `codex`, `opencode`, `gemini-cli`, `qwen-code`, `copilot`, `goose`."""
    agent_options: FreeOptions = {}
    """Options of the agent or command, such as `{timeout: 600, pass_env: [MY_KEY]}`."""
    options: FreeOptions = {}
    """Options of the env, such as `{limit: {train: 48}}` for `qa`. The env checks its options."""
    output_root: str = "outputs"
    """The folder that contains all runs."""
    private: bool | None = None
    """`true`: other users of the machine cannot read the runs (folders 0700, journals 0600). `null`: `true` if there is
    a `.env` file in the working folder, in `output_root` or next to `output_root`; else `false`."""


class HardwareConfig(Section):
    workers: int = Field(default=8, ge=1)
    """The maximum number of target calls at the same time; for a `local:` model, at most one per core and at most
    four."""
    executor: Literal["local", "processes", "ray"] = "local"
    """The processes that do and score tasks. `local`: the process of the run. `processes`: other processes on this
    machine, at most one per core. `ray`: a Ray cluster. In all cases, the process of the run makes the model calls."""
    ray_address: str = ""
    """The address of the Ray cluster. `auto`: the cluster that this machine is part of. Empty: start a cluster on this
    machine."""
    call_timeout: float | None = Field(default=None, gt=0)
    """Seconds until a call without an answer is ended and retried. `null`: 300 for `local:` models, 120 for all
    others."""
    max_retries: int = Field(default=5, ge=0)
    """The maximum number of retries of a call that failed for a temporary reason (5xx, timeouts, resets). For calls
    that the endpoint rejects (429, 503, 529), only `max_retry_seconds` limits the retries. With `max_retries: 0`, no
    call is retried."""
    max_retry_seconds: float = Field(default=300, gt=0)
    """A call may be retried for this number of seconds after its first try. If an endpoint asks for a longer wait
    (Retry-After), the run stops at once and can be continued later."""
    vllm_url: str = ""
    """Base URL for `vllm:` models, unless a role has a separate URL."""
    azure_endpoint: str = ""
    """Base URL for `azure:` models, such as `https://<resource>.openai.azure.com`."""
    azure_api_version: str = "2024-10-21"
    """The API version in requests to `azure:` models."""


class Price(Section):
    input: float = Field(ge=0)
    """Dollars per million prompt tokens."""
    output: float = Field(ge=0)
    """Dollars per million completion tokens."""
    cached: float | None = Field(default=None, ge=0)
    """Dollars per million prompt tokens that the endpoint reads from its cache; `null`: the price of `input`."""
    written: float | None = Field(default=None, ge=0)
    """Dollars per million prompt tokens that the endpoint writes into its cache; `null`: the price of `input`."""


class BudgetConfig(Section):
    max_usd: float | None = Field(default=None, gt=0)
    """The run stops when it has cost this number of dollars. This limit needs a price for every model."""
    max_calls: int | None = Field(default=None, ge=1)
    """The run stops after this number of model calls."""
    max_tokens: int | None = Field(default=None, ge=1)
    """The run stops after this number of tokens (prompts and replies together)."""
    max_minutes: float | None = Field(default=None, gt=0)
    """The run stops after this number of minutes. If the run is continued, the count starts again at 0."""
    prices: dict[str, Price] = {}
    """Prices in dollars per million tokens that replace the price list, such as `{"openai:gpt-4o": {input: 2.5, output:
    10}}`."""


class TrackersConfig(Section):
    use: tuple[str, ...] = ()
    """Trackers that get events as they happen: `tensorboard`, `mlflow`, `wandb`, `otel` (each needs the extra of that
    name), or the names of entry points of the group `skillopt.trackers`. The short form is `trackers: [mlflow]`."""
    project: str = Field(default="skillopt", min_length=1)
    """Name under which trackers group the runs: the experiment in MLflow, the project in W&B, the service in
    OpenTelemetry."""
    mlflow_uri: str = ""
    """Address of the MLflow tracking server; empty: write files into the run's folder."""
    wandb_mode: Literal["offline", "online"] = "offline"
    """`offline`: write into the run's folder, for `wandb sync`. `online`: send to W&B with the key of `wandb login`."""
    otel_endpoint: str = ""
    """Address for OTLP over HTTP, such as `http://127.0.0.1:4318`. Empty: the address in OTEL_EXPORTER_OTLP_ENDPOINT;
    if that variable is not set, a local file."""

    @field_validator("use")
    @classmethod
    def _known_trackers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_one_of(name, TRACKERS, "trackers") for name in value)


class NotesConfig(Section):
    init_skill: str = ""
    """Your reason for this initial skill; the report prints it."""
    schedule: str = ""
    """Your reason for this schedule; the report prints it."""
