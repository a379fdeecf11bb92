"""Asking pods that nobody uses whether they still serve, so that the next caller does not find out."""

import asyncio
import logging
from collections.abc import AsyncIterator

from emberpool.activities.pools import Pool
from emberpool.pool.client.trust import lacks_trust
from emberpool.pool.index.contract import PodRecord
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.state import PodState

log = logging.getLogger(__name__)

UNUSED = (PodState.IDLE, PodState.STANDBY)
PAGE = 100
"""Pods read from the index at once, and asked before the next pause."""
AT_ONCE = 10
"""Pods asked at the same time."""
PAUSE_S = 5.0
"""Between two pages: 20 pods a second at most, so that a large pool costs the worker a few percent of a core."""
ANSWER_S = 5.0
"""A pod that does not answer for this long, twice, serves nobody."""
AGAIN_S = 1.0
FEW = 3
"""So many silent pods of a round are believed; of more, at most half: else it is likelier the asker who is cut off."""
SILENT = "silent"


async def pages(pool: Pool, state: PodState, older_than_s: float = 0.0) -> AsyncIterator[list[PodRecord]]:
    """All pods in a state, a page at a time, so that no script takes long. One that moves meanwhile may be left out.

    Raises:
        PoolUnavailable, IndexRebuilding: the index cannot be read.
    """
    skip = 0
    while page := await pool.index.pods(state, PAGE, older_than_s, skip):
        yield page
        skip += len(page)


async def probe_idle(pool: Pool, unused_s: float) -> int:
    """Ask each pod that is idle or stands by for that long, and set draining those that do not serve. Returns how many.

    A new claim whose pod fails at first contact moves on by itself; this finds such a pod before anybody waits for it.

    Raises:
        PoolUnavailable, IndexRebuilding: the index cannot be read.
    """
    asked, drained = 0, 0
    silent: list[PodRecord] = []
    for state in UNUSED:
        async for page in pages(pool, state, unused_s):
            for pod, trouble in await _ask_all(pool, page):
                asked += 1
                if trouble == SILENT:
                    silent.append(pod)
                elif trouble:
                    drained += await _drain(pool, pod, trouble)
            await asyncio.sleep(PAUSE_S)
    if len(silent) > max(FEW, asked // 2):
        log.warning(
            "pool %s: %d of %d unused pods do not answer; none is given up, since this worker may be cut off from them",
            pool.profile.name,
            len(silent),
            asked,
        )
        return drained
    for pod in silent:
        drained += await _drain(pool, pod, SILENT)
    return drained


async def _ask_all(pool: Pool, pods: list[PodRecord]) -> list[tuple[PodRecord, str]]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(pod: PodRecord) -> str:
        async with gate:
            return await _trouble(pool, pod)

    return list(zip(pods, await asyncio.gather(*map(ask, pods)), strict=True))


async def _trouble(pool: Pool, pod: PodRecord) -> str:
    """Why the pod does not serve, or ""."""
    for pause_s in (0.0, AGAIN_S):
        await asyncio.sleep(pause_s)
        try:
            state = await pool.client.state(pod.name, pod.endpoint, ANSWER_S)
        except EmberpoolError as error:
            log.info("pod %s does not answer: %s", pod.name, error)
            if lacks_trust(error):
                return ""  # that is this worker's trust, and says nothing against the pod
            continue
        if state.boot_id != pod.boot_id:
            return "restarted"
        # The tag is the index's as soon as a request has the pod, and emberd's only once it was called.
        return "" if state.state == "clean" and state.tag in ("", pod.tag) else "not_clean"
    return SILENT


async def _drain(pool: Pool, pod: PodRecord, trouble: str) -> bool:
    """Give it up, unless it went on to something else meanwhile: then it was in use when it was asked."""
    now = await pool.index.pod(pod.name)
    if now is None or (now.state, now.since_ms) != (pod.state, pod.since_ms):
        return False
    log.warning("pod %s of pool %s goes, unused: %s", pod.name, pool.profile.name, trouble)
    return await pool.index.drain(pod.name, trouble)
