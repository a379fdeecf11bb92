"""One-shot tool calls from outside Temporal: input and answer of the standalone activity `emberpool.run_tool`."""

import hashlib
from typing import Any

from pydantic import Field

from emberpool.pool.model.binding import Binding, Bundle, Requirements, SecretRef, Secrets
from emberpool.pool.model.claim import Source
from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.frozen import Frozen, Strict
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.rollout import TextFile


class RunToolInput(Strict):
    """One command in a sandbox of its own."""

    profile: str
    caller: str = Field(min_length=1)
    command: Command
    files: tuple[TextFile, ...] = ()
    """Written before the command runs."""
    image: str = ""
    reuse_key: str = ""
    wait_timeout_s: float = Field(default=300.0, gt=0)
    """Seconds to wait in line before NoCapacity."""
    priority: int = 0
    bundle: Bundle | None = None
    """Code, put into the sandbox before the files."""
    requirements: Requirements = ""
    """Python packages that the command can import, as lines of a requirements file or a lock."""
    secrets: Secrets = Field(default_factory=dict[str, SecretRef])
    """Environment variables by reference to what the worker has: `{"API_KEY": "env:JOB_API_KEY"}`."""

    def binding(self) -> Binding:
        """What is bound before the command runs."""
        return Binding(bundle=self.bundle, requirements=self.requirements, secrets=self.secrets)

    def digest(self) -> str:
        """Tells this call from another one that uses its id by mistake."""
        # What a call does not use is left out, as calls were told apart before there was any of it: one that spans an
        # upgrade is known.
        unused: dict[str, Any] = {} if self.command.tty else {"command": {"tty", "tty_rows", "tty_cols"}}
        unused |= {name: True for name in ("bundle", "requirements", "secrets") if not getattr(self, name)}
        left_out = unused or None
        return hashlib.sha256(self.model_dump_json(exclude=left_out).encode()).hexdigest()[:32]


class RunToolOutput(Frozen):
    """The command's end, and where it ran."""

    result: CommandResult
    digest: str = ""
    """Of the input that was run."""
    pod: str = ""
    source: Source | None = None
    ttfc_s: float | None = None
    recycled: RecycleOutcome | None = None
    """What became of the pod; None if the worker died before it could say."""
