"""Supervised heartbeats: they go on whatever the body waits for, and the body's own error wins."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from pydantic import BaseModel
from temporalio import activity


@asynccontextmanager
async def heartbeating(interval_s: float, details: Callable[[], BaseModel | None]) -> AsyncGenerator[None]:
    """Send `details()` every `interval_s` seconds while the block runs; a body shorter than that sends nothing."""

    async def beat() -> None:
        while True:
            await asyncio.sleep(interval_s)
            now = details()
            if now is None:
                activity.heartbeat()
            else:
                activity.heartbeat(now)

    task = asyncio.create_task(beat(), name="emberpool-heartbeat")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
