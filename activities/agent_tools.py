"""Tools for agents as activities: one text in, one text out, on the sandbox that is current in the workflow.

An agent framework makes a model's schema from each function, and some take nothing but a module's own function with one
argument. So the sandbox does not come as an argument: the workflow's interceptor sends its ref in a header, and the
worker's interceptor puts it, with the worker's pools, where these functions find it.

The docstrings below are read by models.
"""

from contextvars import ContextVar
from dataclasses import dataclass

from pydantic import Field, ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from emberpool.activities import names
from emberpool.activities.errors import translated, typed
from emberpool.activities.models import CallOutput, ReadFileInput, RunInput, WriteFileInput
from emberpool.activities.pools import Pools
from emberpool.activities.sandbox_calls import SandboxCalls
from emberpool.pool.model.claim import SandboxRef
from emberpool.pool.model.command import DEFAULT_TIME_LIMIT_S, Command
from emberpool.pool.model.errors import InvalidInput, NoCurrentSandbox, PoolUnavailable, SandboxFileError
from emberpool.pool.model.frozen import Strict
from emberpool.pool.model.inputs import checked, invalid_input
from emberpool.pool.model.shown import SHOWN_LIMIT, shown, shown_error, shown_file

LIMIT_SHARE = 0.8
"""Of the activity's own time: what its command may take. The rest is for its kill and the way back."""


@dataclass(frozen=True)
class AgentCalls:
    """What the tools work through, in one worker."""

    pools: Pools
    calls: SandboxCalls


@dataclass(frozen=True)
class Here:
    """Where a tool finds itself: the worker's calls and the current sandbox."""

    agent_calls: AgentCalls
    ref: SandboxRef


HERE: ContextVar[Here | None] = ContextVar("emberpool_agent_tools", default=None)
"""Set around each activity by the worker's interceptor, if the header names a sandbox."""


class FileToWrite(Strict):
    """The argument of `sandbox_write`."""

    path: str = Field(min_length=1)
    text: str


@activity.defn(name=names.SANDBOX_BASH)
async def sandbox_bash(command: str) -> str:
    """Run a shell command in the sandbox and return its output and how it ended.

    Args:
        command: Shell text for /bin/sh, run in /work.
    """
    with translated():
        here = _here(names.SANDBOX_BASH)
        try:
            whole = checked(Command, shell=command, time_limit_s=_time_limit_s(), output_limit=SHOWN_LIMIT)
        except InvalidInput as error:
            return shown_error(error)
        output = await here.agent_calls.calls.run_command(RunInput(ref=here.ref, command=whole))
        _check_open(output)
        if output.result is None:
            raise RuntimeError("an answered command has a result")
        return shown(output.result)


@activity.defn(name=names.SANDBOX_READ)
async def sandbox_read(path: str) -> str:
    """Read a text file of the sandbox.

    Args:
        path: Path of the file; a relative one is taken from /work.
    """
    with translated():
        here = _here(names.SANDBOX_READ)
        try:
            output = await here.agent_calls.calls.read_file(ReadFileInput(ref=here.ref, path=path))
        except ApplicationError as error:
            return _readable(error)
        _check_open(output)
        return shown_file(path, output.data)


@activity.defn(name=names.SANDBOX_WRITE)
async def sandbox_write(file_json: str) -> str:
    """Write a text file of the sandbox, whole; missing folders are made.

    Args:
        file_json: A JSON object {"path": "...", "text": "..."}; a relative path is taken from /work.
    """
    with translated():
        here = _here(names.SANDBOX_WRITE)
        try:
            file = FileToWrite.model_validate_json(file_json)
        except ValidationError as error:
            return shown_error(invalid_input(error, "file_json"))
        data = file.text.encode()
        try:
            output = await here.agent_calls.calls.write_file(WriteFileInput(ref=here.ref, path=file.path, data=data))
        except ApplicationError as error:
            return _readable(error)
        _check_open(output)
        return f"[wrote {file.path}]"


AGENT_TOOLS = (sandbox_bash, sandbox_read, sandbox_write)
"""For an agent framework's `activity_as_tool`."""


def _here(tool: str) -> Here:
    here = HERE.get()
    if here is None:
        raise NoCurrentSandbox(tool)
    return here


def _check_open(output: CallOutput) -> None:
    """`Sandbox.current` claims first and then its ref has an epoch, so a claim never asks for a step here."""
    if output.step is not None:
        raise PoolUnavailable(f"the current sandbox must first {output.step.kind}")


def _readable(error: ApplicationError) -> str:
    """The text of an error that a model can do something about; any other is raised."""
    known = typed(error)
    if isinstance(known, SandboxFileError | InvalidInput):
        return shown_error(known)
    raise error


def _time_limit_s() -> float:
    """The command's limit follows from the activity's own, so that a model sees a time-out and not a lost activity."""
    whole = activity.info().start_to_close_timeout
    return DEFAULT_TIME_LIMIT_S if whole is None else LIMIT_SHARE * whole.total_seconds()
