"""Rebuilding an index that was lost, in pages, so that no script takes long."""

import json
import uuid

from emberpool.pool.index.caller import ScriptCaller
from emberpool.pool.index.connection import IndexRedis
from emberpool.pool.index.contract import RebuiltPod
from emberpool.pool.index.scripts import Script

PAGE = 500
"""Pods that one script writes."""


async def rebuild_index(
    redis: IndexRedis, run: ScriptCaller, base: str, who: str, pods: list[RebuiltPod], page: int = PAGE
) -> bool:
    """Drop what is left, write the pods by `page` of them, set the generation; False as soon as the lock is found lost.

    Raises:
        PoolUnavailable: Redis cannot be reached. What was written has no generation, so it counts for nothing.
    """
    token = f"{who}/{uuid.uuid4().hex}"
    if not await _purge(redis, run, base, who, token):
        return False
    # If two pods claim one lease, the one that was opened last has it.
    ordered = sorted(pods, key=lambda pod: -pod.epoch)
    for start in range(0, max(1, len(ordered)), page):
        told = [pod.model_dump(mode="json") for pod in ordered[start : start + page]]
        last = start + page >= len(ordered)
        reply = await run(Script.REBUILD_PAGE, token, token if last else "", json.dumps(told))
        if reply[0] != "done":
            return False
    return True


async def _purge(redis: IndexRedis, run: ScriptCaller, base: str, who: str, token: str) -> bool:
    async for keys in redis.keys(base):
        if (await run(Script.REBUILD_PURGE, who, token, *keys))[0] != "done":
            return False
    return True
