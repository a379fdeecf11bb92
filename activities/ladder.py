"""The steps of the ladder that a claim may ask for: wait in line, create the reserved pod, promote, swap."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from temporalio import activity

from emberpool.activities import names
from emberpool.activities.calls import left_s, refusal
from emberpool.activities.errors import to_temporal, translated
from emberpool.activities.heartbeats import heartbeating
from emberpool.activities.models import ProvisionInput, ReservedPodInput, StartProgress, StepOutput, WaitInput
from emberpool.activities.pools import Pool, Pools
from emberpool.activities.recycle import delete
from emberpool.activities.start import announce, start_pod
from emberpool.pool.index.contract import PodRecord
from emberpool.pool.model.claim import Claimed, Promote, Provision, Rebuilding, Swap, Wait
from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.state import PodState
from emberpool.pool.providers.provider import HELD_BACK

log = logging.getLogger(__name__)

ASK_AGAIN_S = 10.0
"""A wait asks the index anew after this, in case a wake was lost with a Redis failover."""


AWAY_S = 0.3
"""Pause between two questions to an index that is away."""


class Ladder:
    """One activity per step, so that each is visible in the Temporal UI."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    @activity.defn(name=names.WAIT_FOR_POD)
    async def wait_for_pod(self, call: WaitInput) -> StepOutput:
        """Stand in line until the claim can be answered with anything but Wait, also through an outage of the index.

        Raises NoCapacity at the claim's deadline, or PoolUnavailable if the index was away until then; SandboxClosed if
        the request was released meanwhile.
        """
        with translated():
            pool = self._pools.get(call.ref.spec.profile)
            async with heartbeating(self._pools.heartbeat_s, lambda: None):
                if call.drain is not None:
                    await delete(pool, call.drain, "made_room")
                return await self._stand(pool, call)

    async def _stand(self, pool: Pool, call: WaitInput) -> StepOutput:
        with pool.line.waiting(call.ref.request_id) as woken:
            while True:
                woken.clear()
                away = "the index is being rebuilt"
                try:
                    reply = await pool.claim(call.ref, call_limit_s=0)
                except PoolUnavailable as error:
                    reply, away = Rebuilding(), Exception.__str__(error)
                match reply:
                    case Claimed() | Promote() | Swap() | Provision():
                        return StepOutput()
                    case Wait():
                        if reply.drain is not None:
                            await delete(pool, reply.drain, "made_room")
                        pause_s = min(ASK_AGAIN_S, reply.left_s + 0.05)
                    case Rebuilding():
                        pause_s = min(AWAY_S, _before_the_end(call, away))
                    case _:
                        raise refusal(reply, call.ref)
                await _woken(woken, pause_s)

    @activity.defn(name=names.PROVISION_POD)
    async def provision_pod(self, call: ProvisionInput) -> StepOutput:
        """Create the reserved pod and hand it over when its emberd answers. Idempotent by the pod's name."""
        with translated():
            pool = self._pools.get(call.ref.spec.profile)
            beat = StartProgress(pod=call.pod, phase=Phase.PENDING)
            async with heartbeating(self._pools.heartbeat_s, lambda: beat):
                return StepOutput(failure=await start_pod(pool, call.pod, call.image))

    @activity.defn(name=names.PROMOTE_STANDBY)
    async def promote_standby(self, call: ReservedPodInput) -> StepOutput:
        """Give the reserved standby pod its full share; where the provider cannot, a new pod takes its place."""

        async def promote(pool: Pool, pod: PodRecord) -> str:
            return await pool.provider.promote(pod.name)

        return await self._change(call, PodState.PROMOTING, promote)

    @activity.defn(name=names.SWAP_IMAGE)
    async def swap_image(self, call: ReservedPodInput) -> StepOutput:
        """Give the reserved pod the image that was asked for; where the provider cannot, a new pod takes its place."""

        async def swap(pool: Pool, pod: PodRecord) -> str:
            return await pool.provider.swap(pod.name, call.image, pod.epoch)

        return await self._change(call, PodState.SWAPPING, swap)

    async def _change(
        self, call: ReservedPodInput, state: PodState, change: Callable[[Pool, PodRecord], Awaitable[str]]
    ) -> StepOutput:
        """Change the pod where it is and hand it over; also for nobody, if its request was released meanwhile.

        If it cannot be done the pod goes, its place comes back to the line, and the request claims again.
        """
        with translated():
            pool, began = self._pools.get(call.ref.spec.profile), time.monotonic()
            async with heartbeating(self._pools.heartbeat_s, lambda: None):
                record = await pool.index.pod(call.pod)
                if record is None or record.state is not state:
                    return StepOutput()  # an earlier attempt did it, or the pod is gone
                failure = await change(pool, record)
                if failure:
                    log.warning("pod %s cannot leave %s and goes: %s", call.pod, state.value, failure)
                    await pool.index.pod_failed(call.pod, f"{state.value}_failed")
                    await delete(pool, call.pod, f"{state.value}_failed")
                else:
                    failure = await announce(pool, call.pod, call.image or record.image)
            if failure.startswith(HELD_BACK):
                failure = ""  # it does not count against the claim: another pod can have the image
            return StepOutput(failure=failure[:500], took_ms=round((time.monotonic() - began) * 1000, 1))


def _before_the_end(call: WaitInput, away: str) -> float:
    """Seconds left to wait for an index that is away."""
    left = left_s(call.ref)
    if left <= 0:
        waited = call.ref.spec.wait_timeout_s
        raise to_temporal(PoolUnavailable(f"no answer within the claim's {waited:.0f} s: {away}"), final=True)
    return left


async def _woken(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for the event or the time-out.

    Raises:
        PoolUnavailable: this worker stops; the retry waits on another one, at the same place in line.
    """
    waits = {asyncio.ensure_future(event.wait()), asyncio.ensure_future(activity.wait_for_worker_shutdown())}
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    if activity.is_worker_shutdown():
        raise PoolUnavailable("the worker that waited is stopping")
