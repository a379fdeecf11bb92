"""What goes into each activity and comes out: one frozen model each way. Fields are only ever added, with defaults."""

from collections.abc import Mapping
from datetime import datetime

from pydantic import Field

from emberpool.pool.model.claim import SandboxRef, Source, Step
from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.frozen import Bytes, Frozen
from emberpool.pool.model.ids import ExecutionId, PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.recycle import Attestation, RecycleOutcome
from emberpool.pool.model.rollout import RolloutResult, RolloutTask, TextFile
from emberpool.pool.model.state import PodState

MAX_FILE_BYTES = 1024 * 1024
"""Largest file in one activity's payload: 1.4 MiB in base64, under Temporal's 2 MiB limit."""


class Lease(Frozen):
    """What an answered call tells of its sandbox's lease."""

    pod: PodName
    epoch: int
    source: Source
    ttfc_s: float | None = None
    """Time to first command, on the answer that opened the sandbox."""
    attestation: Attestation | None = None
    """The reset that the pod came from, if it was used before."""
    host: str = ""
    """Address at which pods of one gang reach this one; empty if nothing does (a unix socket)."""
    device: str = ""
    """Network device that has this address, if programs would not find it by the host's name."""


class CallInput(Frozen):
    """Base of every call on a sandbox."""

    ref: SandboxRef


class CallOutput(Frozen):
    """Base of every answer: either done, with the lease, or a step to take before the same call is made again."""

    step: Step | None = None
    lease: Lease | None = None
    first_scheduled: datetime | None = None
    """When this call was first scheduled; the sandbox keeps its first one."""
    searchable: bool = False
    """Whether the worker found emberpool's search attributes registered, and may have them set."""


class RunInput(CallInput):
    """Run a command."""

    command: Command


class RunOutput(CallOutput):
    """A command's end."""

    result: CommandResult | None = None


class WriteFileInput(CallInput):
    """Write one file, whole and at once."""

    path: str
    data: Bytes
    mode: int = 0o644


class ReadFileInput(CallInput):
    """Read one file; over `limit` bytes it is refused."""

    path: str
    limit: int = MAX_FILE_BYTES


class ReadFileOutput(CallOutput):
    """A file's bytes."""

    data: Bytes = b""


class BindInput(CallInput):
    """Bind environment and files to the sandbox at job start."""

    env: Mapping[str, str] = Field(default_factory=dict[str, str])
    files: tuple[TextFile, ...] = ()


class AdoptInput(CallInput):
    """Take over a detached sandbox: `ref.holder` is the new holder."""


class WaitInput(CallInput):
    """Wait in line until the claim can be answered."""

    drain: PodName | None = None
    """A pod set draining to make room for this request: deleted at once."""


class ProvisionInput(CallInput):
    """Create the pod that is reserved for the request."""

    pod: PodName
    image: str


class ReservedPodInput(CallInput):
    """Promote, or swap the image of, the pod that is reserved for the request."""

    pod: PodName
    image: str = ""


class StepOutput(Frozen):
    """A step of the ladder ended; claim again. `failure` says why a pod could not be had, if so."""

    failure: str = ""
    took_ms: float = 0.0
    """How long a promotion or a swap took, with what the index was told."""


class RecycleInput(CallInput):
    """Release the sandbox and recycle its pod."""


class RecycleResult(Frozen):
    """What became of a released sandbox's pod."""

    outcome: RecycleOutcome
    pod: str = ""
    attestation: Attestation | None = None
    reason: str = ""
    """For drained: why."""


class PoolInput(Frozen):
    """Names a pool and carries its targets; a rising version makes a late write harmless."""

    profile: str
    version: int
    max_pods: int
    min_warm: int
    take_over: bool = False
    """A manager's first plan: return at once if the index holds what another manager wrote."""


class ShareOfQueue(Frozen):
    """Argument of the signal `set_queue_share`."""

    max_pods: int | None = None
    """Pods that the pool's queue leaves it; None: it follows none any more."""


class PlanOutput(Frozen):
    """What the pool needs now, bounded, and what it looks like."""

    create: int = 0
    retire: tuple[PodName, ...] = ()
    by_state: Mapping[PodState, int] = Field(default_factory=dict[PodState, int])
    idle_fresh: int = 0
    waiting: int = 0
    leases: int = 0
    version: int = 0
    """Of the targets that the index holds; 0 from workers that did not say yet."""
    max_pods: int = 0
    min_warm: int = 0
    standby: int = 0
    """Pods to create that stand by."""
    follows_queue: bool = True
    """Whether its worker's profile names a queue; if not, what one said before counts no more."""


class LookInput(Frozen):
    """Look at a pool, now."""

    profile: str


class PoolView(Frozen):
    """A pool as its index counts it at this moment."""

    by_state: Mapping[PodState, int] = Field(default_factory=dict[PodState, int])
    idle_fresh: int = 0
    waiting: int = 0
    leases: int = 0
    ceiling: int = 0
    min_warm: int = 0
    oldest_wait_s: float = 0.0
    quarantined: Mapping[str, int] = Field(default_factory=dict[str, int])
    """Pods that did not prove their reset and are not deleted yet, by the checks that failed."""


class WarmInput(Frozen):
    """Create pods for the warm target, and pods that stand by."""

    profile: str
    count: int
    standby: int = 0


class WarmOutput(Frozen):
    """How many became ready; the first failure's reason otherwise."""

    ready: int = 0
    failure: str = ""


class RetireInput(Frozen):
    """Delete pods that nobody holds."""

    profile: str
    pods: tuple[PodName, ...]


class RetireOutput(Frozen):
    """The pods that are gone."""

    gone: tuple[PodName, ...] = ()


class TendInput(Frozen):
    """Tend a pool for a while."""

    profile: str


class TendOutput(Frozen):
    """What tending did, for people."""

    recycled: int = 0
    deleted: int = 0
    expired: int = 0
    swept: int = 0


class LoadTasksInput(Frozen):
    """Read tasks `offset` to `offset + limit` of a file of JSON lines."""

    url: str
    """Empty: there is no file; only what the worker says of itself is wanted."""
    offset: int = 0
    limit: int = 50
    count: bool = False
    """True: also count the file's tasks."""
    results_url: str = ""
    """Where results will be written: checked at once, before anything runs. Empty: not asked."""


class LoadTasksOutput(Frozen):
    """The tasks read; `total` if asked for."""

    tasks: tuple[RolloutTask, ...] = ()
    total: int = 0
    searchable: bool = False
    """Whether the namespace has emberpool's search attributes and this worker sets them."""


class RecordResultInput(Frozen):
    """Write one rollout's result under a folder's URL, idempotent by rollout id."""

    url: str
    result: RolloutResult


class WatchInput(CallInput):
    """Look at a command that an activity runs."""

    execution_id: ExecutionId


class WatchOutput(CallOutput):
    """How far it is; all zero if it has not started or has ended."""

    elapsed_s: float = 0.0
    stdout_tail: Bytes = b""
    stderr_tail: Bytes = b""
    """At most the last 1,024 bytes."""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    """Written so far."""


class Nothing(Frozen):
    """An answer without content."""


class Progress(Frozen):
    """Heartbeat of a running command, as the Temporal UI shows it."""

    elapsed_s: float
    tail: str
    """The last lines of output, for people."""


class StartProgress(Frozen):
    """Heartbeat of a pod that starts."""

    pod: PodName
    phase: Phase
