"""Supervised heartbeats: they go on whatever the body waits for, and the body's own error wins."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from pydantic import BaseModel
from temporalio import activity


@asynccontextmanager
async def heartbeating(interval_s: float, details: Callable[[], BaseModel | None]) -> AsyncGenerator[None]:
    """Send `details()` every `interval_s` seconds while the block runs; a body shorter than that sends nothing."""
    loop = asyncio.get_running_loop()

    def beat() -> None:
        timers[:] = [loop.call_later(interval_s, beat)]
        now = details()
        if now is None:
            activity.heartbeat()
        else:
            activity.heartbeat(now)

    # Not a task, whose start and end a short call would wait for.
    timers = [loop.call_later(interval_s, beat)]
    try:
        yield
    finally:
        timers[0].cancel()
