"""The pools that a worker serves, and what every activity needs to reach them. Built and closed by the worker."""

import hashlib
import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from temporalio import activity

from emberpool.activities.afterwards import Afterwards
from emberpool.activities.applied import AppliedWeights
from emberpool.activities.line import WaitingLine
from emberpool.activities.metrics import Metrics, PoolMetrics, Stopwatch
from emberpool.activities.rebuild import Rebuilder
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.index.contract import ClaimRequest, PoolIndex
from emberpool.pool.model.claim import ClaimReply, Rebuilding, SandboxRef
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.ids import PodName, Tag
from emberpool.pool.model.profile import Profile
from emberpool.pool.providers.kubernetes.gangs import Gangs
from emberpool.pool.providers.kubernetes.queue import KueueQueue
from emberpool.pool.providers.provider import Provider
from emberpool.pool.tag import caller_tag

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pool:
    """One profile's pool, as this worker reaches it."""

    profile: Profile
    index: PoolIndex
    provider: Provider
    client: EmberdClient
    line: WaitingLine
    deployment: str
    tenant: str
    pool_key: bytes = field(repr=False)
    metrics: PoolMetrics
    afterwards: Afterwards = field(default_factory=Afterwards)
    rebuilder: Rebuilder = field(default_factory=Rebuilder)
    gangs: Gangs | None = None
    """What connects the pods of gangs in a cluster, if the profile has `gang_peers`."""
    applied: AppliedWeights | None = None
    """What callers weigh, if the profile came from Redis: it may be applied anew while this worker runs."""
    queue: KueueQueue | None = None
    """The queue that the profile names, if it names one."""

    def tag(self, ref: SandboxRef) -> Tag:
        """The caller's tag; namespace and tenant are this activity's and worker's, whatever the workflow says."""
        spec = ref.spec
        return caller_tag(self.pool_key, activity.info().namespace, self.tenant, spec.caller, spec.reuse_key)

    def weight(self, caller: str) -> int:
        """The caller's in line, as the profile says it: never a workflow's word."""
        weights = self.profile.weights if self.applied is None else self.applied.of(self.profile)
        return weights.get(caller, 1)

    async def claim(self, ref: SandboxRef, call_limit_s: float) -> ClaimReply:
        """Ask the index; if it was lost, begin its rebuilding and answer Rebuilding.

        Raises:
            PoolUnavailable: the index cannot be reached.
            InvalidInput: a gang wants peers, and this profile's pods cannot reach each other.
        """
        spec, watch = ref.spec, Stopwatch()
        if ref.gang is not None and ref.gang.peers and not self.profile.gang_peers:
            raise InvalidInput(
                "peers",
                f"pods of profile {self.profile.name!r} cannot reach each other (gang_peers is false): "
                "open the group without peers, or take a profile with gang_peers",
            )
        reply = await self.index.claim(
            ClaimRequest(
                request_id=ref.request_id,
                tag=self.tag(ref),
                caller=f"{self.tenant}/{spec.caller}",
                image=spec.image or self.profile.base_image,
                fingerprint=spec.fingerprint,
                hold_s=spec.hold_s,
                wait_timeout_s=spec.wait_timeout_s,
                priority=spec.priority,
                holder=ref.holder,
                epoch=ref.epoch,
                call_limit_s=call_limit_s,
                waker=self.line.waker,
                new_pod=self.pod_name(uuid.uuid4().hex),
                weight=self.weight(spec.caller),
                gang=ref.gang,
            )
        )
        self.metrics.claim_answered(reply, watch.seconds, new=ref.epoch is None)
        if isinstance(reply, Rebuilding):
            self.rebuilder.begin(self)
        return reply

    def pod_name(self, seed: str) -> PodName:
        """The pod name that belongs to `seed`, which must never be used for two pods."""
        return PodName(f"{self.profile.name}-{hashlib.sha256(seed.encode()).hexdigest()[:10]}")


class Pools:
    """All pools of a worker, by profile name, with the worker's own choices. Filled when the worker starts to run."""

    def __init__(self, heartbeat_s: float, sweep_quiet_s: float) -> None:
        self.heartbeat_s = heartbeat_s
        self.sweep_quiet_s = sweep_quiet_s
        self.metrics = Metrics()
        self.searchable = False
        """Whether workflows may set emberpool's search attributes: they are wanted, and registered."""
        self._by_profile: dict[str, Pool] = {}

    def fill(self, pools: Iterable[Pool]) -> None:
        """Replace the pools that activities reach."""
        self._by_profile = {pool.profile.name: pool for pool in pools}

    def all(self) -> tuple[Pool, ...]:
        """Every pool that this worker serves."""
        return tuple(self._by_profile.values())

    def get(self, profile: str) -> Pool:
        """The pool of a profile.

        Raises:
            InvalidInput: this worker serves no such profile.
        """
        pool = self._by_profile.get(profile)
        if pool is None:
            known = ", ".join(sorted(self._by_profile)) or "none"
            raise InvalidInput("profile", f"{profile!r} is not served by this worker; it serves: {known}")
        return pool
