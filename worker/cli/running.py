"""Running a command that waits: Ctrl-C and SIGTERM take it down in order."""

import asyncio
import signal
import time
from collections.abc import Coroutine
from typing import Any

LET_GO_S = 10.0
"""What the work gets to let go of what it holds, after the first signal, before Ctrl-C ends it where it stands."""


def run_until_stopped(work: Coroutine[Any, Any, int], *, on_sigterm: int = 143) -> int:
    """Run to the end and return its exit code; `on_sigterm` if SIGTERM or SIGHUP stopped it.

    Both cancel the work, as Ctrl-C does, so that everything it holds is let go of. Ctrl-C again does not cut that short
    before LET_GO_S have passed: what it would leave behind runs on elsewhere, unseen.

    Raises:
        KeyboardInterrupt: Ctrl-C, after the work has let go.
    """
    code = asyncio.run(_stoppable(work, on_sigterm))
    if code is None:
        raise KeyboardInterrupt
    return code


async def _stoppable(work: Coroutine[Any, Any, int], on_sigterm: int) -> int | None:
    """The exit code; None if Ctrl-C stopped it."""
    task = asyncio.ensure_future(work)
    stopped: list[tuple[signal.Signals, float]] = []

    def stop(number: signal.Signals) -> None:
        if not stopped:
            stopped.append((number, time.monotonic()))
            task.cancel()
        elif number is signal.SIGINT and time.monotonic() > stopped[0][1] + LET_GO_S:
            raise KeyboardInterrupt

    loop = asyncio.get_running_loop()
    # A shell starts background jobs with SIGINT ignored: there Ctrl-C is not meant for them.
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    handled = (signal.SIGTERM, signal.SIGHUP, *(() if ignored else (signal.SIGINT,)))
    for number in handled:
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not stopped:
            raise
        return None if stopped[0][0] is signal.SIGINT else on_sigterm
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
