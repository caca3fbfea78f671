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
    """What `ModelSettings` takes."""

    max_tokens: int | None
    """The most tokens of a reply."""
    workers: int | None
    """The most calls at the same time."""
    call_timeout: float | None
    """Seconds until a call without an answer is ended and retried."""
    deterministic: bool | None
    """Does the same request always give the same reply?"""


class PriceKeys(TypedDict, total=False):
    """What `Price` takes."""

    input: float
    """Dollars per million prompt tokens."""
    output: float
    """Dollars per million completion tokens."""
    cached: float | None
    """Dollars per million prompt tokens that the endpoint reads from its cache; null: the price of `input`."""
    written: float | None
    """Dollars per million prompt tokens that the endpoint writes into its cache; null: the price of `input`."""


class TrainKeys(TypedDict, total=False):
    """Keys of the section `train`."""

    num_epochs: int
    """Passes over the training split."""
    batch_size: int
    """Training tasks in one batch of rollouts."""
    accumulation: int
    """Batches whose edits are pooled before one update."""
    seed: int
    """Fixes batches, samples and labels: same seed and same replies give the same run."""
    init_skill: str | Path
    """Path of the Markdown file or of the skill package's folder to start from (a seed, or a skill trained before);
    empty for an empty skill."""
    init_notes: str | Path
    """Folder of a run whose notes (meta skill) the optimizer starts with: a run on the same tasks, another target
    or less data; empty for no notes."""
    patience: int
    """Stop after this many steps without improvement; 0 never does. A run also ends once every validation task is
    right: no gate would accept anything more."""


class OptimizerKeys(TypedDict, total=False):
    """Keys of the section `optimizer`."""

    learning_rate: float
    """The most edits per step."""
    min_learning_rate: float
    """The rate never falls below this. null (in configs of earlier versions) means 1."""
    lr_scheduler: str
    """How the rate falls from learning_rate to min_learning_rate over the run: auto (cosine for 16 steps or more
    from an initial skill of under 200 tokens, else constant), cosine, linear, constant (only steps that are not
    accepted lower the rate), or the name of an entry point of the group skillopt.schedules."""
    reject_decay: float
    """A rejected or indecisive step multiplies the rate by this; an accepted one takes one such step back."""
    use_slow_update: bool
    """At each epoch's end, compare two epochs' skills and write guidance into the protected region."""
    slow_update_samples: int
    """How many training items the comparison of two epochs' skills uses."""
    slow_update_gate: Literal["keep", "strict"]
    """keep: guidance must not lower the validation score; strict: it must raise it. Neither may lose validation
    items that earlier guidance won."""
    use_meta_skill: bool
    """At each epoch's end, write notes for the optimizer; they never enter the skill."""
    rejected_buffer: int
    """How many of the last rejected edits are remembered; the exemplar analyst does not propose them again."""
    max_edit_tokens: int
    """A longer edit is dropped. The default leaves space for a section of worked examples."""
    max_skill_tokens: int
    """An edit that would make the skill longer than this is dropped."""


class FlatGradientKeys(TypedDict, total=False):
    """Keys of the section `gradient`."""

    minibatch_size: int
    """How many trajectories one analyst reads at a time; 0: the whole batch, or as much as fits into
    prompt_tokens."""
    edits_per_minibatch: int
    """The most edits that one reply may hold. If the whole batch is one request (minibatch_size 0), never more than
    the step's learning rate."""
    analyst_workers: int
    """The most optimizer calls at the same time; a local: model has at most one per core."""
    deep_reflect_threshold: float
    """A cause of more than this share of a step's failures gets a separate request, if no edit answers the
    cause."""
    prompt_tokens: int
    """The most tokens of trajectories in one request. A larger batch is read in several requests; a single
    trajectory that is longer loses its middle."""
    feedback: str | Path
    """The folder of an earlier run. People's comments on its training items and on lines of its skill (from the web
    page) are in every request to the optimizer. A new run keeps a copy."""
    prompts_dir: str | Path
    """Folder of Markdown files (reflect.md …) that replace the package's prompts of the same names."""
    merge: Literal["local", "llm"]
    """llm: the optimizer merges proposals of several replies by meaning; local: only nearly identical texts
    merge."""
    merge_fan_in: int
    """How many replies' proposals the optimizer merges in one request; more are merged level by level."""
    review_risky: bool
    """An edit that brings a URL, a shell command or a request for secrets waits for a person (`skillopt review`)
    before it can reach the skill; guidance that does so is refused."""


