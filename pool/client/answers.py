"""What emberd's answers say, and the proof that a call comes under a lease."""

import base64
from dataclasses import dataclass
from typing import Any, Literal

from emberpool.pool.model.command import CommandResult, Outcome
from emberpool.pool.model.frozen import Frozen
from emberpool.pool.model.ids import BootId, PodName, PodUid
from emberpool.pool.model.recycle import Attestation, RecycleTier


@dataclass(frozen=True)
class LeaseProof:
    """Under which lease a call comes; every call of a lease carries the same."""

    request_id: str
    epoch: int
    tag: str
    hold_s: float
    """Seconds that the lease outlives the end of each call; emberd keeps it for a rebuild of the index."""


@dataclass(frozen=True)
class Progress:
    """A running command, for people who watch: nothing may depend on it."""

    elapsed_s: float
    stdout_tail: bytes
    stderr_tail: bytes
    """At most the last 1,024 bytes."""
    stdout_bytes: int
    stderr_bytes: int
    """Written so far."""

    @property
    def tail(self) -> str:
        """The end of stdout, or of stderr if there is none, as text."""
        return (self.stdout_tail or self.stderr_tail).decode("utf-8", "replace")


class EmberdState(Frozen):
    """emberd's own account: the last judge of who may use the pod."""

    version: int
    pod: PodName
    uid: PodUid
    boot_id: BootId
    state: Literal["clean", "held", "dirty"]
    tag: str
    epoch: int
    lease: str
    hold_s: float
    idle_s: float
    """Seconds since the last call of the lease ended."""
    uses: int
    room_mode: Literal["namespaces", "plain"]
    attestation: Attestation | None = None
    """Of the last recycle, if there was one."""
    image: str = ""
    """Name of the image that jobs see, if the pod was told one."""
    standby: bool = False
    """Whether it holds a tiny share only, and serves nobody until it is promoted."""
    tier: RecycleTier = RecycleTier.ROOM
    """How its recycle resets it."""
    no_rooms: str = ""
    """Why it has no namespaces for rooms, if it was told to use them where it can."""
    unfiltered: str = ""
    """Why no filter of system calls is on jobs; empty if one is."""


def command_result(answer: dict[str, Any], time_limit_s: float) -> CommandResult:
    """The result in an answer about an execution that has ended."""
    return CommandResult(
        outcome=Outcome(answer["outcome"]),
        exit_code=answer["exit_code"],
        signal=answer["signal"],
        stdout=base64.b64decode(answer["stdout"]),
        stderr=base64.b64decode(answer["stderr"]),
        stdout_bytes=answer["stdout_bytes"],
        stderr_bytes=answer["stderr_bytes"],
        truncated=answer["truncated"],
        execution_id=answer["id"],
        stdout_spilled=answer.get("stdout_spilled", 0),
        stderr_spilled=answer.get("stderr_spilled", 0),
        survivors=answer["survivors"],
        duration_s=answer["duration_s"],
        time_limit_s=time_limit_s,
    )


def to_progress(answer: dict[str, Any]) -> Progress:
    """The progress in an answer about an execution that runs."""
    return Progress(
        elapsed_s=answer["elapsed_s"],
        stdout_tail=base64.b64decode(answer["stdout"]),
        stderr_tail=base64.b64decode(answer["stderr"]),
        stdout_bytes=answer["stdout_bytes"],
        stderr_bytes=answer["stderr_bytes"],
    )
