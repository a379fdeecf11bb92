"""Starting one pod that the index has a place for."""

import asyncio
import logging

from emberpool.activities.metrics import Stopwatch
from emberpool.activities.pools import Pool
from emberpool.activities.recycle import delete
from emberpool.pool.index.contract import MustDrain
from emberpool.pool.model.errors import EmberpoolError, InvalidInput
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.state import PodState

log = logging.getLogger(__name__)

READY_S = 120.0
"""A local pod takes well under a second and a Kubernetes pod 20-35 s with its image on the node; beyond this it is
given up."""

COMING = (PodState.STARTING, PodState.PROMOTING, PodState.SWAPPING)
"""States of a pod that somebody is at, and that does not serve yet."""


async def start_pod(pool: Pool, name: PodName, image: str, standby: bool = False) -> str:
    """Create the pod, wait for its emberd, and tell the index. Returns "" or the reason why there is no pod.

    `standby` asks for one that stands by; whether it does is emberd's to say, also for a pod that another created.

    Raises:
        PoolUnavailable: the index or the provider cannot be reached; the place stays reserved and a retry goes on.
    """
    watch = Stopwatch()
    failure = await _start(pool, name, image, standby)
    pool.metrics.pod_started(not failure, watch.seconds)
    return failure


async def _start(pool: Pool, name: PodName, image: str, standby: bool) -> str:
    try:
        await pool.provider.create(name, image, standby)
    except InvalidInput as error:
        await _give_up(pool, name, str(error))
        raise
    return await announce(pool, name, image)


async def announce(pool: Pool, name: PodName, image: str) -> str:
    """Wait until the pod's emberd answers and tell the index that it serves. Returns and raises as `start_pod`."""
    facts = await pool.provider.wait_ready(name, READY_S)
    if facts.phase is not Phase.READY:
        return await _give_up(pool, name, facts.reason or f"not ready within {READY_S:.0f} s")
    try:
        state = await pool.client.state(name, facts.endpoint)
    except EmberpoolError as error:
        return await _give_up(pool, name, f"emberd: {error}")
    reply = await pool.index.pod_ready(
        name, facts.uid, state.boot_id, facts.endpoint, facts.image or image, state.epoch, state.standby
    )
    if isinstance(reply, MustDrain):
        await delete(pool, name, reply.reason)
        return reply.reason
    return ""


async def start_warm(pool: Pool, name: PodName, image: str, standby: bool = False) -> str:
    """As `start_pod`, for a batch: an unexpected image counts as a failure of this one pod only."""
    try:
        return await start_pod(pool, name, image, standby)
    except InvalidInput as error:
        return str(error)


async def _give_up(pool: Pool, name: PodName, reason: str) -> str:
    record = await pool.index.pod(name)
    if record is not None and record.state not in COMING:
        return ""  # who else was starting it has brought it up meanwhile
    log.warning("pod %s will not be: %s", name, reason)
    await pool.index.pod_failed(name, reason)
    await asyncio.shield(delete(pool, name, reason))
    return reason
