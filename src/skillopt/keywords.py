"""The keys of the config as keyword arguments, for editors.

Written by scripts/make_reference.py from the config; `make docs` renews it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from pydantic import JsonValue


class ModelSettingsKeys(TypedDict, total=False):
    """Keys of `ModelSettings`."""

    max_tokens: int | None
    """The maximum number of tokens of a reply."""
    workers: int | None
    """The maximum number of calls at the same time."""
    call_timeout: float | None
    """Seconds until a call without an answer is ended and retried."""
    deterministic: bool | None
    """`true` if the same request always gets the same reply."""


class PriceKeys(TypedDict, total=False):
    """Keys of `Price`."""

    input: float
    """Dollars per million prompt tokens."""
    output: float
    """Dollars per million completion tokens."""
    cached: float | None
    """Dollars per million prompt tokens that the endpoint reads from its cache; `null`: the price of `input`."""
    written: float | None
    """Dollars per million prompt tokens that the endpoint writes into its cache; `null`: the price of `input`."""


class TrainKeys(TypedDict, total=False):
    """Keys of the section `train`."""

    num_epochs: int
    """The number of passes through the training split."""
    batch_size: int
    """The number of training tasks in a batch."""
    accumulation: int
    """The number of batches whose edits are collected before the skill is changed once."""
    seed: int
    """The seed of all random choices; the same seed and the same replies give the same run."""
    init_skill: str | Path
    """Path of the skill that training starts from: a Markdown file or a package's folder. Empty: training starts
    from an empty skill."""
    init_notes: str | Path
    """The folder of an earlier run on the same tasks, such as a run with another target or with less data. The
    optimizer starts with that run's notes (meta skill). Empty: the optimizer starts without notes."""
    patience: int
    """The number of steps without improvement after which training stops; 0: no limit. A run also ends when every
    validation task is right, because then no gate can accept a further candidate."""


class OptimizerKeys(TypedDict, total=False):
    """Keys of the section `optimizer`."""

    learning_rate: float
    """The maximum number of edits that a step may apply."""
    min_learning_rate: float
    """The lowest learning rate, in edits per step. `null` (in configs of earlier versions) means 1."""
    lr_scheduler: str
    """The schedule of the learning rate. With `cosine` and `linear`, the rate falls from `learning_rate` to
    `min_learning_rate` over the run, along the curve of that name. With `constant`, only steps that are not
    accepted lower the rate. `auto` means `cosine` if the run has at least 16 steps and the initial skill has fewer
    than 200 tokens; else it means `constant`. Any other value is the name of an entry point of the group
    `skillopt.schedules`."""
    reject_decay: float
    """After a rejected or indecisive step, the learning rate is multiplied by this factor. An accepted step undoes
    one such decrease."""
    use_slow_update: bool
    """`true`: at the end of each epoch from the second on, compare the epoch's skill with the previous epoch's, and
    write guidance into the skill's protected region."""
    slow_update_samples: int
    """The number of training items on which the slow update compares the skills of two epochs."""
    slow_update_gate: Literal["keep", "strict"]
    """The gate's rule for guidance. `keep`: guidance must not lower the validation score. `strict`: guidance must
    raise the validation score. Both rules also look at the validation items that earlier guidance solved: their
    total score must not fall."""
    use_meta_skill: bool
    """`true`: at the end of each epoch, the optimizer writes notes for its later requests. These notes never enter
    the skill."""
    rejected_buffer: int
    """The maximum number of rejected edits that the run remembers; older ones are forgotten. The analyst `exemplar`
    does not propose a remembered edit again."""
    max_edit_tokens: int
    """The maximum number of tokens of an edit; longer edits are dropped. The default is enough for a section of
    worked examples."""
    max_skill_tokens: int
    """The maximum number of tokens of the skill; an edit that would exceed this limit is dropped."""


