"""Sandbox sessions: what callers outside Temporal send to the workflow EmberpoolSandboxSession, and its answers."""

from pydantic import Field, JsonValue

from emberpool.pool.model.binding import Binding, Bundle, Requirements, SecretRef, Secrets
from emberpool.pool.model.checkpoint import Checkpoint
from emberpool.pool.model.claim import SandboxRef, Source
from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.frozen import Bytes, Frozen, Strict
from emberpool.pool.model.recycle import RecycleOutcome

MAX_WAIT_S = 20.0
"""Longest that one update waits: it holds one of the ten places that a workflow has for updates."""
MAX_IN_FLIGHT = 8
"""Updates at once that a client sends to one session; the server's limit is 10, and beyond it all of them stall."""


class CommandFault(Frozen):
    """Why a command has no result: an emberpool error, by its type and fields."""

    type: str
    message: str
    details: tuple[JsonValue, ...] = ()


class SessionCommand(Frozen):
    """Where a command stands."""

    execution_id: str
    running: bool = True
    result: CommandResult | None = None
    """Once it has ended."""
    fault: CommandFault | None = None
    """If it has ended without a result."""
    elapsed_s: float = 0.0
    stdout_tail: Bytes = b""
    stderr_tail: Bytes = b""
    """While it runs: at most the last 1,024 bytes."""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    """While it runs: written so far."""


class SessionCarried(Frozen):
    """What a run of the session's workflow gives on to the next one."""

    ref: SandboxRef | None = None
    """None: the sandbox was never used."""
    ended: tuple[SessionCommand, ...] = ()
    """The latest commands, as far as they fit."""
    bound: bool = False
    """Whether the session's checkpoint, code, packages and secrets are in the sandbox."""


class SessionInput(Strict):
    """Input of the workflow EmberpoolSandboxSession."""

    profile: str
    caller: str = Field(min_length=1)
    image: str = ""
    reuse_key: str = ""
    fingerprint: str = ""
    wait_timeout_s: float = Field(default=300.0, gt=0)
    priority: int = 0
    idle_timeout_s: float = Field(default=900.0, gt=0)
    """Seconds without an update and without a running command after which the session closes itself."""
    task_queue: str = "emberpool"
    """Name of emberpool's task queues."""
    max_updates: int = Field(default=1000, ge=1)
    """Updates after which the workflow continues as new, between two commands; the server ends it at 2,000."""
    bundle: Bundle | None = None
    """Code, put into the sandbox before its first call."""
    requirements: Requirements = ""
    """Python packages that commands can import, as lines of a requirements file or a lock."""
    secrets: Secrets = Field(default_factory=dict[str, SecretRef])
    """Environment variables by reference to what the worker has: `{"API_KEY": "env:JOB_API_KEY"}`."""
    checkpoint: Checkpoint | None = None
    """What a sandbox of the same image had changed, restored before the first call and before the code."""
    carried: SessionCarried | None = None
    """Set by the workflow itself when it continues as new."""

    def binding(self) -> Binding:
        """What is bound before the first call."""
        return Binding(bundle=self.bundle, requirements=self.requirements, secrets=self.secrets)


class SessionUsed(Frozen):
    """The session's sandbox, for calls that go past its workflow. Holds no secret."""

    ref: SandboxRef
    idle_timeout_s: float
    """The session closes itself this long after it was last told of a call."""


class SessionOpened(Frozen):
    """The session's sandbox has a pod."""

    pod: str = ""
    source: Source | None = None
    ttfc_s: float | None = None


class StartCommand(Strict):
    """Start a command; a known execution id starts nothing. Waits up to `wait_s` for its end."""

    execution_id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    command: Command
    wait_s: float = Field(default=0.0, ge=0, le=MAX_WAIT_S)


class WaitCommand(Strict):
    """Wait up to `wait_s` for a command's end, and read how far it is."""

    execution_id: str
    wait_s: float = Field(default=0.0, ge=0, le=MAX_WAIT_S)


class WhereCommand(Strict):
    """Where a command's output can be read while it runs."""

    execution_id: str


class SessionWhere(Frozen):
    """A sandbox, and an execution in it. Holds no secret."""

    ref: SandboxRef | None = None
    """None: there is no sandbox yet."""
    execution: str = ""
    """Empty: the workflow does not know it; its run's only one is meant."""


class KillCommand(Strict):
    """Kill a command and all that it started; answered when it is dead."""

    execution_id: str


class WriteSessionFile(Strict):
    """Write a file, whole."""

    path: str
    data: Bytes
    mode: int = 0o644


class ReadSessionFile(Strict):
    """Read a file of at most `limit` bytes."""

    path: str
    limit: int = Field(default=1024 * 1024, ge=1, le=1024 * 1024)


class SessionFile(Frozen):
    """A file's bytes."""

    data: Bytes = b""


class SessionAck(Frozen):
    """Done."""


class SessionClosed(Frozen):
    """The session ended; what became of its pod."""

    recycled: RecycleOutcome | None = None
