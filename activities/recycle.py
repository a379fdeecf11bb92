"""Releasing a sandbox and recycling its pod: dirty is written first, then the fence, the reset and its proof."""

import asyncio
import logging
from typing import NamedTuple

from temporalio import activity

from emberpool.activities import names
from emberpool.activities.errors import translated
from emberpool.activities.heartbeats import heartbeating
from emberpool.activities.metrics import Stopwatch
from emberpool.activities.models import RecycleInput, RecycleResult
from emberpool.activities.pools import Pool, Pools
from emberpool.pool.client.answers import EmberdState
from emberpool.pool.client.trust import lacks_trust
from emberpool.pool.index.contract import (
    BecameIdle,
    FreedReply,
    HandedTo,
    MustDrain,
    NotDirty,
    NothingHeld,
    RecycleStarted,
    Stale,
)
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.errors import EmberpoolError, PodRefused, PodUnreachable, PoolUnavailable
from emberpool.pool.model.ids import PodName, PodUid, RequestId
from emberpool.pool.model.recycle import Attestation, RecycleOutcome, RecycleTier
from emberpool.pool.policy.rotation import worn_by_age
from emberpool.pool.providers.kubernetes.gangs import Gangs

log = logging.getLogger(__name__)

ANEW_S = 25.0
"""Seconds from its beginning within which a reset that starts a pod anew must end. After 30 s the index has another
begin (`IndexLimits.stuck_ms`), and that one must not come upon a pod which is away just then: it would be given up."""
LEAVE_S, LEAVE_AT_LEAST_S = 10.0, 4.0
"""What a pod's leaving its gang may take: it should end before that too, whatever the reset took."""


