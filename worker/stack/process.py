"""Child processes that never outlive their parent.

The stack starts servers of other people's making. Each is started through a tiny Python launcher that asks the kernel
for SIGKILL at the parent's death and then becomes the server: a SIGKILLed `emberpool dev` leaves nothing behind.
(`preexec_fn` would run Python between fork and exec, which can deadlock in a process with threads.)
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from emberpool.worker.stack.errors import StackError

TAIL_BYTES = 64 * 1024
"""How much of a log's end is read for its last lines."""

# argv: expected parent, program, its arguments. The parent may have died before prctl took effect: hence the check.
_LAUNCHER = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(1, signal.SIGKILL, 0, 0, 0) != 0:
    sys.exit("cannot set the parent-death signal: " + os.strerror(ctypes.get_errno()))
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit("cannot run %s: %s" % (sys.argv[2], error.strerror))
"""


class ChildProcess:
    """One child process, from `async with` to its end; its output goes to a log file.

    It runs in a session of its own, so that Ctrl-C reaches only the parent, which then stops its children in order.
    The kernel ties it to the *thread* that started it: use it from an event loop in the main thread.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        log: Path,
        name: str,
        stop_s: float = 5.0,
    ) -> None:
        """`env` replaces the whole environment; None inherits it. `stop_s`: seconds from SIGTERM to SIGKILL."""
        self.argv, self.env, self.log, self.name, self.stop_s = tuple(argv), env, log, name, stop_s
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def returncode(self) -> int | None:
        """Exit status, minus the signal's number if one ended it, None while it runs."""
        return self._started().returncode

    async def __aenter__(self) -> Self:
        """Start it. The last run's log is kept beside the new one, with `.1` added.

        Raises:
            StackError: the log cannot be written. A program that cannot be run shows as an early end, its cause logged.
        """
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self.log.replace(self.log.with_name(self.log.name + ".1"))
            output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            remedy = "use a data folder that you can write to"
            raise StackError(self.name, f"cannot write its log {self.log}: {error.strerror}", remedy) from error
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.launch_argv(os.getpid()),
                env=self.env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        finally:
            os.close(output)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End it: SIGTERM, after `stop_s` SIGKILL to its whole group. Idempotent; a cancellation kills at once."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(self.stop_s):
                await process.wait()
        except TimeoutError:
            self._kill(process)
            await process.wait()
        except asyncio.CancelledError:
            self._kill(process)
            raise

    async def wait(self) -> int:
        """Wait for its end and return its exit status (minus the signal's number if one ended it)."""
        return await self._started().wait()

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of its output; empty if there are none."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def ended(self, remedy: str = "") -> StackError:
        """The error that says that it ended when it should not have, with the last lines of its log."""
        status = self.returncode
        if status is None:
            how = "is still running"
        elif status < 0:
            how = f"was ended by {signal.Signals(-status).name}"
        else:
            how = f"ended with exit status {status}"
        return StackError(self.name, how, remedy or f"read its log: {self.log}", self.log_tail())

    def launch_argv(self, parent: int) -> tuple[str, ...]:
        """What is run: the launcher, which becomes the program if its parent is still `parent`."""
        return (sys.executable, "-I", "-S", "-c", _LAUNCHER, str(parent), *self.argv)

    @staticmethod
    def _kill(process: asyncio.subprocess.Process) -> None:
        # Its own session makes its pid the group's id; what it started goes with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started: use `async with`")
        return self._process
