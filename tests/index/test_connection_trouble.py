"""Trouble on the way to Redis is named, bounded, and never mixes up two answers."""

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fixtures.pods import warm
from fixtures.slow_proxy import slow_proxy
from redis.asyncio import Redis

from emberpool.pool.index.connection import connect
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.errors import InvalidInput, PoolUnavailable
from emberpool.pool.model.ids import PodName
from emberpool.worker.stack.redis_server import RedisServer


async def test_cancelled_calls_leave_no_crossed_reply(index: RedisIndex, redis_url: str, tmp_path: Path) -> None:
    """Calls cancelled at any moment, twice too, never make another call get their answer, nor use up the connections.

    Seen in redis/redis-py#2624: a cancel after the request and before the reply left the reply in the socket.
    """
    pods = [f"p{number}" for number in range(8)]
    await warm(index, *pods)
    dice = random.Random(7)
    async with slow_proxy(redis_url, tmp_path) as (proxy, url), await connect(url, max_connections=4) as redis:
        through = RedisIndex(redis, index.deployment, index.name)
        proxy.delay_s = 0.002

        async def ask(name: str) -> None:
            record = await through.pod(PodName(name))
            assert record is not None and record.name == name

        for _ in range(100):
            asks = [asyncio.create_task(ask(name)) for name in pods * 4]
            for task in asks[::2]:
                await asyncio.sleep(dice.uniform(0, 0.002))
                task.cancel()
                if dice.random() < 0.3:
                    await asyncio.sleep(0)
                    task.cancel()
            for done in await asyncio.gather(*asks, return_exceptions=True):
                assert done is None or isinstance(done, asyncio.CancelledError), done
        proxy.delay_s = 0
        await asyncio.gather(*(ask(name) for name in pods * 4))


async def test_a_broken_connection_is_replaced(index: RedisIndex, redis_url: str, tmp_path: Path) -> None:
    """After every connection broke, the next calls work, without an error for each."""
    await warm(index, "p1")
    async with slow_proxy(redis_url, tmp_path) as (proxy, url), await connect(url, max_connections=4) as redis:
        through = RedisIndex(redis, index.deployment, index.name)
        for _ in range(3):
            await asyncio.gather(*(through.counts() for _ in range(8)))
            proxy.cut()
        assert (await through.counts()).idle_fresh == 1


async def test_waiting_for_a_connection_is_bounded(index: RedisIndex, redis_url: str, tmp_path: Path) -> None:
    """With every connection busy for longer than the time allowed, calls fail as PoolUnavailable, not for ever."""
    async with slow_proxy(redis_url, tmp_path) as (proxy, url):
        async with await connect(url, max_connections=1, timeout_s=0.3) as redis:
            through = RedisIndex(redis, index.deployment, index.name)
            await through.counts()
            proxy.delay_s = 30
            started = time.monotonic()
            results = await asyncio.gather(*(through.counts() for _ in range(3)), return_exceptions=True)
            assert all(isinstance(result, PoolUnavailable) for result in results)
            assert time.monotonic() - started < 5


async def test_no_server_is_unavailable(tmp_path: Path) -> None:
    """A server that is not there is PoolUnavailable, and says where it was looked for."""
    with pytest.raises(PoolUnavailable, match="nothing.sock"):
        await connect(f"unix://{tmp_path}/nothing.sock", timeout_s=1)


async def test_a_wrong_url_is_named() -> None:
    """A URL that is none is refused by the setting's name."""
    with pytest.raises(InvalidInput, match="redis_url"):
        await connect("localhost:6379")


async def test_a_server_that_went_away_is_unavailable(index: RedisIndex) -> None:
    """Calls fail as PoolUnavailable once the server stopped, and blocking reads too."""
    async with RedisServer(None) as server:
        redis = await connect(server.url, timeout_s=1)
        lost = RedisIndex(redis, "tests", "gone")
        blocked = asyncio.create_task(lost.next_wakes("w", 30))
        await asyncio.sleep(0)
    with pytest.raises(PoolUnavailable):
        await lost.counts()
    with pytest.raises(PoolUnavailable):
        await blocked
    await redis.aclose()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_an_evicting_server_is_refused(policy: str) -> None:
    """A server that may drop keys when memory is short is refused, with the remedy (sidekiq/sidekiq#2883)."""
    async with RedisServer(None) as server:
        async with Redis.from_url(server.url) as admin:  # pyright: ignore[reportUnknownMemberType]
            await admin.config_set("maxmemory-policy", policy)  # pyright: ignore[reportUnknownMemberType]
        with pytest.raises(InvalidInput, match=f"{policy}.*noeviction"):
            await connect(server.url)


async def test_a_server_that_does_not_tell_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """Where INFO is not permitted the policy cannot be checked: a warning, no refusal."""
    async with RedisServer(None) as server:
        async with Redis.from_url(server.url) as admin:  # pyright: ignore[reportUnknownMemberType]
            await admin.execute_command("ACL", "SETUSER", "w", "on", ">pw", "~*", "+@all", "-info")  # type: ignore[no-untyped-call] # pyright: ignore[reportUnknownMemberType]
        async with await connect(f"unix://w:pw@{server.socket}"):
            assert "maxmemory-policy" in caplog.text


async def test_memory_that_ran_out_is_unavailable() -> None:
    """A server that takes no more writes is PoolUnavailable: transient, and retried."""
    async with RedisServer(None) as server, await connect(server.url) as redis:
        index = RedisIndex(redis, "tests", "full")
        await redis.commands.config_set("maxmemory", "1")  # pyright: ignore[reportUnknownMemberType]
        with pytest.raises(PoolUnavailable):
            await index.try_rebuild_lock("w", 30)


async def test_another_loop_is_refused_at_once(index: RedisIndex) -> None:
    """Used from another event loop, a client raises at once instead of hanging (redis/redis-py#3351)."""
    with pytest.raises(RuntimeError, match="another event loop"):
        await asyncio.to_thread(lambda: asyncio.run(_counts(index)))
    await index.counts()


_FORKS = """
import asyncio, os, sys
from emberpool.pool.index.connection import connect

async def main():
    redis = await connect(sys.argv[1])
    child = os.fork()
    if child == 0:
        try:
            redis.commands
        except RuntimeError as error:
            os.write(1, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert await redis.commands.ping()
    await redis.aclose()

asyncio.run(main())
"""


def test_a_forked_process_is_refused_at_once(redis_url: str) -> None:
    """In a process that forked, the parent's client raises at once; the parent's goes on (redis/redis-py#3351)."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _FORKS, redis_url], capture_output=True, text=True, timeout=60, check=True
    )
    assert "make one per process" in done.stdout


async def _counts(index: RedisIndex) -> None:
    await index.counts()


async def test_an_index_with_a_connection_of_its_own(redis_url: str) -> None:
    """An index that opened its connection closes it; one that was lent a connection leaves it open."""
    own = await RedisIndex.open(redis_url, "tests", "own")
    lent = RedisIndex(own.redis, "tests", "lent")
    await lent.aclose()
    assert await own.try_rebuild_lock("w", 0.05)
    await own.aclose()
