"""Whether a pod that did not answer a call is gone, or hangs though its provider sees nothing wrong."""

import asyncio
import logging
from datetime import UTC, datetime

from temporalio import activity

from emberpool.activities.pools import Pool
from emberpool.activities.probe import SILENT
from emberpool.pool.client.hearing import Heard, hear, is_our_own
from emberpool.pool.client.trust import lacks_trust
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.errors import PodUnreachable, PoolUnavailable
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.state import PodState

__all__ = ["SILENT", "clock", "why_gone"]

log = logging.getLogger(__name__)

SILENT_S = 30.0
"""Seconds without any answer before a pod is given up, what the call itself has waited for one included."""
ANSWER_S = 5.0
"""Seconds that it has for each question."""
AGAIN_S = 5.0
"""Pause before the next."""
RESERVE_S = 15.0
"""Seconds of the attempt that are left for the last question, to connect and to answer, and for what follows."""
OTHERS = 3
"""Pods asked beside the last question: if one of them answers, it is not this worker that is cut off."""
SERVING = (PodState.IDLE, PodState.STANDBY, PodState.LEASED)


def clock() -> float:
    """Seconds, of the clock by which an attempt's end is told."""
    return asyncio.get_running_loop().time()


async def why_gone(pool: Pool, pod: PodAddress, error: PodUnreachable, ends: float) -> str:
    """Why the pod is lost: its provider's word, or SILENT; "" if it is not known to be, and the call is to be retried.

    Its provider and its emberd are asked until it was silent for `SILENT_S`, the last time beside some other pods. It
    hangs if it stays silent while another answers. With nothing to compare it with, it is believed at the activity's
    second attempt, which may be another worker's; where all are silent it never is, since that says more of the asker.
    By `ends`, or the end of the attempt, it returns; if that comes sooner, the second attempt believes shorter silence.
    """
    if lacks_trust(error) or is_our_own(error):
        return ""  # another worker may have what this one lacks
    ends = min(ends, _attempt_ends()) - RESERVE_S
    heard_until = clock() + SILENT_S - error.silent_s
    while True:
        facts = await pool.provider.wait_ready(pod.name, 0)
        if facts.phase is not Phase.READY or facts.uid != pod.uid:
            return facts.reason or "pod_gone"
        left_s = min(heard_until, ends) - clock()
        if left_s <= 0:
            break
        if await _ask(pool, pod) is not Heard.SILENCE:
            return ""
        await asyncio.sleep(min(AGAIN_S, left_s))
    repeated = activity.info().attempt > 1
    if clock() < heard_until and not repeated:
        return ""
    return SILENT if await _is_silent_alone(pool, pod, repeated) else ""


async def _is_silent_alone(pool: Pool, pod: PodAddress, repeated: bool) -> bool:
    try:
        others = await _others(pool, pod)
    except PoolUnavailable:
        return False
    its, *theirs = await asyncio.gather(*(_ask(pool, one) for one in (pod, *others)))
    return its is Heard.SILENCE and (Heard.ANSWER in theirs if others else repeated)


def _attempt_ends() -> float:
    info = activity.info()
    ends = [
        began + limit
        for began, limit in (
            (info.started_time, info.start_to_close_timeout),
            (info.scheduled_time, info.schedule_to_close_timeout),
        )
        if limit
    ]
    return clock() + (min(ends) - datetime.now(UTC)).total_seconds() if ends else float("inf")


async def _others(pool: Pool, pod: PodAddress) -> list[PodAddress]:
    found: list[PodAddress] = []
    for state in SERVING:
        for one in await pool.index.pods(state, OTHERS + 1):
            if one.name != pod.name and len(found) < OTHERS:
                found.append(PodAddress(name=one.name, uid=one.uid, boot_id=one.boot_id, endpoint=one.endpoint))
    return found


async def _ask(pool: Pool, pod: PodAddress) -> Heard:
    heard, trouble = await hear(pool.client, pod.name, pod.endpoint, ANSWER_S)
    if heard is not Heard.ANSWER:
        log.info("pod %s does not answer: %s", pod.name, trouble)
    return heard