class FlatGradientKeys(TypedDict, total=False):
    """Keys of the section `gradient`."""

    minibatch_size: int
    """The number of trajectories in one request of an analyst. 0: the whole batch, or as many trajectories as fit
    into `prompt_tokens`."""
    edits_per_minibatch: int
    """The maximum number of edits in one reply. If one request contains the whole batch (`minibatch_size: 0`), the
    step's learning rate is a second limit."""
    analyst_workers: int
    """The maximum number of optimizer calls at the same time; for a `local:` model, at most one per core and at
    most four."""
    deep_reflect_threshold: float
    """If a cause has more than this share of a step's failures and no edit answers it, the optimizer gets a
    separate request about that cause."""
    prompt_tokens: int
    """The maximum number of tokens of trajectories in one request. A larger batch is read in several requests. If a
    single trajectory is longer, its middle is left out."""
    feedback: str | Path
    """The folder of an earlier run with people's comments from the web page. Comments on training items and on
    lines of the skill are in every request to the optimizer. A new run stores a copy of the comments."""
    prompts_dir: str | Path
    """Folder of Markdown files (`reflect.md`, …). Each file replaces the SkillOpt prompt of the same name."""
    merge: Literal["local", "llm"]
    """How edits are merged. `llm`: the optimizer merges edits that mean the same. `local`: only nearly identical
    edits are merged."""
    merge_fan_in: int
    """The maximum number of replies whose edits one request merges. If there are more replies, their edits are
    merged in groups, and then the results of the groups are merged."""
    review_risky: bool
    """`true`: an edit that contains a URL, a shell command or a request for secrets waits until a person approves
    the edit (`skillopt review`). Guidance with such content is refused."""


class GradientKeys(FlatGradientKeys, total=False):
    """The section `gradient`."""

    analysts: Sequence[str]
    """The analysts, which propose edits: `llm`, `brief` (for a small LLM), `exemplar` (needs no LLM), or the names
    of entry points of the group `skillopt.analysts`. Several analysts may work together."""


class FlatPackageKeys(TypedDict, total=False):
    """Keys of the section `package`."""

    review_scripts: bool
    """`true`: an edit to a script waits until a person approves the edit (`skillopt review`). `false`: only the
    gate decides."""
    max_file_tokens: int
    """The maximum number of tokens of a file next to SKILL.md; an edit that would exceed this limit is dropped."""
    max_total_tokens: int
    """The maximum number of tokens of all text files of the package together; an edit that would exceed this limit
    is dropped."""


class PackageKeys(FlatPackageKeys, total=False):
    """The section `package`."""

    train: Sequence[Literal["body", "references", "scripts"]]
    """The files of a skill package that edits may change: `body` (SKILL.md below its front matter), `references`
    (other Markdown and text files, and new files in `references/`), `scripts` (files in `scripts/`, also new
    files). If the skill is not a package but one document, edits may always change the document."""


class FlatEvaluationKeys(TypedDict, total=False):
    """Keys of the section `evaluation`."""

    use_gate: bool
    """`true`: accept a candidate only if its validation score is higher than the current skill's. `false` is not
    allowed."""
    metric: Literal["hard", "soft", "mixed"]
    """Which score of a task is used. `hard`: 0 or 1. `soft`: from 0 to 1. `mixed`: the mean of the hard and the
    soft score."""
    credit_gates: int
    """The maximum number of times per step that the gate tries a rejected candidate again, without the edits that
    broke items. 0: never."""
    alpha: float
    """The maximum share of useless edits that the gate `paired` may accept (0.05: one in twenty)."""
    max_repeats: int
    """The maximum number of fresh samples of an item under each skill. If the result is uncertain even after these
    samples, the gate is indecisive."""
    floors: Mapping[str, float]
    """Limits that every accepted candidate must keep, such as `{"type:refund": 0.8, fall: 0.1, refusals: 0.02,
    tokens: 500}`. `type:NAME`: the minimum score of a task type. `fall`: the maximum fall of any type's score.
    `refusals`: the maximum share of tasks that the endpoint refuses. `cost` (dollars), `tokens`, `turns`,
    `seconds`: the maximum mean per validation task."""
    test: bool
    """`true`: measure the initial and the best skill on the test split at the end. `false`: do not read the test
    split; the same command with `true` can measure both skills later."""
    baselines: bool
    """`true`: measure the empty skill on the test split at the end, unless the initial skill has only a line or
    two. Also compute (at no cost) the score of doing nothing, and the score of always giving the most frequent
    answer."""


