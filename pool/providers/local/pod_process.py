"""One pod's processes, from launch to the last one's end."""

import asyncio
import contextlib
import json
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from emberpool.pool.providers.local.launcher import SPAWN_FAILED
from emberpool.pool.providers.local.oom import OomWatch
from emberpool.pool.providers.local.pod_log import PodLog
from emberpool.pool.providers.local.pod_spec import LAUNCHED
from emberpool.pool.providers.local.process_table import children_of, kill_tree
from emberpool.pool.providers.local.process_watch import ProcessWatch

LAUNCH_LIMIT_S = 60.0
"""Seconds for bubblewrap to set up the pod, on a machine that is very busy."""
READY_LIMIT_S = 600.0
"""Seconds for emberd to become ready, its warm-up included."""
LOG_GRACE_S = 1.0
"""Seconds for the last lines of the log; in plain mode a stray process may keep the pipe open."""
WARM_UP_FAILED = 3
"""emberd's exit status for it."""
LINE_LIMIT = 256 * 1024


@dataclass(frozen=True)
class Ending:
    """Why a pod is no more: one word, and a detail for people."""

    word: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.detail}" if self.detail else self.word


def describe(status: int) -> str:
    """An exit status in words; bubblewrap reports a signal as 128 more, `subprocess` as a negative number."""
    number = -status if status < 0 else status - 128
    if number > 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(number).name}"
    return f"exit status {status}"


def classify(launched: bool, status: int, oom: bool, detail: str) -> Ending:
    """Name the end of a pod from its exit status and what was seen of it before."""
    how = ", ".join(part for part in (describe(status), detail) if part)
    if not launched or status == SPAWN_FAILED:
        return Ending("spawn", how)
    if status == WARM_UP_FAILED:
        return Ending("warm_up", detail or how)
    if oom and status in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return Ending("oom", how)
    return Ending("exited", how)


class PodProcess:
    """A pod that was launched, or is about to be: `run` is its life, `kill` asks for its end."""

    def __init__(self, log: PodLog, oom: OomWatch, plain: bool) -> None:
        self._log, self._oom, self._plain = log, oom, plain
        self._outer: ProcessWatch | None = None
        self._inner: ProcessWatch | None = None
        self._said = ""
        self._kill_wanted = False

    @property
    def pid(self) -> int:
        """Host pid of the pod's first process; 0 before the launch is through."""
        return self._inner.pid if self._inner else 0

    def kill(self) -> None:
        """SIGKILL the pod's first process; the kernel ends all of its PID namespace with it, and `run` returns.

        During bubblewrap's setup this waits for its end: a child of bubblewrap's would outlive it (see pod_command).
        """
        self._kill_wanted = True
        if self._inner is None or self._inner.ended:
            return
        if self._plain:
            kill_tree(self._inner.pid)
        self._inner.kill()

    async def run(self, argv: Sequence[str], config: bytes, on_ready: Callable[[], None]) -> Ending:
        """Launch the pod, call `on_ready` once it serves, and return when none of its processes is left.

        Must run in the main thread: the kernel ties the pod's life to the thread that launched it.
        """
        try:
            process = self._spawn(argv)
            self._outer = ProcessWatch(process.pid)
        except OSError as error:
            return Ending("spawn", str(error))
        assert process.stdin and process.stdout and process.stderr
        async with _reading(process.stdout) as stdout, _reading(process.stderr) as stderr:
            log = asyncio.create_task(self._log.drain(stderr))
            rest: asyncio.Task[None] | None = None
            try:
                await self._talk(process.stdin, stdout, config, on_ready)
                rest = asyncio.create_task(_discard(stdout))
                await self._outer.wait()
                if self._inner is not None:
                    await self._inner.wait()
                await asyncio.wait([log], timeout=LOG_GRACE_S)
            finally:
                log.cancel()
                if rest is not None:
                    rest.cancel()
                process.stdin.close()
                self._log.close()
        # Ended already: this only takes its status, and never blocks.
        status = process.wait()
        return classify(self._inner is not None, status, self._oom.recent(), self._said or self._log.last_line)

    def _spawn(self, argv: Sequence[str]) -> "subprocess.Popen[bytes]":
        # Nothing of our environment and none of our descriptors: Popen closes all but the three.
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={},
            cwd="/",
            bufsize=0,
            start_new_session=True,
        )

    async def _talk(
        self, stdin: IO[bytes], stdout: asyncio.StreamReader, config: bytes, on_ready: Callable[[], None]
    ) -> None:
        """emberd's start protocol; returns once it serves or never will."""
        answer: dict[str, Any] = {}
        try:
            async with asyncio.timeout(LAUNCH_LIMIT_S):
                first = await stdout.readline()
            if first.strip() != LAUNCHED or not self._find_inner():
                self._outer_kill()
                return
            # A pod that ends this early closes its end; its exit status tells why.
            with contextlib.suppress(BrokenPipeError):
                stdin.write(config)
            stdin.close()
            async with asyncio.timeout(READY_LIMIT_S):
                answer = _parse(await stdout.readline())
        except ValueError:
            self._said = "what emberd said is no line"
            self._outer_kill()
        except TimeoutError:
            self._said = "emberd did not become ready in time"
            self._outer_kill()
        if answer.get("ready") is True:
            on_ready()
        elif answer:
            self._said = str(answer.get("reason", ""))

    def _find_inner(self) -> bool:
        """Take hold of the pod's first process: bubblewrap's only child, or in plain mode what we launched."""
        assert self._outer is not None
        if self._plain:
            self._inner = self._outer
        else:
            with contextlib.suppress(ProcessLookupError):
                for child in children_of(self._outer.pid):
                    self._inner = ProcessWatch(child)
        if self._inner is not None and self._kill_wanted:
            self.kill()
        return self._inner is not None

    def _outer_kill(self) -> None:
        if self._inner is not None:
            self.kill()
        elif self._outer is not None:
            self._outer.kill()


async def _discard(source: asyncio.StreamReader) -> None:
    while await source.read(LINE_LIMIT):
        pass


def _parse(line: bytes) -> dict[str, Any]:
    try:
        value: object = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


@contextlib.asynccontextmanager
async def _reading(pipe: IO[bytes]) -> AsyncGenerator[asyncio.StreamReader, None]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        yield reader
    finally:
        transport.close()
