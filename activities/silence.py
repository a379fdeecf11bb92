"""Whether a pod that did not answer a call hangs, though its provider sees nothing wrong."""

import asyncio
import logging

from temporalio import activity

from emberpool.activities.pools import Pool
from emberpool.activities.probe import SILENT
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.errors import EmberpoolError, PoolUnavailable
from emberpool.pool.model.state import PodState

__all__ = ["SILENT", "hangs"]

log = logging.getLogger(__name__)

ANSWER_S = 5.0
"""Seconds that it has for the last question, after all that it did not answer before."""
OTHERS = 3
"""Pods asked beside it: if one of them answers, it is not this worker that is cut off."""
SERVING = (PodState.IDLE, PodState.STANDBY, PodState.LEASED)


async def hangs(pool: Pool, pod: PodAddress) -> bool:
    """Ask it once more, and some others beside it.

    It hangs if it stays silent while another answers. With nothing to compare it with, it is believed at the activity's
    second attempt, which may be another worker's; where all are silent it never is, since that says more of the asker.
    """
    if await _answers(pool, pod):
        return False
    try:
        others = await _others(pool, pod)
    except PoolUnavailable:
        return False
    if not others:
        return activity.info().attempt > 1
    return any(await asyncio.gather(*(_answers(pool, other) for other in others)))


async def _others(pool: Pool, pod: PodAddress) -> list[PodAddress]:
    found: list[PodAddress] = []
    for state in SERVING:
        for one in await pool.index.pods(state, OTHERS + 1):
            if one.name != pod.name and len(found) < OTHERS:
                found.append(PodAddress(name=one.name, uid=one.uid, boot_id=one.boot_id, endpoint=one.endpoint))
    return found


async def _answers(pool: Pool, pod: PodAddress) -> bool:
    try:
        await pool.client.state(pod.name, pod.endpoint, ANSWER_S)
    except EmberpoolError as error:
        log.info("pod %s does not answer: %s", pod.name, error)
        return False
    return True
