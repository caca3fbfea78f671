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
    """true if the same request always gets the same reply."""


class PriceKeys(TypedDict, total=False):
    """Keys of `Price`."""

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
    """The number of passes through the training split."""
    batch_size: int
    """The number of training tasks in a batch."""
    accumulation: int
    """The number of batches whose edits are pooled before the skill is changed."""
    seed: int
    """The seed of all random choices; the same seed and the same replies give the same run."""
    init_skill: str | Path
    """Path of the skill that training starts from: a Markdown file or a package's folder. Empty: training starts
    from an empty skill."""
    init_notes: str | Path
    """Folder of an earlier run whose notes (meta skill) the optimizer starts with: a run on the same tasks, with
    another target or with less data. Empty: the optimizer starts without notes."""
    patience: int
    """The number of steps without improvement after which training stops; 0: no limit. A run also ends once every
    validation task is right, because no gate would accept anything more."""


class OptimizerKeys(TypedDict, total=False):
    """Keys of the section `optimizer`."""

    learning_rate: float
    """The maximum number of edits that a step may apply."""
    min_learning_rate: float
    """The lowest learning rate, in edits per step. null (in configs of earlier versions) means 1."""
    lr_scheduler: str
    """The schedule, by which the rate falls from learning_rate to min_learning_rate over the run: auto (cosine if
    the run has 16 steps or more and the initial skill has fewer than 200 tokens, else constant), cosine, linear,
    constant (only steps that are not accepted lower the rate), or the name of an entry point of the group
    skillopt.schedules."""
    reject_decay: float
    """A rejected or indecisive step multiplies the learning rate by this factor; an accepted step undoes one
    decrease."""
    use_slow_update: bool
    """true: at the end of each epoch, compare the skills of two epochs and write guidance into the protected
    region."""
    slow_update_samples: int
    """The number of training items on which the slow update compares the skills of two epochs."""
    slow_update_gate: Literal["keep", "strict"]
    """The rule for guidance. keep: guidance must not lower the validation score; strict: guidance must raise it.
    Under both rules, the total score of the validation items that earlier guidance solved must not fall."""
    use_meta_skill: bool
    """true: at the end of each epoch, write notes for the optimizer. These notes never enter the skill."""
    rejected_buffer: int
    """The number of rejected edits to remember, the newest first. The exemplar analyst does not propose them
    again."""
    max_edit_tokens: int
    """The maximum number of tokens of an edit; longer edits are dropped. The default is enough for a section of
    worked examples."""
    max_skill_tokens: int
    """The maximum number of tokens of the skill; an edit that would make the skill longer is dropped."""


class FlatGradientKeys(TypedDict, total=False):
    """Keys of the section `gradient`."""

    minibatch_size: int
    """The number of trajectories per request of an analyst; 0: the batch, or as many as fit into prompt_tokens."""
    edits_per_minibatch: int
    """The maximum number of edits in one reply. If the whole batch is one request (minibatch_size 0), the step's
    learning rate is also a limit."""
    analyst_workers: int
    """The maximum number of optimizer calls at the same time; a local: model has at most one per core."""
    deep_reflect_threshold: float
    """The share of a step's failures above which a cause gets a separate request, if no edit answers the cause."""
    prompt_tokens: int
    """The maximum number of tokens of trajectories in one request. A larger batch is read in several requests. The
    middle of a longer trajectory is left out."""
    feedback: str | Path
    """The folder of an earlier run. People's comments on its training items and on lines of its skill (from the web
    page) are in every request to the optimizer. A new run stores a copy of the comments."""
    prompts_dir: str | Path
    """Folder of Markdown files (reflect.md …) that replace the package's prompts of the same names."""
    merge: Literal["local", "llm"]
    """How edits merge. llm: the optimizer merges edits that mean the same; local: only nearly identical edits
    merge."""
    merge_fan_in: int
    """The maximum number of replies whose edits are merged in one request; the edits of more replies are merged
    level by level."""
    review_risky: bool
    """true: an edit with a URL, a shell command or a request for secrets waits until a person approves it
    (`skillopt review`); guidance with such content is refused."""


