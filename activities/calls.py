"""One call on a sandbox: claim, first contact, and what a claim's answer means. Every sandbox activity goes through
here."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from temporalio import activity

from emberpool.activities import gang_network
from emberpool.activities.models import Lease
from emberpool.activities.pools import Pool
from emberpool.activities.silence import SILENT, clock, why_gone
from emberpool.pool.client.emberd_client import LeaseProof
from emberpool.pool.client.hearing import is_our_own
from emberpool.pool.client.trust import lacks_trust
from emberpool.pool.index.contract import MustDrain
from emberpool.pool.model.claim import (
    Claimed,
    Closed,
    Expired,
    Lost,
    Mismatch,
    PodAddress,
    Promote,
    Provision,
    Rebuilding,
    SandboxRef,
    Swap,
    Wait,
)
from emberpool.pool.model.errors import (
    NoCapacity,
    PodRefused,
    PodUnreachable,
    PoolUnavailable,
    RequestMismatch,
    SandboxClosed,
    SandboxLost,
)
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.profile import Isolation, ProviderKind

log = logging.getLogger(__name__)

T = TypeVar("T")

MOVES = 5
"""Pods tried for one new claim before the call fails and Temporal retries it."""

LOST_WORDS = {
    "stale_epoch": "fenced",
    "lease_over": "fenced",
    "other_lease": "fenced",
    "other_boot": "restarted",
    "other_tag": "fenced",
    "not_clean": "fenced",
}
"""What emberd's refusal of a lease that was open means to its caller."""


@dataclass
class OpenCall:
    """A call that holds its pod."""

    pool: Pool
    pod: PodAddress
    proof: LeaseProof
    ran_s: float = 0.0
    """Seconds that the user's own command took, set by the call: left out of the time to first command."""


@dataclass(frozen=True)
class Answer(Generic[T]):
    """A value with the lease that gave it, or the step to take first."""

    step: Promote | Swap | Provision | Wait | None
    lease: Lease | None
    value: T | None
    first_scheduled: datetime


async def on_pod(
    pool: Pool,
    ref: SandboxRef,
    limit_s: float,
    do: Callable[[OpenCall], Awaitable[T]],
    within_s: float = float("inf"),
) -> Answer[T]:
    """Claim and call `do` on the pod. A new claim whose pod refuses or cannot be reached at first contact moves on.

    `within_s`: after how long the caller breaks it off, if that is before the attempt's own end.

    While the index is away or being rebuilt, the answer is the step Wait, so long as nothing of this call can have run.

    Raises:
        SandboxLost, SandboxClosed, NoCapacity, RequestMismatch: what the claim answered.
        PodUnreachable, PoolUnavailable: transient; Temporal retries.
    """
    scheduled, ends = ref.first_scheduled or activity.info().scheduled_time, clock() + within_s
    for _ in range(MOVES):
        try:
            reply = await pool.claim(ref, limit_s)
        except PoolUnavailable as error:
            # A later attempt must stay the same activity: an earlier one may have begun the command under its id.
            if activity.info().attempt > 1:
                raise
            log.warning("request %s waits for the index: %s", ref.request_id, error)
            reply = Rebuilding()
        if isinstance(reply, Rebuilding) and activity.info().attempt == 1:
            reply = Wait(left_s=left_s(ref))
        if isinstance(reply, Promote | Swap | Provision | Wait):
            return Answer(reply, None, None, scheduled)
        if not isinstance(reply, Claimed):
            raise _refused(pool, reply, ref)
        claimed_at = datetime.now(UTC)
        call = OpenCall(pool, reply.pod, LeaseProof(ref.request_id, reply.epoch, reply.tag, ref.spec.hold_s))
        try:
            value = await do(call)
        except (PodRefused, PodUnreachable) as error:
            if await _moves(pool, ref, reply, error):
                continue
            raise await _ended(pool, ref, reply, error, ends) from error
        except asyncio.CancelledError:
            raise  # a command may go on in the pod: its lease keeps the call's own limit
        except BaseException:
            await call_ended(pool, ref, reply.epoch)
            raise
        # The answer does not wait for it: until the index hears of it, the lease lives for the call's limit too.
        pool.afterwards.do(call_ended(pool, ref, reply.epoch))
        lease = _lease(call, reply, ref, scheduled)
        if lease.ttfc_s is not None:
            pool.metrics.opened(reply, max(0.0, (claimed_at - scheduled).total_seconds()), lease.ttfc_s)
        return Answer(None, lease, value, scheduled)
    raise PodUnreachable(ref.spec.profile, f"{MOVES} pods in a row failed at first contact")


def left_s(ref: SandboxRef) -> float:
    """Seconds until the running activity's claim has waited for as long as its sandbox allows.

    A sandbox's first call counts from the first activity of all; a later one, whose pod is held, from its own.
    """
    first = ref.first_scheduled if ref.epoch is None else None
    waited = datetime.now(UTC) - (first or activity.info().scheduled_time)
    return max(0.0, ref.spec.wait_timeout_s - waited.total_seconds())


