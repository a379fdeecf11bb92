"""emberd counts processes and threads itself, for kernels that do not: it ends who has too many."""

import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from fixtures.waiting import wait_until

from emberpool.pool.emberd import tree
from emberpool.pool.emberd.exec_request import Request
from emberpool.pool.emberd.execution import Execution
from emberpool.pool.emberd.outcome import TOO_MANY_TASKS
from emberpool.pool.emberd.shims import Shim
from emberpool.pool.emberd.watchdog import Watchdog

THREADS = "import threading, time\nfor _ in range(5): threading.Thread(target=time.sleep, args=(60,)).start()"


def _started(text: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sh", "-c", text, sys.executable, THREADS])


async def test_the_execution_with_the_most_is_ended() -> None:
    """Threads count as processes do; nobody is ended while all together are within."""
    ended: list[tuple[str, str, int]] = []
    few, many = _started("sleep 60 & wait"), _started('"$0" -c "$1" & wait')

    def counted() -> int:
        processes = tree.table()
        return sum(processes[pid].threads for pid in tree.descendants([few.pid, many.pid], processes))

    async def all_there() -> bool:
        return counted() == 7

    async def ended_twice() -> bool:
        return len(ended) >= 2

    def limited_to(most: int) -> Watchdog:
        def one(name: str, pid: int) -> SimpleNamespace:
            def kill(reason: str) -> None:
                ended.append((name, reason, most))

            return SimpleNamespace(pid=pid, kill=kill, look_after_again=lambda: None)

        both: Any = SimpleNamespace(alive=lambda: [] if over else [one("few", few.pid), one("many", many.pid)])
        return Watchdog(both, 100_000, 100_000, most, lambda: [], lambda: 0)

    over: list[int] = []
    generous, strict = limited_to(7), limited_to(6)
    try:
        await wait_until(all_there)
        generous.wake()
        strict.wake()
        await wait_until(ended_twice)
        assert set(ended) == {("many", TOO_MANY_TASKS, 6)}
    finally:
        over.append(1)
        tree.end_below([few.pid, many.pid])
        few.wait()
        many.wait()


def test_its_end_is_a_kill_and_says_why() -> None:
    """Told as SIGKILL, which every worker understands, with a line of emberd's own after what it printed."""
    here, there = socket.socketpair()
    room: Any = SimpleNamespace(shims=SimpleNamespace(take=lambda: Shim(here, None), make_ready=lambda: None))
    one = Execution(Request("one", ["true"], {}, "/", b"", 10.0, 1000, "true"), room, watch=lambda: None)
    one.kill(TOO_MANY_TASKS)
    there.close()
    try:
        result = one.wait(5)
        assert result is not None and (result["outcome"], result["exit_code"], result["signal"]) == (
            "signaled",
            None,
            9,
        )
        assert b"more processes and threads" in result["stderr"]
    finally:
        one.settle()