class EvaluationKeys(FlatEvaluationKeys, total=False):
    """The section `evaluation`."""

    gate: str
    """The gate: `strict`, `paired`, or the name of an entry point of the group `skillopt.gates`. `strict` accepts a
    candidate if its validation score is higher than the current skill's. `paired` also takes fresh samples of both
    skills on the items on which their scores differ; these samples must confirm the gain. If nothing is noisy,
    `paired` is the same as `strict`."""
    vetoes: Sequence[str]
    """Names of entry points of the group `skillopt.gates`: functions that may reject a candidate after the gate
    accepted it. Each function gets the items' scores under the current skill and under the candidate."""


class ModelsKeys(TypedDict, total=False):
    """Keys of the section `models`."""

    target_model: str
    """The target, which does the tasks, as `provider:model`."""
    target_url: str
    """Base URL of the target's endpoint; empty: the provider's usual URL."""
    target_temperature: float | None
    """The target's sampling temperature; `null`: the endpoint's default."""
    target_max_tokens: int
    """The maximum number of tokens of the target's reply."""
    target_deterministic: bool | None
    """`true` if the same request to the target always gets the same reply; `null`: the provider's usual value."""
    target_reasoning_effort: Literal["", "none", "minimal", "low", "medium", "high", "xhigh"]
    """The target's reasoning effort, if the target is a reasoning model; empty: the endpoint's default."""
    target_key_name: str
    """The name of the environment variable with the target's API key (never the key itself); empty: the provider's
    usual variable."""
    target_rpm: int | None
    """The maximum number of requests per minute to the target; `null`: no limit."""
    target_tpm: int | None
    """The maximum number of tokens per minute to and from the target; `null`: no limit."""
    targets: Mapping[str, ModelSettingsKeys]
    """Settings (`max_tokens`, `workers`, `call_timeout`, `deterministic`) for certain targets only, by
    `provider:model` or by provider, such as `{local: {max_tokens: 20}}`. They override the keys for all targets,
    such as `target_max_tokens`, but not values from the command line."""
    optimizer_model: str
    """The optimizer, which reads trajectories and proposes edits, as `provider:model`."""
    optimizer_url: str
    """Base URL of the optimizer's endpoint; empty: the provider's usual URL."""
    optimizer_temperature: float | None
    """The optimizer's sampling temperature; `null`: the endpoint's default."""
    optimizer_max_tokens: int
    """The maximum number of tokens of the optimizer's reply."""
    optimizer_deterministic: bool | None
    """`true` if the same request to the optimizer always gets the same reply; `null`: the provider's usual
    value."""
    optimizer_reasoning_effort: Literal["", "none", "minimal", "low", "medium", "high", "xhigh"]
    """The optimizer's reasoning effort, if the optimizer is a reasoning model; empty: the endpoint's default."""
    optimizer_key_name: str
    """The name of the environment variable with the optimizer's API key (not the key itself); empty: the provider's
    usual variable."""
    optimizer_options: Mapping[str, JsonValue]
    """If the optimizer is a command: the command's options, such as `{timeout: 600, pass_env: [MY_KEY], args:
    [--fast], at_once: 4}`."""
    optimizers: Mapping[str, ModelSettingsKeys]
    """Settings for certain optimizers only, by `provider:model` or by provider. The keys are those of
    `models.targets`."""
    optimizer_rpm: int | None
    """The maximum number of requests per minute to the optimizer; `null`: no limit."""
    optimizer_tpm: int | None
    """The maximum number of tokens per minute to and from the optimizer; `null`: no limit."""
    judge_model: str
    """The judge, as `provider:model`, if `env.scoring` is `judge`. Empty: the optimizer is the judge, although it
    then judges the effect of its own edits."""
    judge_url: str
    """Base URL of the judge's endpoint; empty: the provider's usual URL."""
    judge_temperature: float | None
    """The judge's sampling temperature; `null`: the endpoint's default."""
    judge_max_tokens: int
    """The maximum number of tokens of the judge's reply."""
    judge_deterministic: bool | None
    """`true` if the same request to the judge always gets the same reply; `null`: the provider's usual value. A
    judge whose grades varied in its calibration is always treated as noisy."""
    judge_reasoning_effort: Literal["", "none", "minimal", "low", "medium", "high", "xhigh"]
    """The judge's reasoning effort, if the judge is a reasoning model; empty: the endpoint's default."""
    judge_key_name: str
    """The name of the environment variable with the judge's API key (never the key itself); empty: the provider's
    usual variable."""
    judge_workers: int
    """The maximum number of judge calls at the same time."""
    judge_rpm: int | None
    """The maximum number of requests per minute to the judge; `null`: no limit."""
    judge_tpm: int | None
    """The maximum number of tokens per minute to and from the judge; `null`: no limit."""
    judge_calibration: str
    """The file that `skillopt judge calibrate` wrote; empty: `judge_calibration.json` next to the config, if that
    file exists."""