class GradientKeys(FlatGradientKeys, total=False):
    """The section `gradient`."""

    analysts: Sequence[str]
    """The analysts, which propose edits: llm, brief (for a small LLM), exemplar (needs no LLM), or the names of
    entry points of the group skillopt.analysts; several may work together."""


class FlatPackageKeys(TypedDict, total=False):
    """Keys of the section `package`."""

    review_scripts: bool
    """An edit to a script waits for a person (`skillopt review`); false lets the gate alone decide."""
    max_file_tokens: int
    """An edit that would make a file next to SKILL.md longer than this is dropped."""
    max_total_tokens: int
    """An edit that would make all text files of the package together longer than this is dropped."""


class PackageKeys(FlatPackageKeys, total=False):
    """The section `package`."""

    train: Sequence[Literal["body", "references", "scripts"]]
    """Which files of a skill package may be edited: body (SKILL.md below its front matter), references (its other
    Markdown and text files, and new ones below references/), scripts (below scripts/, new ones too). A skill that
    is one document is always trained."""


class FlatEvaluationKeys(TypedDict, total=False):
    """Keys of the section `evaluation`."""

    use_gate: bool
    """Accept a candidate only if its score on the validation split is higher. `false` is refused."""
    metric: Literal["hard", "soft", "mixed"]
    """hard: 0 or 1 per task; soft: 0 to 1; mixed: their mean."""
    credit_gates: int
    """After a rejection: how many more gates may test the step without the edits that broke something; 0: none."""
    alpha: float
    """The highest share of useless edits that the paired gate may accept (0.05: one in twenty)."""
    max_repeats: int
    """The most fresh samples of an item under each skill; if these do not decide, the verdict is indecisive."""
    floors: Mapping[str, float]
    """Limits that every accepted candidate must keep: {"type:refund": 0.8, fall: 0.1, refusals: 0.02, tokens: 500}.
    type:NAME: the least score of a task type; fall: the most that any type may lose; refusals: the most tasks that
    the endpoint refuses, as a share; cost (dollars), tokens, turns, seconds: the most that a task may take, as the
    mean over the validation tasks."""
    test: bool
    """Measure the initial and the best skill on the test split at the end. With false the split stays unread; run
    the same command with true to read it later."""
    baselines: bool
    """Measure the empty skill on the test split at the end, unless the initial skill has only a line or two. Also
    compute the scores of doing nothing and of always giving the most frequent answer, which costs nothing."""


class EvaluationKeys(FlatEvaluationKeys, total=False):
    """The section `evaluation`."""

    gate: str
    """The gate. strict: accept a candidate if its validation score is higher than the current skill's. paired:
    fresh samples of both skills, on the items on which they differ, must also confirm it; if nothing is noisy, it
    is the same as strict. Or the name of an entry point of the group skillopt.gates."""
    vetoes: Sequence[str]
    """Vetoes that may reject what the gate accepts: functions of the items' scores before and after, by names in
    the group skillopt.gates."""


