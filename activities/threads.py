"""Blocking work in a thread that is over when the call is over, also when it is cancelled."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(do: Callable[[], T]) -> T:
    """Run `do` in a thread. A cancellation waits for it: a thread cannot be ended, and what it uses is closed next."""
    running = asyncio.ensure_future(asyncio.to_thread(do))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # nobody else asks for it
        raise
