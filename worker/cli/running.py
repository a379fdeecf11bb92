"""Running a command that waits: Ctrl-C and SIGTERM take it down in order."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


def run_until_stopped(work: Coroutine[Any, Any, int], *, on_sigterm: int = 143) -> int:
    """Run to the end and return its exit code; `on_sigterm` if SIGTERM or SIGHUP stopped it.

    Both cancel the work, as Ctrl-C does, so that everything it holds is let go of.

    Raises:
        KeyboardInterrupt: Ctrl-C, after the work has let go.
    """
    return asyncio.run(_stoppable(work, on_sigterm))


async def _stoppable(work: Coroutine[Any, Any, int], on_sigterm: int) -> int:
    task = asyncio.ensure_future(work)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if stopped:
            return on_sigterm
        raise
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