class ModelsKeys(TypedDict, total=False):
    """Keys of the section `models`."""

    target_model: str
    """The target as provider:model: it does the tasks."""
    target_url: str
    """Base URL of the target's endpoint; empty for the provider's own."""
    target_temperature: float | None
    """Sampling temperature; null leaves it to the endpoint."""
    target_max_tokens: int
    """The most tokens of the target's reply."""
    target_deterministic: bool | None
    """Does the same request always give the same reply? null: as the provider usually does."""
    target_reasoning_effort: Literal["", "none", "minimal", "low", "medium", "high", "xhigh"]
    """The reasoning effort of a reasoning model; empty leaves it to the endpoint."""
    target_key_name: str
    """The environment variable that holds the key, never the key itself; empty for the provider's usual one."""
    target_rpm: int | None
    """Requests per minute that the endpoint allows; null: any number."""
    target_tpm: int | None
    """Tokens per minute that the endpoint allows; null: any number."""
    targets: Mapping[str, ModelSettingsKeys]
    """Settings for single targets, by `provider:model` or by provider, such as {local: {max_tokens: 20}}:
    max_tokens, workers, call_timeout, deterministic. They override the keys for every target, unless these are
    given on the command line."""
    optimizer_model: str
    """The optimizer as provider:model: it reads trajectories and proposes edits."""
    optimizer_url: str
    """Base URL of the optimizer's endpoint; empty for the provider's own."""
    optimizer_temperature: float | None
    """Sampling temperature; null leaves it to the endpoint."""
    optimizer_max_tokens: int
    """The most tokens of the optimizer's reply."""
    optimizer_deterministic: bool | None
    """As target_deterministic."""
    optimizer_reasoning_effort: Literal["", "none", "minimal", "low", "medium", "high", "xhigh"]
    """As target_reasoning_effort."""
    optimizer_key_name: str
    """As target_key_name."""
    optimizer_options: Mapping[str, JsonValue]
    """Options of a command as the optimizer, such as {timeout: 600, pass_env: [MY_KEY], args: [--fast], at_once:
    4}."""
    optimizers: Mapping[str, ModelSettingsKeys]
    """As targets."""
    optimizer_rpm: int | None
    """As target_rpm."""
    optimizer_tpm: int | None
    """As target_tpm."""
    judge_model: str
    """provider:model that grades answers if env.scoring is judge; empty: the optimizer grades, also its own
    edits."""
    judge_url: str
    """Base URL of the judge's endpoint; empty for the provider's own."""
    judge_temperature: float | None
    """Sampling temperature; null leaves it to the endpoint."""
    judge_max_tokens: int
    """The most tokens of the judge's reply."""
    judge_deterministic: bool | None
    """As target_deterministic. A judge whose grades changed in its calibration is never taken for deterministic."""
    judge_reasoning_effort: Literal["", "none", "minimal", "low", "medium", "high", "xhigh"]
    """As target_reasoning_effort."""
    judge_key_name: str
    """As target_key_name."""
    judge_workers: int
    """The most judge calls at the same time."""
    judge_rpm: int | None
    """As target_rpm."""
    judge_tpm: int | None
    """As target_tpm."""
    judge_calibration: str
    """The file that `skillopt judge calibrate` wrote; empty: judge_calibration.json next to the config, if it is
    there."""


class FlatEnvKeys(TypedDict, total=False):
    """Keys of the section `env`."""

    name: str
    """The kind of tasks: qa (questions with answers), sim (the simulated world), trigger (is a skill loaded),
    folders (task folders in Harbor's form), a benchmark (docs/benchmarks.md), a plug-in's name, or
    `module:Class`."""
    task: str
    """The tasks in a sentence or two, for the optimizer; empty: the env's own description."""
    benchmark: str
    """The folder of the runs below output_root; empty for the env's name."""
    split_dir: str | Path
    """Folder with train/, val/ and test/, each with items.json, items.jsonl or items.csv."""
    data: str | Path
    """One file with all items (.jsonl, .json, .csv, .parquet, .arrow, promptfoo's .yaml) in place of split_dir, or
    a data set of Hugging Face, hf:org/name[:config][@revision][#split]; its split is saved next to it."""
    columns: Mapping[str, str]
    """Columns of env.data by field, or paths inside of a column, such as {question: inputs.question, answer:
    outputs.text}; only needed for names that SkillOpt does not recognise."""
    split_seed: int
    """Seed of the division of env.data."""
    scoring: str | Callable[..., Any]
    """The scorer of answers: its name, judge, or your function as `scorer.py:fn`; for tasks with files, files
    (expected files), command (a check), or a function with a third parameter, the workspace."""
    scoring_note: str
    """More about the score for the optimizer: what gives partial credit, whether order counts, …"""
    scoring_options: Mapping[str, JsonValue]
    """Options of the scorer, such as {tolerance: 0.01}; for your function {timeout: 10, memory_mb: 2048}."""
    command: str | list[str]
    """A command line as the target (task on stdin, answer on stdout), or a coding agent: claude-code, codex,
    opencode, gemini-cli, qwen-code, copilot, goose."""
    agent_options: Mapping[str, JsonValue]
    """Options of the agent or command, such as {timeout: 600, pass_env: [MY_KEY]}."""
    options: Mapping[str, JsonValue]
    """Options of this env, which checks them itself."""
    output_root: str | Path
    """The folder of all runs."""
    private: bool | None
    """Keep runs from other users of the machine: folders 0700, journals 0600. null: if there is a .env in the
    working folder, in output_root or next to it."""


