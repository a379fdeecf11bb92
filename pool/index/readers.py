"""Blocking reads: who waits for a pod, or tends the pool, sleeps in Redis on a connection of its own."""

import time
from collections.abc import Sequence
from typing import cast

from emberpool.pool.index.connection import BLOCK_S, IndexRedis, trouble_named
from emberpool.pool.model.ids import RequestId

_MOST_WAKES = 256


class BlockingReads:
    """One blocking list per worker and pool for wakes, one stream per pool for chores."""

    def __init__(self, redis: IndexRedis, base: str) -> None:
        self._redis, self._base = redis, base
        self._seen: dict[str, str] = {}

    async def next_wakes(self, waker: str, timeout_s: float) -> list[RequestId]:
        """Requests to claim again, at least one unless the time is over.

        Raises:
            PoolUnavailable: Redis cannot be reached.
        """
        wakes = f"{self._base}wake:{waker}"
        until = time.monotonic() + timeout_s
        while True:
            block = min(until - time.monotonic(), BLOCK_S)
            async with trouble_named():
                first = None
                if block > 0:
                    # Zero would block for ever.
                    first = await self._redis.blocking.blpop([wakes], timeout=max(block, 0.001))
                more = await self._redis.commands.lpop(wakes, _MOST_WAKES)
            found = ([str(first[1])] if first else []) + [str(item) for item in more or []]
            if found or block < BLOCK_S:
                return [RequestId(item) for item in found]

    async def next_chores(self, timeout_s: float, reader: str) -> bool:
        """Whether something needs tending that this reader has not been told of.

        Raises:
            PoolUnavailable: Redis cannot be reached.
        """
        chores = f"{self._base}chores"
        until = time.monotonic() + timeout_s
        while True:
            block = min(until - time.monotonic(), BLOCK_S)
            seen = self._seen.get(reader, "0-0")
            async with trouble_named():
                # All that came since, a hundred or two at most: only the last one's name counts.
                reply = await self._redis.blocking.xread(
                    {chores: seen}, block=max(1, round(block * 1000)) if block > 0 else None
                )
            if reply:
                entries = cast("Sequence[tuple[str, Sequence[tuple[str, object]]]]", reply)[0][1]
                self._seen[reader] = entries[-1][0]
                return True
            if block < BLOCK_S:
                return False
