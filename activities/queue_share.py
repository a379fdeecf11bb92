"""Telling a pool's manager how many pods its queue leaves it: the queue observer, a part of the tending.

What it reads is nobody's hot path: three requests every ten seconds, of one worker for each pool; more where the
cluster has more than 500 workloads (`KueueQueue.look`).
"""

import asyncio
import logging
import time
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError

from emberpool.activities import names
from emberpool.activities.models import ShareOfQueue
from emberpool.activities.pools import Pool
from emberpool.pool.model.errors import EmberpoolError, PoolUnavailable
from emberpool.pool.model.frozen import Frozen
from emberpool.pool.policy.queue_share import next_share, queue_share

log = logging.getLogger(__name__)

LOOK_S = 10.0
"""Pause between two looks."""
REMIND_S = 120.0
"""The share is told again after this though it did not change: the manager may be another by then."""
ASK_S = timedelta(seconds=5)
"""What the manager gets to say what it was told."""


class Told(Frozen):
    """What of a manager's status matters here."""

    queue_share: int | None = None


async def follow_queue(pool: Pool) -> None:
    """Until cancelled. A queue that cannot be read changes nothing: the share stays as it was told."""
    told = await _told(pool) if pool.queue is not None else None
    told_at = -REMIND_S
    while pool.queue is not None:
        try:
            share = next_share(told, await share_now(pool))
            if share != told or time.monotonic() > told_at + REMIND_S:
                await _tell(pool, share)
                told, told_at = share, time.monotonic()
        except (EmberpoolError, RPCError) as error:
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


async def _told(pool: Pool) -> int | None:
    """The share that the pool's manager goes by, from whoever tended before, so that a larger one is reached by steps
    from there. None: it has none yet, or does not say."""
    try:
        told: Told = await _manager(pool).query(names.POOL_STATUS, result_type=Told, rpc_timeout=ASK_S)
        return told.queue_share
    except TemporalError as error:
        log.warning("the manager of pool %s does not say its queue's share: %s", pool.profile.name, error)
        return None


async def _tell(pool: Pool, share: int) -> None:
    log.info("pool %s may hold %d pods, by its queue", pool.profile.name, share)
    await _manager(pool).signal(names.SET_QUEUE_SHARE, ShareOfQueue(max_pods=share))


def _manager(pool: Pool) -> WorkflowHandle[Any, Any]:
    return activity.client().get_workflow_handle(names.pool_manager_id(pool.deployment, pool.profile.name))
