"""The transitions of a pool's index: what RedisIndex (scripts) and ModelIndex (plain Python) both do, and tests hold
equal.

One transition is one atomic script. Time is the index's own (Redis TIME), in milliseconds. No state lives in a worker.
Every method raises PoolUnavailable if the index cannot be reached, and answers or raises Rebuilding while there is
no generation.
"""

from typing import Annotated, Literal, Protocol

from pydantic import Field

from emberpool.pool.model.claim import ClaimReply, Gang, Holder, Source
from emberpool.pool.model.frozen import Frozen
from emberpool.pool.model.ids import BootId, PodName, PodUid, RequestId, Tag
from emberpool.pool.model.recycle import Attestation
from emberpool.pool.model.state import PodState
from emberpool.pool.model.weight import HEAVIEST


class ClaimRequest(Frozen):
    """One question to `claim`. The first call of a request records it; later ones must agree in tag and pool."""

    request_id: RequestId
    tag: Tag
    caller: str
    """`tenant/caller`: what the line is fair between."""
    image: str
    fingerprint: str = ""
    hold_s: float
    wait_timeout_s: float
    priority: int = 0
    holder: Holder
    epoch: int | None = None
    """From the ref: with an epoch and no lease the answer is Lost, never a new pod."""
    call_limit_s: float = 0.0
    """Limit of the call that begins: the lease's expiry becomes now + this + hold. 0: no call begins, this only asks
    (a wait in line), so the answer is not `new`, and a later call can still be the first on its pod."""
    waker: str = ""
    """Id of the worker whose wake list is told when the request is served; empty keeps the one known."""
    new_pod: PodName
    """Name to use if a pod must be created for this request."""
    weight: int = Field(default=1, ge=1, le=HEAVIEST)
    """The caller's weight in line: one of weight 3 gets three pods for each one of weight 1."""
    gang: Gang | None = None
    """The gang that it belongs to. The first claim of any member puts all of them in line, alike but for their ids."""


class Released(Frozen):
    """The request held this pod, which is dirty now at `epoch`; recycle it."""

    kind: Literal["released"] = "released"
    pod: PodName
    endpoint: str
    boot_id: BootId
    tag: Tag
    epoch: int


class NothingHeld(Frozen):
    """The request held no pod: it left the line and its reservations are freed. `pod` names a pod that it left dirty
    before, if any."""

    kind: Literal["nothing_held"] = "nothing_held"


class RecycleStarted(Frozen):
    """The pod is recycling; fence and reset it at this (risen) epoch."""

    kind: Literal["recycle_started"] = "recycle_started"
    pod: PodName
    endpoint: str
    boot_id: BootId
    tag: Tag
    epoch: int


class NotDirty(Frozen):
    """Somebody else recycles it, or it is gone."""

    kind: Literal["not_dirty"] = "not_dirty"


class BecameIdle(Frozen):
    """The pod is idle, or stands by if that was asked."""

    kind: Literal["idle"] = "idle"


class HandedTo(Frozen):
    """The pod is leased to a request that waited for it, which was woken."""

    kind: Literal["handed_to"] = "handed_to"
    request_id: RequestId


class MustDrain(Frozen):
    """The pod is draining: delete it, then say `pod_gone`."""

    kind: Literal["must_drain"] = "must_drain"
    reason: str


class Stale(Frozen):
    """The pod, its epoch or its state is another by now; nothing was done."""

    kind: Literal["stale"] = "stale"


class Reserved(Frozen):
    """A place under the ceiling is taken by a starting pod of this name; create it."""

    kind: Literal["reserved"] = "reserved"
    pod: PodName


class AtCeiling(Frozen):
    """No place under the ceiling."""

    kind: Literal["at_ceiling"] = "at_ceiling"


ReleaseReply = Annotated[Released | NothingHeld, Field(discriminator="kind")]
FreedReply = Annotated[BecameIdle | HandedTo | MustDrain | Stale, Field(discriminator="kind")]


class PodRecord(Frozen):
    """A pod as the index knows it."""

    name: PodName
    state: PodState
    uid: PodUid
    boot_id: BootId
    endpoint: str
    image: str
    fingerprint: str
    tag: str
    epoch: int
    lease: str
    """Request id that holds it, or ""."""
    reserved_for: str
    """Request id that it is reserved for, or ""."""
    uses: int
    since_ms: int
    """When it entered its state."""
    reason: str


class LeaseRecord(Frozen):
    """A claim as the index knows it."""

    request_id: RequestId
    state: Literal["waiting", "reserved", "leased", "lost"]
    pod: str
    epoch: int
    tag: Tag
    caller: str
    source: Source | None
    holder: Holder
    detached: bool
    expires_ms: int
    quiet_ms: int
    """Milliseconds since its last call began or ended."""


class PoolCounts(Frozen):
    """Aggregates of a pool, cheap at any size."""

    by_state: dict[PodState, int]
    idle_fresh: int
    waiting: int
    leases: int
    ceiling: int
    min_warm: int
    targets_version: int
    oldest_wait_ms: int


class RebuiltPod(Frozen):
    """What emberd said of a pod during a rebuild. `state` is emberd's: clean, held or dirty."""

    name: PodName
    uid: PodUid
    boot_id: BootId
    endpoint: str
    image: str
    state: Literal["clean", "held", "dirty"]
    tag: str
    epoch: int
    lease: str
    hold_s: float
    standby: bool = False
    """It holds a tiny share only: it stands by rather than is idle."""


