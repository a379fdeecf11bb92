"""Calls made at the same moment share a trip to Redis, and nothing else: each has its own answer, error and end."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from fixtures.pods import warm
from redis.exceptions import ConnectionError

from emberpool.pool.index.batches import MOST_TOGETHER, Batches, Words
from emberpool.pool.index.connection import connect
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.ids import PodName


class Server:
    """Answers each call by its own words, once it is let."""

    def __init__(self) -> None:
        self.trips: list[list[Words]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def answer(self, calls: Sequence[Words]) -> list[Any]:
        """As redis-py's pipelines do: an exception in the place of the call that it belongs to."""
        self.trips.append(list(calls))
        await self.open.wait()
        return [ValueError(words[1]) if words[0] == "bad" else words for words in calls]


async def test_each_gets_its_own_answer() -> None:
    """Forty calls of one moment make three trips, and every one gets the reply to its own words."""
    server = Server()
    batches = Batches(server.answer)
    replies = await asyncio.gather(*(batches.call("sha", str(number)) for number in range(40)))
    assert replies == [("sha", str(number)) for number in range(40)]
    assert [len(trip) for trip in server.trips] == [MOST_TOGETHER, MOST_TOGETHER, 40 - 2 * MOST_TOGETHER]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks begin at once from Python 3.12 on, if they are told to")
async def test_tasks_that_begin_at_once_travel_together_too() -> None:
    """With asyncio.eager_task_factory, as some applications have it."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - not known to type checkers at 3.11
    server = Server()
    batches = Batches(server.answer)
    replies = await asyncio.gather(*(batches.call("sha", str(number)) for number in range(3)))
    assert replies == [("sha", str(number)) for number in range(3)]
    assert [len(trip) for trip in server.trips] == [3]


async def test_a_call_by_itself_waits_for_nobody() -> None:
    """While one trip is under way, the next call begins its own at once."""
    server = Server()
    batches = Batches(server.answer)
    server.open.clear()
    first = asyncio.create_task(batches.call("sha", "1"))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(batches.call("sha", "2"))
    await asyncio.sleep(0.01)
    assert server.trips == [[("sha", "1")], [("sha", "2")]]
    server.open.set()
    assert [await first, await second] == [("sha", "1"), ("sha", "2")]


async def test_an_error_is_its_own_calls() -> None:
    """A call that the server refuses fails by itself."""
    batches = Batches(Server().answer)
    replies = await asyncio.gather(
        *(batches.call(word, word) for word in ("good", "bad", "good")), return_exceptions=True
    )
    assert replies[0] == replies[2] == ("good", "good")
    assert isinstance(replies[1], ValueError)


async def test_who_is_cancelled_takes_nobody_along() -> None:
    """Those who travelled with a cancelled call get their answers."""
    server = Server()
    batches = Batches(server.answer)
    server.open.clear()
    calls = [asyncio.create_task(batches.call("sha", str(number))) for number in range(3)]
    await asyncio.sleep(0.01)
    calls[0].cancel()
    await asyncio.sleep(0.01)
    server.open.set()
    first, *others = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first, asyncio.CancelledError)
    assert others == [("sha", "1"), ("sha", "2")]


async def test_a_close_is_an_error_not_a_cancellation() -> None:
    """Who waits for an answer when the connection is closed is told so, rather than seem cancelled."""
    server = Server()
    batches = Batches(server.answer)
    server.open.clear()
    call = asyncio.create_task(batches.call("sha", "1"))
    await asyncio.sleep(0.01)
    await batches.aclose()
    with pytest.raises(ConnectionError, match="closed"):
        await call


async def test_a_closed_index_says_so(index: RedisIndex, redis_url: str) -> None:
    """The same on Redis: calls that a close met end as PoolUnavailable, or were answered before it."""
    redis = await connect(redis_url)
    through = RedisIndex(redis, index.deployment, index.name)
    asks = [asyncio.create_task(through.counts()) for _ in range(40)]
    await asyncio.sleep(0)
    await redis.aclose()
    for done in await asyncio.gather(*asks, return_exceptions=True):
        assert not isinstance(done, BaseException) or isinstance(done, PoolUnavailable), done
    with pytest.raises(PoolUnavailable, match="closed"):
        await through.counts()


async def test_a_server_that_forgot_the_scripts_is_told_them(index: RedisIndex) -> None:
    """After SCRIPT FLUSH, all calls of one moment are answered, each with its own pod."""
    names = [f"p{number}" for number in range(8)]
    await warm(index, *names)
    await index.redis.commands.script_flush()
    records = await asyncio.gather(*(index.pod(PodName(name)) for name in names * 5))
    assert [record.name for record in records if record] == names * 5