class GradientKeys(FlatGradientKeys, total=False):
    """The section `gradient`."""

    analysts: Sequence[str]
    """The analysts, which propose edits: llm, brief (for a small LLM), exemplar (needs no LLM), or the names of
    entry points of the group skillopt.analysts; several may work together."""


class FlatPackageKeys(TypedDict, total=False):
    """Keys of the section `package`."""

    review_scripts: bool
    """true: an edit to a script waits until a person approves it (`skillopt review`); false: only the gate
    decides."""
    max_file_tokens: int
    """The maximum number of tokens of a file next to SKILL.md; an edit that would make the file longer is
    dropped."""
    max_total_tokens: int
    """The maximum number of tokens of all text files of the package together; an edit that would make them longer
    is dropped."""


class PackageKeys(FlatPackageKeys, total=False):
    """The section `package`."""

    train: Sequence[Literal["body", "references", "scripts"]]
    """The files of a skill package that may be edited: body (SKILL.md below its front matter), references (other
    Markdown and text files, and new files in references/), scripts (files in scripts/, also new files). A skill
    that is one document is always trained."""


class FlatEvaluationKeys(TypedDict, total=False):
    """Keys of the section `evaluation`."""

    use_gate: bool
    """true: accept a candidate only if its validation score is higher than the current skill's. false is
    refused."""
    metric: Literal["hard", "soft", "mixed"]
    """The score that is used. hard: 0 or 1 per task; soft: 0 to 1 per task; mixed: the mean of hard and soft."""
    credit_gates: int
    """How often the gate may try a rejected candidate again, without the edits that broke items; 0: never."""
    alpha: float
    """The highest share of useless edits that the paired gate may accept (0.05: one in twenty)."""
    max_repeats: int
    """The maximum number of fresh samples of an item with each skill; if these samples do not decide, the verdict
    is indecisive."""
    floors: Mapping[str, float]
    """Limits that every accepted candidate must keep: {"type:refund": 0.8, fall: 0.1, refusals: 0.02, tokens: 500}.
    type:NAME: the minimum score of a task type; fall: the maximum fall of any type's score; refusals: the maximum
    share of tasks that the endpoint may refuse; cost (dollars), tokens, turns, seconds: the maximum mean per
    validation task."""
    test: bool
    """true: measure the initial and the best skill on the test split at the end. false: leave the test split
    unread; the same command with true measures them later."""
    baselines: bool
    """true: measure the empty skill on the test split at the end, unless the initial skill has only a line or two.
    Also compute, at no cost, the scores of doing nothing and of always giving the most frequent answer."""


class EvaluationKeys(FlatEvaluationKeys, total=False):
    """The section `evaluation`."""

    gate: str
    """The gate: strict, paired, or an entry point of the group skillopt.gates. strict: accept a candidate if its
    validation score is higher than the current skill's. paired: fresh samples of both skills, on the items on which
    they differ, must also confirm the gain. If nothing is noisy, paired is the same as strict."""
    vetoes: Sequence[str]
    """Names of entry points of the group skillopt.gates: functions that may reject a candidate that the gate
    accepts, by the items' scores under the current skill and the candidate."""


