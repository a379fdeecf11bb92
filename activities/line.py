"""The waits of one worker in one pool: one blocking read of the index for all of them, so that nobody polls."""

import asyncio
import logging
import uuid
from collections.abc import Generator
from contextlib import contextmanager

from emberpool.pool.index.contract import PoolIndex
from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.ids import RequestId

log = logging.getLogger(__name__)

BLOCK_S = 5.0
"""How long one blocking read lasts; a wake ends it at once."""
RETRY_S = 0.5
"""Pause after Redis could not be reached."""


class WaitingLine:
    """Wakes the waits of this worker. `waker` is its name in the index; run `listen` as long as the worker runs."""

    def __init__(self, index: PoolIndex) -> None:
        self._index = index
        self.waker = uuid.uuid4().hex
        self._waiting: dict[RequestId, set[asyncio.Event]] = {}

    @contextmanager
    def waiting(self, request_id: RequestId) -> Generator[asyncio.Event]:
        """An event that is set when the index has news for the request. Enter before asking the index, so that no
        wake is missed."""
        event = asyncio.Event()
        events = self._waiting.setdefault(request_id, set())
        events.add(event)
        try:
            yield event
        finally:
            events.discard(event)
            if not events:
                self._waiting.pop(request_id, None)

    async def listen(self) -> None:
        """Pass on wakes until cancelled. After trouble with Redis everyone is woken, since wakes may have been lost."""
        while True:
            try:
                for request_id in await self._index.next_wakes(self.waker, BLOCK_S):
                    self._wake(request_id)
            except PoolUnavailable as error:
                log.warning("waiting line: %s", error)
                await asyncio.sleep(RETRY_S)
                for request_id in list(self._waiting):
                    self._wake(request_id)

    def _wake(self, request_id: RequestId) -> None:
        for event in self._waiting.get(request_id, ()):
            event.set()
