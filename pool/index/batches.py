"""Calls that are made at the same moment travel together: most of what a call costs its process is the trip.

A trip over redis-py (a free connection, time limits, a write, a read) takes 100 µs of the process's processor, one more
command in the same trip 20: where hundreds of claims come at once, as when a batch of rollouts begins, the last of them
waited for the trips of all the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from redis.exceptions import ConnectionError

Words = tuple[str, ...]
"""A script's hash, its key and its arguments."""

MOST_TOGETHER = 16
"""Calls of one trip. Their answers come together, so that the first of them waits for the last."""


class _Trip(NamedTuple):
    calls: list[Words]
    replies: "asyncio.Task[list[Any]]"


class Batches:
    """Gathers the calls that one turn of the event loop makes. Who stops waiting takes nothing from the others."""

    def __init__(self, send: Callable[[Sequence[Words]], Awaitable[list[Any]]]) -> None:
        """`send` makes a trip, and answers with a reply or an exception for each call, in their order."""
        self._send = send
        self._gathering: _Trip | None = None
        self._under_way: set[asyncio.Task[list[Any]]] = set()
        self._closed = False

    async def call(self, *words: str) -> Any:
        """The reply to one call.

        Raises:
            redis.exceptions.RedisError: what the server or the connection said, or that it was closed meanwhile.
        """
        if self._closed:
            raise ConnectionError("the connection was closed")  # redis-py would open another, which nobody closes
        trip = self._gathering
        if trip is None or len(trip.calls) == MOST_TOGETHER:
            trip = self._gathering = self._begin_trip()
        place = len(trip.calls)
        trip.calls.append(words)
        reply = (await _outcome(trip.replies))[place]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _begin_trip(self) -> _Trip:
        calls: list[Words] = []
        replies = asyncio.create_task(self._make(calls))
        self._under_way.add(replies)
        replies.add_done_callback(self._under_way.discard)
        return _Trip(calls, replies)

    async def _make(self, calls: list[Words]) -> list[Any]:
        # A turn later, also where tasks begin at once (asyncio.eager_task_factory): who calls in this one has joined.
        await asyncio.sleep(0)
        if self._gathering is not None and self._gathering.calls is calls:
            self._gathering = None
        return await self._send(calls)

    async def aclose(self) -> None:
        """Give up what is under way, and take no more."""
        self._closed = True
        under_way = tuple(self._under_way)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _outcome(replies: "asyncio.Task[list[Any]]") -> list[Any]:
    """What a trip brought; a caller that is cancelled leaves it to those who travel with it."""
    try:
        return await asyncio.shield(replies)
    except asyncio.CancelledError:
        me = asyncio.current_task()
        if replies.cancelled() and not (me and me.cancelling()):
            raise ConnectionError("the connection was closed before the answer came") from None
        raise