class Recycling:
    """The activity that a workflow runs as it leaves a sandbox."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    @activity.defn(name=names.RECYCLE_POD)
    async def recycle_pod(self, call: RecycleInput) -> RecycleResult:
        """End the request whatever its state, and recycle the pod that it held, if any."""
        with translated():
            async with heartbeating(self._pools.heartbeat_s, lambda: None):
                pool, gang = self._pools.get(call.ref.spec.profile), call.ref.gang
                return await release_request(pool, call.ref.request_id, gang is not None and gang.peers)


async def release_request(pool: Pool, request_id: RequestId, peers: bool = True) -> RecycleResult:
    """Release by request id; whatever is interrupted after that is finished by `tend_pool`. `peers`: see `recycle`."""
    released = await pool.index.release(request_id)
    if isinstance(released, NothingHeld):
        return RecycleResult(outcome=RecycleOutcome.NO_POD)
    return await recycle(pool, released.pod, peers)


async def recycle(pool: Pool, name: PodName, peers: bool = True) -> RecycleResult:
    """Recycle one dirty pod; a pod that does not prove its reset is deleted. If this worker lacks the trust to ask it,
    another takes it up, after half a minute. `peers`: whether it may have been connected to a gang; False is known.

    Raises:
        PoolUnavailable: the index or the provider cannot be reached; the pod stays dirty, recycling or draining, and
            is taken again.
    """
    started = await pool.index.begin_recycle(name)
    if isinstance(started, NotDirty):
        return RecycleResult(outcome=RecycleOutcome.ALREADY, pod=name)
    watch = Stopwatch()
    try:
        attestation, reason, boot_id = await _reset(pool, started)
    except PodUnreachable as error:
        log.warning("pod %s is left to other workers: %s", name, error)
        return RecycleResult(outcome=RecycleOutcome.ALREADY, pod=name)
    took_s = watch.seconds
    if peers and pool.gangs is not None:
        await _leave(pool.gangs, started, took_s)
    profile, retire = pool.profile, worn_by_age(pool.profile, attestation)
    freed = await pool.index.finish_recycle(
        name, started.epoch, attestation, profile.keep_alive_s, profile.max_uses, retire, boot_id
    )
    result = await _result(pool, name, freed, attestation, reason)
    pool.metrics.recycled(result.outcome, attestation, took_s)
    return result


async def _leave(gangs: Gangs, started: RecycleStarted, took_s: float) -> None:
    """Take a pod out of its gang that has been fenced. Before the fence, one that joins late would still be told by its
    emberd that the lease holds, and label a pod that has left.

    Raises:
        PoolUnavailable: it is not known to be out.
    """
    limit_s = min(LEAVE_S, max(LEAVE_AT_LEAST_S, ANEW_S + LEAVE_AT_LEAST_S - took_s))
    try:
        async with asyncio.timeout(limit_s):
            await gangs.leave(started.pod, started.epoch)
    except TimeoutError as error:
        raise PoolUnavailable(f"pod {started.pod} did not leave its gang within {limit_s:.0f} s") from error


async def _result(pool: Pool, name: PodName, freed: FreedReply, attestation: Attestation, reason: str) -> RecycleResult:
    match freed:
        case BecameIdle():
            return RecycleResult(outcome=RecycleOutcome.IDLE, pod=name, attestation=attestation)
        case HandedTo():
            return RecycleResult(outcome=RecycleOutcome.HANDED_OVER, pod=name, attestation=attestation)
        case MustDrain():
            await delete(pool, name, freed.reason)
            return RecycleResult(
                outcome=RecycleOutcome.DRAINED, pod=name, attestation=attestation, reason=reason or freed.reason
            )
        case Stale():
            return RecycleResult(outcome=RecycleOutcome.ALREADY, pod=name, attestation=attestation)


async def delete(pool: Pool, name: PodName, reason: str) -> None:
    """Delete a draining pod and give its place back."""
    await pool.provider.delete(name)
    await pool.index.pod_gone(name, reason)


class _Reset(NamedTuple):
    """What came of it."""

    attestation: Attestation
    reason: str = ""
    """Why it is not proved."""
    boot_id: str = ""
    """Of its emberd, if that was started anew."""


async def _reset(pool: Pool, started: RecycleStarted) -> _Reset:
    """Fence, reset and attest; anything but a proved reset comes back as tier none, with its reason.

    Raises:
        PodUnreachable: this worker lacks the trust to ask, which says nothing against the pod.
    """
    pod = PodAddress(name=started.pod, uid=PodUid(""), boot_id=started.boot_id, endpoint=started.endpoint)
    try:
        attestation, now = await _attested(pool, pod, started)
    except EmberpoolError as error:
        if lacks_trust(error):
            raise
        log.warning("pod %s could not be reset and goes: %s", started.pod, error)
        pool.metrics.quarantined(["answer"])
        return _Reset(Attestation(tier=RecycleTier.NONE), f"{type(error).__name__}: {error}"[:500])
    if not attestation.holds:
        failed = [name for name, held in attestation.checks.items() if not held] or ["no checks"]
        reason = f"not attested: {', '.join(failed)}"
        log.warning("pod %s did not prove its reset and goes: %s", started.pod, reason)
        pool.metrics.quarantined(failed)
        return _Reset(attestation, reason)
    return _Reset(attestation, boot_id=now.boot_id if now != pod else "")


async def _attested(pool: Pool, pod: PodAddress, started: RecycleStarted) -> tuple[Attestation, PodAddress]:
    """What emberd attests, and where it is then: without a room to give it is started anew, if the profile says so."""
    ends, epoch = asyncio.get_running_loop().time() + ANEW_S, started.epoch
    demanded = pool.profile.demanded_tier
    try:
        tier = (await pool.client.fence(pod, epoch)).tier
    except PodRefused as refusal:
        if refusal.word != "other_boot" or not pool.profile.restarts:
            raise
        log.info("pod %s has another boot, as after a recycle that was cut: it is reset if it is so", pod.name)
        return await _attested_anew(pool, pod, started)
    attestation = Attestation(tier=RecycleTier.NONE)
    if tier.is_as_strong_as(demanded) or not pool.profile.restarts:
        attestation = (await pool.client.recycle(pod, epoch)).demanding(demanded)
    if attestation.tier is not RecycleTier.NONE or not pool.profile.restarts:
        return attestation, pod
    try:
        async with asyncio.timeout_at(ends):
            problem = await pool.provider.restart(pod.name, epoch)
            if not problem:
                return await _attested_anew(pool, pod, started)
    except TimeoutError:
        problem = f"it is not reset within {ANEW_S:.0f} s"
    log.warning("pod %s is not started anew: %s", pod.name, problem)
    return attestation, pod


async def _attested_anew(pool: Pool, pod: PodAddress, started: RecycleStarted) -> tuple[Attestation, PodAddress]:
    """What the emberd attests that came after the one at `pod`, and where it is.

    Raises:
        PodRefused: it is not as a recycle left it.
    """
    state, epoch = await pool.client.state(pod.name, pod.endpoint), started.epoch
    if state.epoch > epoch or not (state.state == "dirty" or _was_reset_anew(state, started)):
        raise PodRefused("other_boot", f"this is boot {state.boot_id}, {state.state} at epoch {state.epoch}")
    anew = pod.model_copy(update={"boot_id": state.boot_id})
    await pool.client.fence(anew, epoch)
    return (await pool.client.recycle(anew, epoch)).demanding(pool.profile.demanded_tier), anew


def _was_reset_anew(state: EmberdState, started: RecycleStarted) -> bool:
    """Whether an emberd that is clean is what a recycle left that started it anew and reset it, and was cut then.

    It knows the pod's tag, so that it found the account of the life before and was dirty until a reset was attested;
    and nobody has used it since. One that lost its account is clean too, without a tag: it proves nothing.
    """
    return state.state == "clean" and state.uses == 0 and state.tag == started.tag != ""
