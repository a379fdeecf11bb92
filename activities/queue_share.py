"""Telling a pool's manager how many pods its queue leaves it: the queue observer, a part of the tending.

What it reads is nobody's hot path: three requests every ten seconds, of one worker for each pool.
"""

import asyncio
import logging
import time

from temporalio import activity
from temporalio.service import RPCError

from emberpool.activities import names
from emberpool.activities.models import ShareOfQueue
from emberpool.activities.pools import Pool
from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.policy.queue_share import next_share, queue_share

log = logging.getLogger(__name__)

LOOK_S = 10.0
"""Pause between two looks."""
REMIND_S = 120.0
"""The share is told again after this though it did not change: the manager may be another by then."""


async def follow_queue(pool: Pool) -> None:
    """Until cancelled. A queue that cannot be read changes nothing: the share stays as it was told."""
    told: int | None = None
    told_at = 0.0
    while pool.queue is not None:
        try:
            share = next_share(told, await share_now(pool))
            if share != told or time.monotonic() > told_at + REMIND_S:
                await _tell(pool, share)
                told, told_at = share, time.monotonic()
        except (PoolUnavailable, RPCError) as error:
            log.warning("pool %s does not hear of its queue: %s", pool.profile.name, error)
        await asyncio.sleep(LOOK_S)


async def share_now(pool: Pool) -> int:
    """How many pods the queue leaves this pool.

    Raises:
        PoolUnavailable: the queue or the index cannot be read.
    """
    about, queue = pool.profile.kubernetes.queue, pool.queue
    if about is None or queue is None:
        raise PoolUnavailable("this pool follows no queue")
    held = sum((await pool.index.counts()).by_state.values())
    resource, per_pod = pool.profile.kubernetes.shared_resource
    return queue_share((await queue.look()).standing(resource), held, per_pod, about.keep)


async def _tell(pool: Pool, share: int) -> None:
    manager = names.pool_manager_id(pool.deployment, pool.profile.name)
    log.info("pool %s may hold %d pods, by its queue", pool.profile.name, share)
    await activity.client().get_workflow_handle(manager).signal(names.SET_QUEUE_SHARE, ShareOfQueue(max_pods=share))