class ModelsKeys(TypedDict, total=False):
    """Keys of the section `models`."""

    target_model: str
    """The target, which does the tasks, as provider:model."""
    target_url: str
    """Base URL of the target's endpoint; empty for the provider's own."""
    target_temperature: float | None
    """The target's sampling temperature; null: the endpoint's default."""
    target_max_tokens: int
    """The maximum number of tokens of the target's reply."""
    target_deterministic: bool | None
    """true if the same request to the target always gets the same reply; null: the provider's usual value."""
    target_reasoning_effort: Literal["", "none", "minimal", "low", "medium", "high", "xhigh"]
    """The target's reasoning effort, if it is a reasoning model; empty: the endpoint's default."""
    target_key_name: str
    """The environment variable with the target's API key (never the key itself); empty: the provider's usual
    one."""
    target_rpm: int | None
    """The maximum number of requests per minute to the target; null: no limit."""
    target_tpm: int | None
    """The maximum number of tokens per minute to and from the target; null: no limit."""
    targets: Mapping[str, ModelSettingsKeys]
    """Settings for single targets (max_tokens, workers, call_timeout, deterministic), by `provider:model` or by
    provider, such as {local: {max_tokens: 20}}. They override keys for all targets, such as target_max_tokens, but
    not values from the command line."""
    optimizer_model: str
    """The optimizer, which reads trajectories and proposes edits, as provider:model."""
    optimizer_url: str
    """Base URL of the optimizer's endpoint; empty for the provider's own."""
    optimizer_temperature: float | None
    """The optimizer's sampling temperature; null: the endpoint's default."""
    optimizer_max_tokens: int
    """The maximum number of tokens of the optimizer's reply."""
    optimizer_deterministic: bool | None
    """true if the same request to the optimizer always gets the same reply; null: the provider's usual value."""
    optimizer_reasoning_effort: Literal["", "none", "minimal", "low", "medium", "high", "xhigh"]
    """The optimizer's reasoning effort, if it is a reasoning model; empty: the endpoint's default."""
    optimizer_key_name: str
    """The environment variable with the optimizer's API key (not the key itself); empty: the provider's usual
    one."""
    optimizer_options: Mapping[str, JsonValue]
    """Options of a command as the optimizer, such as {timeout: 600, pass_env: [MY_KEY], args: [--fast], at_once:
    4}."""
    optimizers: Mapping[str, ModelSettingsKeys]
    """Settings for single optimizers, by `provider:model` or by provider, in the form of models.targets."""
    optimizer_rpm: int | None
    """The maximum number of requests per minute to the optimizer; null: no limit."""
    optimizer_tpm: int | None
    """The maximum number of tokens per minute to and from the optimizer; null: no limit."""
    judge_model: str
    """The judge, as provider:model, if env.scoring is judge; empty: the optimizer judges, also its own edits."""
    judge_url: str
    """Base URL of the judge's endpoint; empty for the provider's own."""
    judge_temperature: float | None
    """The judge's sampling temperature; null: the endpoint's default."""
    judge_max_tokens: int
    """The maximum number of tokens of the judge's reply."""
    judge_deterministic: bool | None
    """true if the same request to the judge always gets the same reply; null: the provider's usual value. A judge
    whose grades varied in its calibration is always treated as noisy."""
    judge_reasoning_effort: Literal["", "none", "minimal", "low", "medium", "high", "xhigh"]
    """The judge's reasoning effort, if it is a reasoning model; empty: the endpoint's default."""
    judge_key_name: str
    """The environment variable with the judge's API key (never the key itself); empty: the provider's usual one."""
    judge_workers: int
    """The maximum number of judge calls at the same time."""
    judge_rpm: int | None
    """The maximum number of requests per minute to the judge; null: no limit."""
    judge_tpm: int | None
    """The maximum number of tokens per minute to and from the judge; null: no limit."""
    judge_calibration: str
    """The file that `skillopt judge calibrate` wrote; empty: judge_calibration.json next to the config, if
    there."""


class FlatEnvKeys(TypedDict, total=False):
    """Keys of the section `env`."""

    name: str
    """The kind of tasks: qa (questions with answers), sim (the simulated world), trigger (when to load a skill),
    folders (task folders in Harbor's form), a benchmark (docs/benchmarks.md), a plug-in's name, or
    `module:Class`."""
    task: str
    """A description of the tasks in a sentence or two, for the optimizer; empty: the env's own description."""
    benchmark: str
    """Name of the folder in output_root in which the runs are stored; empty: the env's name."""
    split_dir: str | Path
    """Folder with train/, val/ and test/, each with items.json, items.jsonl or items.csv."""
    data: str | Path
    """A file with all items (.jsonl, .json, .csv, .parquet, .arrow, promptfoo's .yaml) in place of split_dir, or a
    Hugging Face data set, hf:org/name[:config][@revision][#split]. SkillOpt divides the items and saves the
    split."""
    columns: Mapping[str, str]
    """The column of env.data for each field, or a path inside a column, such as {question: inputs.question, answer:
    outputs.text}; only needed for column names that SkillOpt does not recognise."""
    split_seed: int
    """The seed for dividing env.data into splits."""
    scoring: str | Callable[..., Any]
    """The scorer of answers: its name, judge, or your function as `scorer.py:fn`. For tasks with files: files
    (compares with expected files), command (runs a check), or a function whose third parameter is the workspace."""
    scoring_note: str
    """A note on the scorer for the optimizer: what gives partial credit, whether order counts, …"""
    scoring_options: Mapping[str, JsonValue]
    """Options of the scorer, such as {tolerance: 0.01}, or {timeout: 10, memory_mb: 2048} for your own function."""
    command: str | list[str]
    """A command line as the target (task on stdin, answer on stdout), or a coding agent: claude-code, codex,
    opencode, gemini-cli, qwen-code, copilot, goose."""
    agent_options: Mapping[str, JsonValue]
    """Options of the agent or command, such as {timeout: 600, pass_env: [MY_KEY]}."""
    options: Mapping[str, JsonValue]
    """Options of the env, which checks them."""
    output_root: str | Path
    """The folder that contains all runs."""
    private: bool | None
    """true: other users of the machine cannot read the runs (folders 0700, journals 0600). null: true if there is a
    .env file in the working folder, in output_root or next to output_root."""