class PoolIndex(Protocol):
    """One pool's index."""

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """Take, reserve or wait for a pod, in the order of docs/concepts.md; the same request gets the same answer.

        A call of a held lease extends it. In line, a request keeps its place and its deadline from its first call.
        One of a gang is claimed once every member has its pod; until then it is told to wait, or to see to its own pod.
        Only the gang at the head of the line gathers pods. A gang larger than the ceiling is Expired at once.
        """
        ...

    async def end_call(self, request_id: RequestId, epoch: int) -> None:
        """A call of the lease ended: unless another runs, expiry becomes now + hold. Silent if the lease is over."""
        ...

    async def release(self, request_id: RequestId) -> ReleaseReply:
        """End the request whatever its state; leaves a tombstone, so that a late claim answers Closed. Idempotent.

        The lease's pod turns dirty with a higher epoch. A starting pod that was reserved becomes nobody's.
        One of a gang that is not whole yet ends all of its members.
        """
        ...

    async def first_contact_failed(
        self, request_id: RequestId, epoch: int, reason: str
    ) -> Literal["moved", "lost", "stale"]:
        """emberd of a newly claimed pod did not answer: the pod drains, the request may claim again (moved).

        It has another pod already if one can be had, also past its deadline. Told again while the request lives, it
        answers so again and changes nothing.
        """
        ...

    async def detach(self, request_id: RequestId) -> bool:
        """Exempt the lease from the sweep of holders until it is adopted. False if there is no such lease."""
        ...

    async def adopt(self, request_id: RequestId, holder: Holder) -> bool:
        """Give the lease a new holder and end its detachment. False if there is no such lease."""
        ...

    async def pod_ready(
        self,
        name: PodName,
        uid: PodUid,
        boot_id: BootId,
        endpoint: str,
        image: str,
        epoch: int = 0,
        standby: bool = False,
    ) -> FreedReply:
        """A starting, promoted or swapped pod serves: to the request it is reserved for, else to who waits for its
        image, else idle.

        `standby` says that a starting pod holds a tiny share only: it stands by, and is promoted if it is reserved.
        """
        ...

    async def pod_failed(self, name: PodName, reason: str) -> FreedReply:
        """A pod will not become ready, or broke: it drains, whoever holds it is Lost, whoever reserved it stands in
        line again."""
        ...

    async def pod_gone(self, name: PodName, reason: str) -> None:
        """Nothing of the pod is left: its record and its place go; the head of the line gets the place as a
        Provision."""
        ...

    async def begin_recycle(self, name: PodName) -> RecycleStarted | NotDirty:
        """Take a dirty pod (or one whose recycle is older than 30 s) for recycling; raises its epoch."""
        ...

    async def finish_recycle(
        self,
        name: PodName,
        epoch: int,
        attestation: Attestation,
        keep_alive_s: float,
        max_uses: int,
        retire: str = "",
        boot_id: str = "",
    ) -> FreedReply:
        """Attested: to the request reserved for it, else the first waiter of its tag within its share, else idle
        tagged, else (others wait, or over the ceiling, or worn out, or not attested, or `retire` says why) draining.

        `boot_id`: of its emberd, if that was started anew for the reset."""
        ...

    async def drain(self, name: PodName, reason: str) -> bool:
        """Set a pod draining that nobody holds. False if it is held or unknown."""
        ...

    async def reserve_warm(self, name: PodName, image: str) -> Reserved | AtCeiling:
        """Record a starting pod for the warm target, before it is created."""
        ...

    async def set_targets(self, version: int, ceiling: int, min_warm: int) -> bool:
        """Write the pool's share; a version that is not higher is ignored (False). Wakes the planner."""
        ...

    async def expire(self, limit: int) -> int:
        """Turn the pods of leases past their expiry dirty (Lost: hold_expired) and end waits past their deadline.
        Returns how many."""
        ...

    async def retire_idle(self, limit: int) -> list[PodName]:
        """Set idle used pods past their keep-alive deadline draining, and idle pods above the ceiling. Returns their
        names."""
        ...

    async def quiet_leases(self, quiet_s: float, limit: int) -> list[LeaseRecord]:
        """Leases and waits without a call for `quiet_s`, due for a question to Temporal; each is due again after
        doubling gaps up to 5 min."""
        ...

    async def pods(self, state: PodState, limit: int, older_than_s: float = 0.0, skip: int = 0) -> list[PodRecord]:
        """Pods in a state, longest in it first; only those in it for at least `older_than_s`, by the index's clock.
        Of those the first `skip` are left out."""
        ...

    async def pod(self, name: PodName) -> PodRecord | None: ...

    async def lease(self, request_id: RequestId) -> LeaseRecord | None: ...

    async def counts(self) -> PoolCounts: ...

    async def try_rebuild_lock(self, who: str, ttl_s: float) -> bool:
        """Take the lock of the one rebuilder."""
        ...

    async def keep_rebuild_lock(self, who: str, ttl_s: float) -> bool:
        """Hold the lock for `ttl_s` from now; zero gives it up. False if it was lost, or the index is built."""
        ...

    async def rebuild(self, who: str, pods: list[RebuiltPod]) -> bool:
        """Write the index from the pods' own accounts and give it a generation; False if the lock was lost.

        clean becomes idle (tagged as emberd says), held becomes leased under emberd's lease id for its hold, dirty
        stays dirty.
        The ceiling is zero until targets are set again.
        """
        ...

    async def next_wakes(self, waker: str, timeout_s: float) -> list[RequestId]:
        """Block until requests of this worker were served or lost their wait (one blocking list per worker and
        pool)."""
        ...

    async def next_chores(self, timeout_s: float, reader: str = "") -> bool:
        """Block until a pod needs tending (dirty, draining) or targets changed; False on time-out.

        Each reader of a name sees every chore, so tender and planner use two names; its first call returns at once.
        """
        ...

    async def aclose(self) -> None: ...
