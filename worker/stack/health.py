"""Waiting until a child process serves, or saying why it does not."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from emberpool.worker.stack.errors import StackError
from emberpool.worker.stack.process import ChildProcess

POLL_S = 0.05


async def wait_healthy(
    child: ChildProcess, check: Callable[[], Awaitable[str | None]], timeout_s: float, remedy: str = ""
) -> None:
    """Wait until `check` answers None; what it answers until then is the cause that a person reads.

    Raises:
        StackError: the child ended, or `timeout_s` passed. It carries the log's last lines.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        # Asked only while the child lives: another server may answer at the same address.
        cause = await check() if child.alive else "ended"
        if not child.alive:
            raise child.ended(remedy)
        if cause is None:
            return
        if time.monotonic() > deadline:
            where = remedy or f"read its log: {child.log}"
            raise StackError(child.name, f"not healthy after {timeout_s:.0f} s: {cause}", where, child.log_tail())
        await asyncio.sleep(POLL_S)