class EnvKeys(FlatEnvKeys, total=False):
    """The section `env`."""

    split: Mapping[str, float]
    """The share of env.data for each split; only read if there is no saved split yet."""
    agent: str | Callable[..., Any]
    """Your agent as the target, `module:fn` or `file.py:fn`; shell: the target model with a sandboxed shell, for
    tasks with files; empty: the target model gets one question and gives one reply."""


class HardwareKeys(TypedDict, total=False):
    """Keys of the section `hardware`."""

    workers: int
    """The maximum number of target calls at the same time; a local: model has at most one per core."""
    executor: Literal["local", "processes", "ray"]
    """The processes that do and score tasks. local: the process of the run; processes: other processes of this
    machine, at most one per core; ray: a Ray cluster. Model calls are always made by the process of the run."""
    ray_address: str
    """The address of the Ray cluster. auto: the cluster that this machine is part of; empty: start a cluster on
    this machine."""
    call_timeout: float | None
    """Seconds until a call without an answer is ended and retried; null: 300 for local: models, 120 for all
    others."""
    max_retries: int
    """The maximum number of retries of a call that failed for a reason that may go away (5xx, timeouts, resets).
    Rejected calls (429, 503, 529) are retried any number of times within max_retry_seconds. 0: no call is
    retried."""
    max_retry_seconds: float
    """Seconds after the first try of a call during which it may be retried. If an endpoint asks for a longer wait
    (Retry-After), the run stops at once and can be continued later."""
    vllm_url: str
    """Base URL for vllm: models, unless a role has its own URL."""
    azure_endpoint: str
    """Base URL for azure: models, https://<resource>.openai.azure.com."""
    azure_api_version: str
    """The API version in azure: requests."""


class BudgetKeys(TypedDict, total=False):
    """Keys of the section `budget`."""

    max_usd: float | None
    """Dollars after which the run stops; this limit needs a price for every model."""
    max_calls: int | None
    """Model calls after which the run stops."""
    max_tokens: int | None
    """Tokens (prompts and replies together) after which the run stops."""
    max_minutes: float | None
    """Minutes of a session after which the run stops."""
    prices: Mapping[str, PriceKeys]
    """Dollars per million tokens in place of the price list, such as {"openai:gpt-4o": {input: 2.5, output:
    10}}."""


class TrackersKeys(TypedDict, total=False):
    """Keys of the section `trackers`."""

    use: Sequence[str]
    """Trackers that get events as they happen: tensorboard, mlflow, wandb, otel (each an extra of that name), or
    the names of entry points of the group skillopt.trackers. `trackers: [mlflow]` for short."""
    project: str
    """Name under which trackers group the runs: the experiment of mlflow, the project of wandb, the service of
    otel."""
    mlflow_uri: str
    """Address of the MLflow tracking server; empty: write files into the run's folder."""
    wandb_mode: Literal["offline", "online"]
    """offline: write into the run's folder, for `wandb sync`; online: send to W&B with the key of `wandb login`."""
    otel_endpoint: str
    """Address for OTLP over HTTP (http://127.0.0.1:4318); empty: OTEL_EXPORTER_OTLP_ENDPOINT, or else a local
    file."""


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