class FlatEnvKeys(TypedDict, total=False):
    """Keys of the section `env`."""

    name: str
    """The kind of tasks: `qa` (questions with answers), `sim` (the simulated world), `trigger` (when to load a
    skill), `folders` (task folders in Harbor's format), the name of a benchmark (docs/benchmarks.md) or of a plug-
    in, or `module:Class`."""
    task: str
    """A description of the tasks in a sentence or two, for the optimizer; empty: the env's own description."""
    benchmark: str
    """Name of the folder in `output_root` in which the runs are stored; empty: the env's name."""
    split_dir: str | Path
    """Folder with `train/`, `val/` and `test/`; each of them contains `items.json`, `items.jsonl` or
    `items.csv`."""
    data: str | Path
    """In place of `split_dir`: a file with all items (.jsonl, .json, .csv, .parquet, .arrow, promptfoo's .yaml), or
    a Hugging Face data set, `hf:org/name[:config][@revision][#split]`. SkillOpt divides the items into splits and
    saves the division."""
    columns: Mapping[str, str]
    """For each field of a task, its column in `env.data` or a path inside a column, such as `{question:
    inputs.question, answer: outputs.text}`. This is only needed if SkillOpt does not recognise the column names."""
    split_seed: int
    """The seed for dividing `env.data` into splits."""
    scoring: str | Callable[..., Any]
    """The scorer of answers: the name of a scorer, `judge`, or your function as `scorer.py:fn`. For tasks with
    files: `files` (compares with expected files), `command` (runs a check), or a function whose third parameter is
    the workspace."""
    scoring_note: str
    """A note on the scorer for the optimizer: what gives partial credit, whether order counts, …"""
    scoring_options: Mapping[str, JsonValue]
    """Options of the scorer, such as `{tolerance: 0.01}`. Example for your own function: `{timeout: 10, memory_mb:
    2048}`."""
    command: str | list[str]
    """A command line that does the tasks (it reads the task on stdin and prints the answer on stdout), or a coding
    agent: `claude-code`, `codex`, `opencode`, `gemini-cli`, `qwen-code`, `copilot`, `goose`."""
    agent_options: Mapping[str, JsonValue]
    """Options of the agent or command, such as `{timeout: 600, pass_env: [MY_KEY]}`."""
    options: Mapping[str, JsonValue]
    """Options of the env, such as `{limit: {train: 48}}` for `qa`. The env checks its options."""
    output_root: str | Path
    """The folder that contains all runs."""
    private: bool | None
    """`true`: other users of the machine cannot read the runs (folders 0700, journals 0600). `null`: `true` if
    there is a `.env` file in the working folder, in `output_root` or next to `output_root`; else `false`."""


class EnvKeys(FlatEnvKeys, total=False):
    """The section `env`."""

    split: Mapping[str, float]
    """The share of the items of `env.data` in each split. The shares are only read if no split is saved yet."""
    agent: str | Callable[..., Any]
    """The agent that does the tasks. `module:fn` or `file.py:fn`: your function. `shell`: the target model with a
    sandboxed shell, for tasks with files. Empty: the target model gets one question and gives one reply."""


