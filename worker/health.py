"""What a worker says of itself to whoever runs it: whether it lives, and whether it can serve."""

import asyncio
from typing import Final

from aiohttp import web

from emberpool.activities.pools import Pool, Pools
from emberpool.pool.model.errors import EmberpoolError

ANSWER_S: Final = 2.0
"""An index that takes longer counts as down."""


async def alive(request: web.Request) -> web.Response:
    """`/healthz`: the event loop turns. What a restart would not mend is not asked for."""
    return web.Response(text="ok\n")


async def readiness(pools: Pools) -> tuple[bool, str]:
    """Whether any pool's index answers, and a line per pool: with one of several down, the others are served.

    A provider in trouble is told, and does not count: claims go on without the API that pods come from.
    """
    lines = await asyncio.gather(*[_of(pool) for pool in pools.all()])
    ready = any(up for up, _ in lines)
    return ready, "".join(text for _, text in lines) or "no pool is open\n"


async def _of(pool: Pool) -> tuple[bool, str]:
    trouble = str(getattr(pool.provider, "trouble", ""))
    told = f", provider: {trouble}" if trouble else ""
    try:
        async with asyncio.timeout(ANSWER_S):
            await pool.index.counts()
    except (EmberpoolError, TimeoutError) as error:
        return False, f"{pool.profile.name}: index: {error or type(error).__name__}{told}\n"
    return True, f"{pool.profile.name}: ok{told}\n"
