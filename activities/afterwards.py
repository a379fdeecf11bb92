"""Small work that no answer waits for, with an owner: it is finished before the connections close."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Afterwards:
    """Tasks that go on after the activity that began them has answered."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin `work`, which must handle its own errors."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Wait for all that was begun."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
