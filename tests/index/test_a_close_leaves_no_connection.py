"""A close of the index leaves no connection behind, whatever is under way, and who stops a reader has stopped it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from fixtures.servers import Server, cluster, cluster_url, in_memory
from fixtures.waiting import wait_until

from emberpool.pool.index.connection import connect
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.errors import IndexRebuilding, PoolUnavailable

CALLS = 20
"""More than there are connections."""
TURNS = (0, 1, 2, 3, 5, 8, 13, 21, 34)
"""Turns of the event loop that the calls get before the close."""
SOON_S = 5.0
"""Far less than a blocking read lasts."""


async def script(index: RedisIndex) -> object:
    """A transition's way, the server not knowing the script at first."""
    return await index.counts()


async def wakes(index: RedisIndex) -> object:
    """A waiting line's."""
    return await index.next_wakes("nobody", 20.0)


async def chores(index: RedisIndex) -> object:
    """A tender's."""
    return await index.next_chores(20.0, "nobody")


async def keys(index: RedisIndex) -> object:
    """A command without a script."""
    return [page async for page in index.redis.keys(index.base)]


async def assert_closes(index: RedisIndex, call: Callable[[RedisIndex], Awaitable[object]], turns: int) -> None:
    """Close with calls under way: each ends at once, answered or with PoolUnavailable."""
    calls = [asyncio.ensure_future(call(index)) for _ in range(CALLS)]
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(SOON_S):
        await index.redis.aclose()
        ends = await asyncio.gather(*calls, return_exceptions=True)
    for end in ends:
        assert not isinstance(end, BaseException) or isinstance(end, PoolUnavailable | IndexRebuilding), repr(end)
    with pytest.raises(PoolUnavailable, match="closed"):
        await call(index)


async def assert_alone(*servers: Server) -> None:
    """Nobody is connected but who asks."""

    async def alone() -> bool:
        told = [str(await server.ask("CLIENT", "LIST", "TYPE", "normal")) for server in servers]
        return all(len(clients.splitlines()) == 1 for clients in told)

    await wait_until(alone, SOON_S)


@pytest.mark.parametrize("call", [script, wakes, chores, keys])
async def test_calls_under_way_end_with_it(call: Callable[[RedisIndex], Awaitable[object]], tmp_path: Path) -> None:
    """At any moment of a call, while it connects too, a close ends it; nothing is connected to the server after it."""
    async with Server(tmp_path, *in_memory()) as server:
        for turns in TURNS:
            await server.ask("SCRIPT", "FLUSH")
            index = RedisIndex(await connect(server.url), "tests", "closing")
            await assert_closes(index, call, turns)
            await assert_alone(server)


async def test_calls_under_way_end_with_it_on_a_cluster(tmp_path: Path) -> None:
    """The same on a Cluster, whose client connects to one node after the other."""
    async with cluster(tmp_path) as nodes:
        for turns in (0, 2, 13):
            for call in (script, wakes, chores, keys):
                index = RedisIndex(await connect(cluster_url(nodes)), "tests", "closing")
                await assert_closes(index, call, turns)
                await assert_alone(*nodes)


async def test_a_close_that_is_cut_closes_all_the_same(tmp_path: Path) -> None:
    """Whoever closes may be cancelled meanwhile, with all other tasks as when an event loop ends: the connections of
    both kinds are closed."""
    async with Server(tmp_path, *in_memory()) as server:
        for turns in TURNS:
            index = RedisIndex(await connect(server.url), "tests", "closing")
            await asyncio.gather(script(index), index.next_chores(0.01, "nobody"), return_exceptions=True)
            closing = asyncio.create_task(index.redis.aclose())
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            if turns:
                await assert_alone(server)
            else:
                await index.redis.aclose()  # cancelled before it began


async def test_a_reader_that_is_cancelled_reads_no_more(redis_url: str) -> None:
    """Cancelled at any moment, while it connects or as a command has just been sent, it begins no further read, nor
    seems to have met trouble. Python 3.11 loses such a cancellation within asyncio.wait_for (python/cpython#86296)."""
    for turns in range(40):
        async with await connect(redis_url) as redis:
            index = RedisIndex(redis, "tests", "cancelling")

            async def read(index: RedisIndex = index) -> None:
                while True:
                    await index.next_wakes("nobody", 0.1)

            reading = asyncio.create_task(read())
            for _ in range(turns):
                await asyncio.sleep(0)
            reading.cancel()
            done, _ = await asyncio.wait({reading}, timeout=SOON_S)
            assert done and reading.cancelled(), f"cancelled after {turns} turns, it goes on"
