"""One process, held by a pidfd: its end wakes the event loop, and a signal can never hit another of the same pid."""

import asyncio
import contextlib
import os
import signal


class ProcessWatch:
    """Watches a process from within a running event loop until it has ended. It need not be a child of ours."""

    def __init__(self, pid: int) -> None:
        """Raises ProcessLookupError if there is no such process."""
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._fd, self._on_end)

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def wait(self) -> None:
        """Wait for its end. For the init of a PID namespace: until every process of that namespace has ended."""
        await self._ended.wait()

    def kill(self) -> None:
        """SIGKILL; silent if it has ended."""
        if self._fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        self._ended.set()
