"""A close ends the commands that are under way: redis-py would open a new connection for them, which nobody closes.

Its pools refuse nothing after a close. A command that was connecting goes on, and one that waited for its reply takes
the close for a broken connection and tries again on a new one, up to the end of a blocking read.

Nor is a cancellation lost here: redis-py sends within asyncio.wait_for, which drops one that comes as the sending ends
(python/cpython#86296, mended in Python 3.12), and a reader that was stopped would read on for ever.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from redis.exceptions import ConnectionError

AGAIN_S = 0.1
"""Until a command that did not end is cancelled again, its cancellation having been lost."""


@dataclass(eq=False)
class _Command:
    task: asyncio.Task[object]
    cancelled_before: int
    """How many had cancelled the task when the command began."""
    ended: int = 0
    """How often a close has cancelled it."""

    def end(self) -> None:
        self.ended += 1
        self.task.cancel()

    def settle(self) -> bool:
        """Take the close's cancellations back; whether others have cancelled it while it was under way."""
        for _ in range(self.ended):
            self.task.uncancel()
        return self.task.cancelling() > self.cancelled_before


class UnderWay:
    """The commands of one client, each within the task that asked for it."""

    def __init__(self) -> None:
        self._commands: set[_Command] = set()
        self._none = asyncio.Event()
        self._closed = False

    @contextmanager
    def command(self) -> Generator[None]:
        """Around one command.

        Raises:
            redis.exceptions.ConnectionError: a close came before it, or before its answer.
        """
        if self._closed:
            raise ConnectionError("the connection was closed")
        task = asyncio.current_task()
        assert task is not None
        command = _Command(task, task.cancelling())
        self._commands.add(command)
        try:
            yield
        except asyncio.CancelledError:
            if self._left(command) or not command.ended:
                raise
            raise ConnectionError("the connection was closed before the answer came") from None
        except BaseException:
            if self._left(command):
                raise asyncio.CancelledError() from None
            raise
        if self._left(command):
            raise asyncio.CancelledError()

    def _left(self, command: _Command) -> bool:
        """Whether others than a close have cancelled it."""
        self._commands.remove(command)
        if not self._commands:
            self._none.set()
        return command.settle()

    async def aclose(self) -> None:
        """Take no more, and end what is under way: who waits for it gets the ConnectionError."""
        self._closed = True
        while self._commands:
            self._none.clear()
            for command in self._commands:
                command.end()
            try:
                async with asyncio.timeout(AGAIN_S):
                    await self._none.wait()
            except TimeoutError:
                continue