class EnvKeys(FlatEnvKeys, total=False):
    """The section `env`."""

    split: Mapping[str, float]
    """The shares by which env.data is divided; only read if there is no saved split yet."""
    agent: str | Callable[..., Any]
    """Your agent as the target, `module:fn` or `file.py:fn`; shell: the target model with a sandboxed shell, for
    tasks with files; empty: one question, one reply."""


class HardwareKeys(TypedDict, total=False):
    """Keys of the section `hardware`."""

    workers: int
    """The most target calls at the same time; a local: model has at most one per core."""
    executor: Literal["local", "processes", "ray"]
    """local: this process does and scores the tasks; processes: other processes of this machine, at most one per
    core; ray: a Ray cluster. This process always makes the model calls."""
    ray_address: str
    """The cluster's address; `auto` for the cluster that this machine is part of; empty to start a cluster on this
    machine."""
    call_timeout: float | None
    """Seconds until a call without an answer is ended and retried; null: 120, and 300 for local: models."""
    max_retries: int
    """Retries of a call that failed for a reason that may go away (5xx, timeouts, resets). Rejected calls (429,
    503, 529) are retried for max_retry_seconds, however often; 0 retries nothing."""
    max_retry_seconds: float
    """A call is not retried if its next try would be more than this many seconds after its first. If an endpoint
    asks for a longer wait than this (Retry-After), the run stops at once and can be continued later."""
    vllm_url: str
    """Base URL for vllm: models, unless a role has its own."""
    azure_endpoint: str
    """https://<resource>.openai.azure.com for azure: models."""
    azure_api_version: str
    """The API version in azure: requests."""


class BudgetKeys(TypedDict, total=False):
    """Keys of the section `budget`."""

    max_usd: float | None
    """Stop when this many dollars are spent; needs a price for every model."""
    max_calls: int | None
    """Stop after this many model calls."""
    max_tokens: int | None
    """Stop after this many tokens, prompts and replies together."""
    max_minutes: float | None
    """Stop this many minutes after the start of this session."""
    prices: Mapping[str, PriceKeys]
    """Prices that override the list, such as {"openai:gpt-4o": {input: 2.5, output: 10, cached: 1.25}}."""


class TrackersKeys(TypedDict, total=False):
    """Keys of the section `trackers`."""

    use: Sequence[str]
    """Trackers that get events as they happen: tensorboard, mlflow, wandb, otel (each an extra of that name), or
    the names of entry points of the group skillopt.trackers. `trackers: [mlflow]` for short."""
    project: str
    """The group of the runs: the experiment of mlflow, the project of wandb, the service of otel."""
    mlflow_uri: str
    """MLflow's tracking server; empty for files in the run's folder."""
    wandb_mode: Literal["offline", "online"]
    """offline writes into the run's folder, for `wandb sync`; online sends, with the key of `wandb login`."""
    otel_endpoint: str
    """OTLP over HTTP, such as http://127.0.0.1:4318; empty: OTEL_EXPORTER_OTLP_ENDPOINT, else a file in the run."""


class NotesKeys(TypedDict, total=False):
    """The section `notes`."""

    init_skill: str | Path
    """Why you chose this initial skill."""
    schedule: str
    """Why you chose this schedule."""


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
    """Every key by its name alone, and the sections."""

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
