"""Who waits, or tends the pool, sleeps in Redis and is woken at once."""

import asyncio
import time

from fixtures.pods import PROVED, claimed, recycling, released, request, warm
from fixtures.waiting import wait_until

from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.ids import PodName, RequestId

WAKES, WAKE_MS = 50, 5.0


async def somebody_blocks(index: RedisIndex) -> bool:
    """Whether a connection waits in Redis."""
    info = await index.redis.commands.info("clients")  # pyright: ignore[reportUnknownMemberType]
    return int(info["blocked_clients"]) > 0


async def next_wake(index: RedisIndex, name: str) -> tuple[list[RequestId], float]:
    """Who was woken, and when."""
    woken = await index.next_wakes(name, 30)
    return woken, time.perf_counter()


async def test_a_wake_ends_the_wait(index: RedisIndex) -> None:
    """A worker that blocks in Redis is told of its request under 5 ms after the pod is freed, that included.

    The best of fifty: a busy machine makes some late, but all only if no wake is sent. Each pod is freed as soon as the
    worker is seen to block, so that one which looked again from time to time would be late each time.
    """
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0")
    taken_ms: list[float] = []
    for number in range(1, WAKES + 1):
        await index.claim(request(f"r{number}", waker="w1"))
        waiting = asyncio.create_task(next_wake(index, "w1"))
        await wait_until(lambda: somebody_blocks(index))
        freed = await released(index, f"r{number - 1}")
        started = await recycling(index, freed.pod)
        began = time.perf_counter()
        await index.finish_recycle(freed.pod, started.epoch, PROVED, 60.0, 1000)
        woken, at = await waiting
        assert woken == [f"r{number}"]
        taken_ms.append((at - began) * 1000)
    assert min(taken_ms) < WAKE_MS, sorted(taken_ms)


async def test_a_wake_is_for_one_worker(index: RedisIndex) -> None:
    """Another worker's requests wake nobody here, and the newest waker of a request counts."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r1", "z")
    await index.claim(request("r2", waker="w1"))
    await index.claim(request("r2", waker="w2"))
    await index.claim(request("r2", waker=""))
    await index.pod_gone(PodName("p1"), "test")
    assert await index.next_wakes("w1", 0.05) == []
    assert await index.next_wakes("w2", 5) == ["r2"]


async def test_no_wake_no_answer(index: RedisIndex) -> None:
    """When the time is over the answer is empty, also for no time at all."""
    assert await index.next_wakes("w1", 0.05) == []
    assert await index.next_wakes("w1", 0) == []


async def test_a_wake_before_the_wait_is_not_missed(index: RedisIndex) -> None:
    """Wakes that came while nobody blocked are given at once, all together, also without blocking."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0", "z")
    for name in ("r1", "r2"):
        await index.claim(request(name))
    await index.set_targets(3, 3, 0)
    assert await index.next_wakes("worker", 0) == ["r1", "r2"]


async def test_chores_wake_every_reader(index: RedisIndex) -> None:
    """A dirty pod wakes the tender and the planner alike."""
    await warm(index, "p1")
    await claimed(index, "r1")
    for reader in ("tender", "planner"):
        assert await index.next_chores(5, reader)
        assert not await index.next_chores(0, reader)
    waiting = [asyncio.create_task(index.next_chores(30, reader)) for reader in ("tender", "planner")]
    await released(index, "r1")
    assert await asyncio.gather(*waiting) == [True, True]
    assert not await index.next_chores(0.05, "tender")


async def test_targets_are_a_chore(index: RedisIndex) -> None:
    """New targets wake the planner; a repeated or older version changes nothing and wakes nobody."""
    await index.next_chores(0, "planner")
    assert await index.set_targets(5, 3, 2)
    assert await index.next_chores(5, "planner")
    assert not await index.set_targets(5, 9, 9)
    assert not await index.set_targets(4, 9, 9)
    assert not await index.next_chores(0.05, "planner")
    counts = await index.counts()
    assert (counts.targets_version, counts.ceiling, counts.min_warm) == (5, 3, 2)


async def test_many_wakes_share_few_connections(index: RedisIndex) -> None:
    """Reads that block do not take the connections that claims need."""
    waits = [asyncio.create_task(index.next_wakes(f"w{number}", 5)) for number in range(40)]
    await warm(index, "p1")
    for number in range(5):
        await index.counts()
        await claimed(index, "r1", call_limit_s=number)
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
