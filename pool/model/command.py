"""A command to run in a sandbox, and what became of it."""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from pydantic import Field, field_validator, model_validator

from emberpool.pool.model.errors import CommandFailed, CommandFilledDisk, CommandOutOfMemory, CommandTimedOut
from emberpool.pool.model.frozen import Bytes, Frozen, Strict

DEFAULT_TIME_LIMIT_S = 60.0
DEFAULT_OUTPUT_LIMIT = 256 * 1024
"""Per stream. Two streams in base64 stay well under Temporal's 2 MiB payload limit (facts: blob limit)."""
MAX_OUTPUT_LIMIT = 700 * 1024
"""Both streams at this limit, in base64, are 1.83 MiB: the most that fits one payload of 2 MiB."""
MAX_STDIN = 1024 * 1024
"""stdin travels in the activity's input; larger data is uploaded as a file and named as `stdin_path`."""


class Command(Strict):
    """One command. Give `argv` (no shell) or `shell` (text for `/bin/sh -c`), not both."""

    argv: tuple[str, ...] | None = None
    shell: str | None = None
    env: Mapping[str, str] = Field(default_factory=dict[str, str])
    """Added to the sandbox's environment; passed as data, never through a shell."""
    cwd: str | None = None
    """Directory in the sandbox; default /work. A relative path is taken from /work."""
    stdin: Bytes = b""
    """Given whole and then closed; empty means that the command reads end-of-file at once."""
    stdin_path: str = ""
    """A regular file of the sandbox that is the command's stdin instead, of any size. A relative path is taken from
    /work."""
    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    """Seconds after which the whole process tree is killed. The one limit that all inner ones derive from."""
    output_limit: int = DEFAULT_OUTPUT_LIMIT
    """Bytes kept per stream (half head, half tail); the rest is drained and counted, and the command goes on."""
    tty: bool = False
    """Whether it has a terminal: stdout then is one stream with what it writes to stderr, lines end in CRLF."""
    tty_rows: int = Field(default=24, ge=1, le=65535)
    tty_cols: int = Field(default=80, ge=1, le=65535)
    """Size of the terminal's window."""
    replay_safe: bool = False
    """May run again when it cannot be known whether it ran; otherwise the call ends with SandboxLost."""

    @field_validator("time_limit_s")
    @classmethod
    def _positive(cls, value: float) -> float:
        if not math.isfinite(value) or value <= 0:
            raise ValueError("time_limit_s must be a number of seconds above 0")
        return value

    @field_validator("output_limit")
    @classmethod
    def _bounded(cls, value: int) -> int:
        if not 0 <= value <= MAX_OUTPUT_LIMIT:
            raise ValueError(f"output_limit must lie between 0 and {MAX_OUTPUT_LIMIT} bytes")
        return value

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.argv is None) == (self.shell is None):
            raise ValueError("give either argv (a list) or shell (a text), not both and not none")
        if self.argv is not None and not self.argv:
            raise ValueError("argv must name a program")
        if len(self.stdin) > MAX_STDIN:
            raise ValueError(f"stdin is over {MAX_STDIN} bytes: upload it as a file, and name that as stdin_path")
        texts = [
            *(self.argv or ()),
            self.shell or "",
            self.cwd or "",
            self.stdin_path,
            *self.env,
            *self.env.values(),
        ]
        if self.stdin and self.stdin_path:
            raise ValueError("give either stdin (bytes) or stdin_path (a file of the sandbox)")
        if any("\0" in text for text in texts):
            raise ValueError("a NUL byte cannot be part of a command, its environment or its cwd")
        if any("=" in name or not name for name in self.env):
            raise ValueError("an environment name must be non-empty and hold no '='")
        return self

    def title(self) -> str:
        """What a person sees in the Temporal UI: the first 60 characters of the command."""
        text = self.shell if self.shell is not None else " ".join(self.argv or ())
        line = " ".join(text.split())
        return line if len(line) <= 60 else line[:57] + "..."


class Outcome(StrEnum):
    """How a command ended. Taken from the wait status and from who killed it, never from its output."""

    EXITED = "exited"
    """It ended by itself; `exit_code` says how."""
    SIGNALED = "signaled"
    """A signal that emberpool did not send ended it; `signal` says which."""
    TIMED_OUT = "timed_out"
    """Its time limit passed and its process tree was killed."""
    OOM_KILLED = "oom_killed"
    """It went over the sandbox's memory limit and was killed."""
    DISK_FULL = "disk_full"
    """The sandbox's files went over its disk limit, and all that ran in it was killed."""
    CANCELLED = "cancelled"
    """The caller cancelled it and its process tree was killed."""


class CommandResult(Frozen):
    """What became of a command. A failing command is a result, not an exception; see `check`."""

    outcome: Outcome
    exit_code: int | None = None
    """Exit status when `outcome` is exited, else None."""
    signal: int | None = None
    """Signal number when a signal ended it, else None."""
    stdout: Bytes = b""
    stderr: Bytes = b""
    stdout_bytes: int = 0
    """Bytes written in all; more than `len(stdout)` when truncated."""
    stderr_bytes: int = 0
    truncated: bool = False
    """Whether a stream went over the output limit; head and tail are kept, with a line in between that says so."""
    execution_id: str = ""
    """Names the command in its pod: what `Sandbox.download_output` finds its output by, while the lease lasts."""
    stdout_spilled: int = 0
    """Bytes of stdout that the pod keeps in full because they were over the output limit; 0: it keeps no more than
    `stdout`. At most limits.file_mb."""
    stderr_spilled: int = 0
    survivors: bool = False
    """Whether the command left processes running in the background."""
    duration_s: float = 0.0
    time_limit_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit status 0."""
        return self.outcome is Outcome.EXITED and self.exit_code == 0

    @property
    def text(self) -> str:
        """stdout as text; bytes that are not UTF-8 become replacement characters."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        """stderr as text; bytes that are not UTF-8 become replacement characters."""
        return self.stderr.decode("utf-8", "replace")

    def check(self) -> Self:
        """Return self if the command succeeded.

        Raises:
            CommandTimedOut: its time limit passed.
            CommandOutOfMemory: it went over the memory limit.
            CommandFilledDisk: the sandbox went over its disk limit.
            CommandFailed: any other end but exit status 0.
        """
        if self.ok:
            return self
        tail = (self.error_text or self.text)[-500:]
        if self.outcome is Outcome.TIMED_OUT:
            raise CommandTimedOut(self.time_limit_s, tail)
        if self.outcome is Outcome.OOM_KILLED:
            raise CommandOutOfMemory(tail)
        if self.outcome is Outcome.DISK_FULL:
            raise CommandFilledDisk(tail)
        raise CommandFailed(self.outcome.value, self.exit_code, self.signal, tail)
