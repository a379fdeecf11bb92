"""Rebuilding a lost index from the pods' own accounts: any worker that finds it lost does this, one at a time."""

import asyncio
import logging
from typing import TYPE_CHECKING

from emberpool.pool.index.contract import RebuiltPod
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.pod import Phase, PodFacts

if TYPE_CHECKING:
    from emberpool.activities.pools import Pool

log = logging.getLogger(__name__)

LOCK_S = 30.0
"""A rebuilder that dies gives way after this."""
AT_ONCE = 50
"""Pods asked at the same time."""
SILENT_S = 2.0
"""A pod that does not answer for this long is deleted: nobody can say whom it belongs to."""


async def rebuild(pool: "Pool") -> bool:
    """Ask every pod for its state and write the index anew; silent pods are deleted. False if another worker does it.

    Raises:
        PoolUnavailable: the index or the provider cannot be reached.
    """
    who = pool.line.waker
    if not await pool.index.try_rebuild_lock(who, LOCK_S):
        return False
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(facts: PodFacts) -> RebuiltPod | None:
        async with gate:
            return await _account(pool, facts)

    facts = await pool.provider.list()
    accounts = await asyncio.gather(*[ask(one) for one in facts])
    kept = [account for account in accounts if account is not None]
    done = await pool.index.rebuild(who, kept)
    log.warning("pool %s: index rebuilt from %d of %d pods", pool.profile.name, len(kept), len(facts))
    return done


async def _account(pool: "Pool", facts: PodFacts) -> RebuiltPod | None:
    if facts.phase is Phase.READY:
        try:
            async with asyncio.timeout(SILENT_S):  # not wait_for: see PodWatch.started
                state = await pool.client.state(facts.name, facts.endpoint)
        except (EmberpoolError, TimeoutError) as error:
            log.warning("pod %s is silent and goes: %s", facts.name, error)
        else:
            return RebuiltPod(
                name=facts.name,
                uid=facts.uid,
                boot_id=state.boot_id,
                endpoint=facts.endpoint,
                image=state.image or facts.image or pool.profile.base_image,
                state=state.state,
                tag=state.tag,
                epoch=state.epoch,
                lease=state.lease,
                hold_s=state.hold_s,
                standby=state.standby,
            )
    await pool.provider.delete(facts.name)
    return None
