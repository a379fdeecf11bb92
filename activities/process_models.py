"""Inputs and answers of the activities on processes, shells and ports."""

from collections.abc import Mapping

from pydantic import Field

from emberpool.activities.models import CallInput, CallOutput
from emberpool.pool.model.command import DEFAULT_OUTPUT_LIMIT, DEFAULT_TIME_LIMIT_S, Command, CommandResult
from emberpool.pool.model.frozen import Frozen
from emberpool.pool.model.ids import ExecutionId
from emberpool.pool.model.port import PortAnswer, PortRequest
from emberpool.pool.model.process import InputPiece, InputState, ProcessLine
from emberpool.pool.model.shell import ShellResult
from emberpool.pool.model.stream import MAX_PIECE, Cursor, OutputRead

MAX_READ_WAIT_S = 60.0
"""Longest that one read waits for output."""


class StartProcessInput(CallInput):
    """Start a background process; a known id starts nothing."""

    process_id: str
    command: Command
    stdin_open: bool = False


class ListProcessesOutput(CallOutput):
    """The sandbox's processes, oldest first."""

    processes: tuple[ProcessLine, ...] = ()


class SteerProcessInput(CallInput):
    """Do one or more of these to a process, in this order."""

    process_id: str
    write: InputPiece | None = None
    rows: int = 0
    cols: int = 0
    """Above 0: the terminal's new size."""
    signal: int = 0
    """Above 0: sent to its process group."""
    kill: bool = False
    """Kill it and everything that it started."""


class SteerProcessOutput(CallOutput):
    """What became of it."""

    input: InputState | None = None
    reached: bool = True
    """False if there was no process any more, or no terminal, for a signal or a size."""
    result: CommandResult | None = None
    """How a killed one ended."""


class WaitForProcessInput(CallInput):
    """Wait for a process's end."""

    process_id: str
    wait_s: float


class WaitForProcessOutput(CallOutput):
    """Its end, None if it still runs."""

    result: CommandResult | None = None


class ReadOutputInput(CallInput):
    """Read on in the output of an execution, from a cursor."""

    execution_id: ExecutionId
    cursor: Cursor = Cursor()
    wait_s: float = Field(default=0.0, ge=0, le=MAX_READ_WAIT_S)
    limit: int = Field(default=MAX_PIECE, ge=1, le=MAX_PIECE)


class ReadOutputOutput(CallOutput):
    """What there is."""

    known: bool = False
    """False: the execution was not started yet, or never."""
    output: OutputRead = OutputRead()


class FollowOutputInput(ReadOutputInput):
    """The same for callers outside workflows; it never claims a pod."""

    prefix: str = ""
    """Instead of an execution id: its beginning, and the latest such execution is meant."""


class FollowOutputOutput(Frozen):
    """What there is."""

    held: bool = False
    """False: the sandbox holds no pod: not yet, or no more."""
    execution_id: ExecutionId = ExecutionId("")
    known: bool = False
    output: OutputRead = OutputRead()


class OpenShellInput(CallInput):
    """Start a shell; a known id starts nothing."""

    shell_id: str
    program: str = "/bin/sh"
    env: Mapping[str, str] = Field(default_factory=dict[str, str])
    cwd: str | None = None


class RunInShellInput(CallInput):
    """Run a text in a shell."""

    shell_id: str
    text: str
    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    output_limit: int = DEFAULT_OUTPUT_LIMIT


class RunInShellOutput(CallOutput):
    """The text's end, and the shell's state."""

    result: ShellResult | None = None


class RequestPortInput(CallInput):
    """An HTTP request to a server in the sandbox."""

    request: PortRequest


class RequestPortOutput(CallOutput):
    """What the server said."""

    answer: PortAnswer | None = None