class HardwareKeys(TypedDict, total=False):
    """Keys of the section `hardware`."""

    workers: int
    """The maximum number of target calls at the same time; for a `local:` model, at most one per core and at most
    four."""
    executor: Literal["local", "processes", "ray"]
    """The processes that do and score tasks. `local`: the process of the run. `processes`: other processes on this
    machine, at most one per core. `ray`: a Ray cluster. In all cases, the process of the run makes the model
    calls."""
    ray_address: str
    """The address of the Ray cluster. `auto`: the cluster that this machine is part of. Empty: start a cluster on
    this machine."""
    call_timeout: float | None
    """Seconds until a call without an answer is ended and retried. `null`: 300 for `local:` models, 120 for all
    others."""
    max_retries: int
    """The maximum number of retries of a call that failed for a temporary reason (5xx, timeouts, resets). For calls
    that the endpoint rejects (429, 503, 529), only `max_retry_seconds` limits the retries. With `max_retries: 0`,
    no call is retried."""
    max_retry_seconds: float
    """A call may be retried for this number of seconds after its first try. If an endpoint asks for a longer wait
    (Retry-After), the run stops at once and can be continued later."""
    vllm_url: str
    """Base URL for `vllm:` models, unless a role has a separate URL."""
    azure_endpoint: str
    """Base URL for `azure:` models, such as `https://<resource>.openai.azure.com`."""
    azure_api_version: str
    """The API version in requests to `azure:` models."""


class BudgetKeys(TypedDict, total=False):
    """Keys of the section `budget`."""

    max_usd: float | None
    """The run stops when it has cost this number of dollars. This limit needs a price for every model."""
    max_calls: int | None
    """The run stops after this number of model calls."""
    max_tokens: int | None
    """The run stops after this number of tokens (prompts and replies together)."""
    max_minutes: float | None
    """The run stops after this number of minutes. If the run is continued, the count starts again at 0."""
    prices: Mapping[str, PriceKeys]
    """Prices in dollars per million tokens that replace the price list, such as `{"openai:gpt-4o": {input: 2.5,
    output: 10}}`."""


class TrackersKeys(TypedDict, total=False):
    """Keys of the section `trackers`."""

    use: Sequence[str]
    """Trackers that get events as they happen: `tensorboard`, `mlflow`, `wandb`, `otel` (each needs the extra of
    that name), or the names of entry points of the group `skillopt.trackers`. The short form is `trackers:
    [mlflow]`."""
    project: str
    """Name under which trackers group the runs: the experiment in MLflow, the project in W&B, the service in
    OpenTelemetry."""
    mlflow_uri: str
    """Address of the MLflow tracking server; empty: write files into the run's folder."""
    wandb_mode: Literal["offline", "online"]
    """`offline`: write into the run's folder, for `wandb sync`. `online`: send to W&B with the key of `wandb
    login`."""
    otel_endpoint: str
    """Address for OTLP over HTTP, such as `http://127.0.0.1:4318`. Empty: the address in
    OTEL_EXPORTER_OTLP_ENDPOINT; if that variable is not set, a local file."""


class NotesKeys(TypedDict, total=False):
    """The section `notes`."""

    init_skill: str | Path
    """Your reason for this initial skill; the report prints it."""
    schedule: str
    """Your reason for this schedule; the report prints it."""


class ConfigKeys(
    TrainKeys,
    OptimizerKeys,
    FlatGradientKeys,
    FlatPackageKeys,
    FlatEvaluationKeys,
    ModelsKeys,
    FlatEnvKeys,
    HardwareKeys,
    BudgetKeys,
    TrackersKeys,
    total=False,
):
    """Every config key by its name alone, and every section."""

    train: TrainKeys
    """Keys of this section, as a dict."""
    optimizer: OptimizerKeys
    """Keys of this section, as a dict."""
    gradient: GradientKeys
    """Keys of this section, as a dict."""
    package: PackageKeys
    """Keys of this section, as a dict."""
    evaluation: EvaluationKeys
    """Keys of this section, as a dict."""
    hardware: HardwareKeys
    """Keys of this section, as a dict."""
    budget: BudgetKeys
    """Keys of this section, as a dict."""
    notes: NotesKeys
    """Keys of this section, as a dict."""