async def call_ended(pool: Pool, ref: SandboxRef, epoch: int) -> None:
    """Tell the index. If it is away the call has ended all the same; its lease then lives for the call's limit too."""
    try:
        await pool.index.end_call(ref.request_id, epoch)
    except PoolUnavailable as error:
        log.warning("the index does not know that a call of request %s ended: %s", ref.request_id, error)


def refusal(reply: Lost | Closed | Expired | Mismatch | Rebuilding, ref: SandboxRef) -> Exception:
    """The error for a claim that cannot be answered with a pod."""
    match reply:
        case Lost():
            repeated = activity.info().attempt > 1
            return SandboxLost(reply.reason, "unknown" if repeated else "no")
        case Closed():
            return SandboxClosed(ref.request_id)
        case Expired():
            return NoCapacity(ref.spec.profile, ref.spec.wait_timeout_s, _too_large(reply, ref))
        case Mismatch():
            return RequestMismatch(ref.request_id)
        case Rebuilding():
            return PoolUnavailable(f"the index of pool {ref.spec.profile!r} is being rebuilt")


def _refused(pool: Pool, reply: Lost | Closed | Expired | Mismatch | Rebuilding, ref: SandboxRef) -> Exception:
    if isinstance(reply, Lost):
        pool.metrics.sandbox_lost(reply.reason)
    return refusal(reply, ref)


def _too_large(reply: Expired, ref: SandboxRef) -> str:
    if reply.reason != "gang_over_ceiling" or ref.gang is None:
        return reply.reason
    return f"a gang of {len(ref.gang.members)} is larger than the pool's ceiling"


async def _moves(pool: Pool, ref: SandboxRef, claimed: Claimed, error: PodRefused | PodUnreachable) -> bool:
    """Whether the claim may go to another pod: only if it is new and nothing of the call can have happened. Not for
    trust or means that this worker lacks: that says nothing against the pod, and no other pod would do."""
    if not claimed.new or error.sent or lacks_trust(error) or is_our_own(error):
        return False
    reason = f"first_contact: {error}"
    log.warning("pod %s failed at first contact: %s", claimed.pod.name, error)
    pool.metrics.first_contact_failed()
    return await pool.index.first_contact_failed(ref.request_id, claimed.epoch, reason) == "moved"


async def _ended(
    pool: Pool, ref: SandboxRef, claimed: Claimed, error: PodRefused | PodUnreachable, ends: float
) -> Exception:
    ended = await _lost_or(pool, ref, claimed, error, ends)
    if isinstance(ended, SandboxLost):
        pool.metrics.sandbox_lost(ended.reason)
    return ended


async def _lost_or(
    pool: Pool, ref: SandboxRef, claimed: Claimed, error: PodRefused | PodUnreachable, ends: float
) -> Exception:
    """SandboxLost if the pod is gone, hangs, or refuses the lease for good, else the transient error itself."""
    executed = "unknown" if error.sent or activity.info().attempt > 1 else "no"
    if isinstance(error, PodRefused):
        return SandboxLost(LOST_WORDS[error.word], executed, error.detail) if error.word in LOST_WORDS else error
    seen = await why_gone(pool, claimed.pod, error, ends)
    if not seen:
        return error
    if seen == SILENT:
        log.warning("pod %s hangs and is given up: %s", claimed.pod.name, error)
    return SandboxLost(await _why_lost(pool, ref, claimed.pod.name, seen), executed, error.detail)


async def _why_lost(pool: Pool, ref: SandboxRef, name: PodName, seen: str) -> str:
    """Who saw the pod end first knows why; once it is cleared away, all that can be seen is that it is gone."""
    freed = await pool.index.pod_failed(name, seen)
    if isinstance(freed, MustDrain):
        return freed.reason or seen
    told = await pool.claim(ref, 0.0)
    return told.reason if isinstance(told, Lost) else seen


def _lease(call: OpenCall, claimed: Claimed, ref: SandboxRef, scheduled: datetime) -> Lease:
    place = gang_network.seat(call.pool, ref)
    waited = (datetime.now(UTC) - scheduled).total_seconds() - call.ran_s
    return Lease(
        pod=claimed.pod.name,
        epoch=claimed.epoch,
        source=claimed.source,
        ttfc_s=max(0.0, waited) if ref.epoch is None else None,
        attestation=claimed.attestation,
        host=place.address if place else _host(call),
        device=gang_network.DEVICE if place else "",
    )


def _host(call: OpenCall) -> str:
    """Address of the pod for its gang's other members; empty if there is none."""
    profile = call.pool.profile
    if profile.provider is ProviderKind.LOCAL and profile.isolation is Isolation.PLAIN and profile.gang_peers:
        return "127.0.0.1"  # it runs on the host's own network
    return urlsplit(call.pod.endpoint).hostname or ""
