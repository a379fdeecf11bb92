"""One job of several pods: input and result of the workflow EmberpoolGangJob."""

from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from emberpool.pool.model.binding import Binding, Bundle, Requirements, SecretRef, Secrets
from emberpool.pool.model.checkpoint import Checkpoint
from emberpool.pool.model.claim import MOST_MEMBERS, Source
from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.frozen import Frozen, Strict
from emberpool.pool.model.rollout import TextFile

RENDEZVOUS_PORT = 29500
"""What torchrun and torch.distributed take if they are told nothing."""


class GangJobInput(Strict):
    """Input of the workflow EmberpoolGangJob. Give `command` (the same for all ranks) or `commands` (one per rank)."""

    profile: str
    """Name of the profile whose pool serves the job."""
    caller: str = Field(min_length=1)
    """Whose pods it may reuse: a used pod serves only the caller that used it last."""
    size: int = Field(ge=1, le=MOST_MEMBERS)
    """Pods, and ranks 0 to size - 1. All of them are had at once, or none."""
    command: Command | None = None
    commands: tuple[Command, ...] = ()
    """By rank."""
    peers: bool = False
    """Whether the ranks must reach each other: refused where the profile's `gang_peers` does not promise it."""
    port: int = Field(default=RENDEZVOUS_PORT, ge=1024, le=65535)
    """Where rank 0 listens for the others: MASTER_PORT. Free by then, as nothing of an earlier job is left."""
    env: Mapping[str, str] = Field(default_factory=dict[str, str])
    """For every command of every rank, besides the topology."""
    files: tuple[TextFile, ...] = ()
    """Written into every rank's sandbox before its command runs."""
    checkpoint: Checkpoint | None = None
    """What every rank starts from, restored before code, packages and files."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """By rank, as `SandboxGroup.checkpoint` gives them: instead of one for all."""
    bundle: Bundle | None = None
    """Code, put into every sandbox before the files."""
    requirements: Requirements = ""
    """Python packages that commands can import, as lines of a requirements file or a lock."""
    secrets: Secrets = Field(default_factory=dict[str, SecretRef])
    """Environment variables by reference to what the worker has: `{"API_KEY": "env:JOB_API_KEY"}`."""
    image: str = ""
    """A name of the profile's images; empty means its base image."""
    reuse_key: str = ""
    """Splits one caller's pods further; a new key each time means fresh pods each time."""
    priority: int = 0
    """Higher goes first among this caller's requests."""
    hold_s: float = Field(default=900.0, gt=0)
    wait_timeout_s: float = Field(default=600.0, gt=0)
    """Seconds that the gang may stand in line before NoCapacity."""
    task_queue: str = "emberpool"
    """Name of emberpool's task queues."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.command is None) == (not self.commands):
            raise ValueError("command: give either command or commands, not both and not none")
        if self.commands and len(self.commands) != self.size:
            raise ValueError(f"commands: there are {len(self.commands)} for {self.size} ranks")
        if self.checkpoint is not None and self.checkpoints:
            raise ValueError("checkpoint: give either checkpoint or checkpoints, not both")
        if self.checkpoints and len(self.checkpoints) != self.size:
            raise ValueError(f"checkpoints: there are {len(self.checkpoints)} for {self.size} ranks")
        return self

    def binding(self) -> Binding:
        """What is bound to every rank."""
        return Binding(bundle=self.bundle, requirements=self.requirements, secrets=self.secrets)

    def by_rank(self) -> tuple[Command, ...]:
        """The command of every rank."""
        return self.commands or (() if self.command is None else (self.command,) * self.size)


class GangJobResult(Frozen):
    """How every rank ended, by rank. A rank that was ended because another one failed is `cancelled`."""

    results: tuple[CommandResult, ...]
    failed_rank: int | None = None
    """The rank that did not succeed first; None if all did."""
    pods: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    """Where each rank's pod came from."""
    ttfc_s: float | None = None
    """Time to first command of the rank that had it last."""

    @property
    def ok(self) -> bool:
        """Whether every rank ended by itself with exit status 0."""
        return self.failed_rank is None
