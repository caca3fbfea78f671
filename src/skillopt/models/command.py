"""A command line that answers requests: `command:…`, or a coding agent by name (`claude-code:`, `codex:` …).

The command reads the prompt from standard input and writes the reply to standard output. Each request starts a new
process in a new folder. The command gets harmless environment variables, the variables that its coding agent needs, and
the variables that the user names, but no others.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pydantic import Field

from skillopt.config.options import Options
from skillopt.errors import UserError
from skillopt.keys import redact
from skillopt.models.base import (
    ChatModel,
    ChatReply,
    ChatRequest,
    FatalError,
    FormRefusedError,
    Message,
    ModelSpec,
    RefusedError,
    TransientError,
    Usage,
    content_text,
)
from skillopt.models.bound import UnseenModel
from skillopt.processes.agent_failures import classify_failure
from skillopt.processes.agent_output import AgentOutput, last_line, parse_text, plain_text
from skillopt.processes.coding_agents import LOGIN_VARIABLES, Preset, preset_of
from skillopt.processes.process import Finished, fingerprint, minimal_environ, run_command, split_command
from skillopt.skill.tokens import count_tokens

_FORM = "write command:PROGRAM ARGUMENTS as in a shell, such as command:llm -m my-model"
_SHORT = 600
"""An output with fewer characters may be an error message that the command printed in place of an answer."""


class CommandOptions(Options):
    """Options of a command as the optimizer (`models.optimizer_options`)."""

    timeout: float = Field(default=600, gt=0)
    """Seconds after which a command that has not answered is ended and started again."""
    pass_env: tuple[str, ...] = ()
    """Names of further environment variables that the command gets, such as the variables with its keys."""
    args: tuple[str, ...] = ()
    """Further arguments of the command."""
    at_once: int | None = Field(default=None, ge=1)
    """The maximum number of commands that run at the same time. If null: for a coding agent, the number that it is
    known to handle; for any other command, 8."""


class CommandModel(ChatModel):
    """One command line as a ChatModel. It has no JSON mode: schemas are written as text in the prompt."""

    ends_calls = True  # its own time limit is longer than an endpoint's

    def __init__(self, name: str, preset: Preset | None, words: list[str], options: CommandOptions) -> None:
        self.name = name
        self._preset = preset
        self._options = options
        self._argv = words
        self.max_concurrency = options.at_once or (preset.max_concurrency if preset else 8)
        self.endpoint = f"{name} {fingerprint(words)[:16]}".strip()

    async def chat(self, request: ChatRequest) -> ChatReply:
        if request.schema and request.schema.form != "text":
            raise FormRefusedError(f"{self.name}: a command takes a schema only as text in the prompt")
        prompt = prompt_text(request.messages)
        with tempfile.TemporaryDirectory(prefix="skillopt-ask-", ignore_cleanup_errors=True) as folder:
            done = await self._run(Path(folder), prompt)
        heard = self._heard(done)
        usage = Usage(
            prompt=heard.prompt_tokens or count_tokens(prompt),
            completion=heard.completion_tokens or count_tokens(heard.output),
            usd=heard.usd,
        )
        return ChatReply(text=heard.output, usage=usage)

    async def _run(self, folder: Path, prompt: str) -> Finished:
        preset, options = self._preset, self._options
        for name, text in (preset.files if preset else {}).items():
            (folder / name).write_text(text, encoding="utf-8")
        env = minimal_environ([*LOGIN_VARIABLES, *options.pass_env, *(preset.pass_env if preset else ())])
        env |= {"NO_COLOR": "1", "TERM": "dumb", **(preset.env if preset else {})}
        try:
            return await run_command(self._argv, cwd=folder, env=env, stdin=prompt, timeout=options.timeout)
        except OSError as error:
            raise FatalError(f"{self.name}: '{self._argv[0]}' cannot be started: {error.strerror or error}") from None

    def _heard(self, done: Finished) -> AgentOutput:
        """The command's answer. If the command failed, raises the error that fits its output."""
        if done.too_long:
            raise RefusedError(f"{self.name}: printed more than 8 MB and was stopped")
        heard = (self._preset.parse if self._preset else parse_text)(done.stdout or done.stderr)
        short = heard.output if len(heard.output) < _SHORT and "{" not in heard.output else ""
        if done.timed_out:
            self._complain(f"{done.stdout}\n{done.stderr}", f"no answer within {self._options.timeout:g} s")
        if done.code or heard.error:
            words = "; ".join(filter(None, (heard.error, last_line(done.stderr))))
            message = plain_text(words or last_line(done.stdout))
            self._complain(
                f"{heard.error}\n{done.stderr}\n{short}", f"ended with exit code {done.code}: {message[:500]}"
            )
        if short and classify_failure(short).kind == "login":
            self._complain(short, short)
        if not heard.output.strip():
            raise TransientError(f"{self.name}: printed nothing")
        return heard

    def _complain(self, words: str, summary: str) -> None:
        """Raise the error that fits the output of a failed command."""
        trouble = classify_failure(plain_text(words)[-8000:])
        message = f"{self.name}: {redact(' '.join(summary.split()))}"
        if trouble.kind == "login":
            way = self._preset.login if self._preset else f"sign in with {self._argv[0]} in a terminal"
            raise FatalError(f"{message}; it needs a login: {way}, then run the same command again")
        if trouble.kind == "limit":
            raise TransientError(f"{message} (a limit of the account)", retry_after=trouble.wait, overloaded=True)
        raise TransientError(message)


def open_command(spec: ModelSpec) -> ChatModel:
    """Make the model that runs a role's command. Raises UserError if the program does not exist or the options are
    wrong."""
    if spec.role == "target":
        return UnseenModel(spec.name)  # if the target is a command, tasks/command.py runs it
    where = f"models.{spec.role}_model"
    options = CommandOptions.read(spec.config.models.optimizer_options, f"models.{spec.role}_options")
    preset = preset_of(spec.provider.prefix)
    if preset:
        words = [preset.program, *preset.ask, *preset.model_argv(spec.model.strip()), *options.args, *preset.last]
    else:
        words = [*split_command(spec.model, where, _FORM), *options.args]
    if shutil.which(words[0]) is None:
        hint = f"; {preset.install}" if preset else ""
        raise UserError(f"{where}: '{words[0]}' is not a program that can be found on PATH{hint}")
    return CommandModel(spec.name, preset, words, options)


def prompt_text(messages: tuple[Message, ...]) -> str:
    """All messages as one text. If one of them is a reply of the model, each message is shown with its role."""
    named = any(message["role"] == "assistant" for message in messages)
    texts = [(message["role"], content_text(message.get("content"))) for message in messages]
    return "\n\n".join(f"[{role}]\n{text}" if named else text for role, text in texts) + "\n"
