"""Holds the jobs of a room together under the pod's limits of memory, disk, and processes with their threads.

Before the kernel would end the whole pod for its memory, before the disk that pods share is full, and where the kernel
itself counts no processes. And to their time limits, while no thread can be started that would.
"""

import threading
from typing import Callable, List, Tuple

from emberpool.pool.emberd import tree
from emberpool.pool.emberd.diskusage import DiskUsage
from emberpool.pool.emberd.execution import Execution
from emberpool.pool.emberd.executions import Executions
from emberpool.pool.emberd.outcome import TOO_MANY_TASKS

EVERY_S = 0.05


class Watchdog:
    """One thread that looks every 50 ms while anything runs."""

    def __init__(
        self,
        executions: Executions,
        memory_mb: int,
        disk_mb: int,
        tasks: int,
        written: Callable[[], List[str]],
        taken: Callable[[], int],
    ) -> None:
        """`tasks`: the most processes and threads. `written`: the folders that jobs write to now; empty while there is
        no room. `taken`: bytes of the limit that their layers have."""
        self._executions, self._limit, self._tasks = executions, memory_mb * 1024 * 1024, tasks
        self._disk, self._written, self._taken = DiskUsage(disk_mb * 1024 * 1024), written, taken
        self._busy = threading.Event()
        threading.Thread(target=self._loop, name="watchdog", daemon=True).start()

    def limit_to(self, memory_mb: int) -> None:
        """The limit from now on."""
        self._limit = memory_mb * 1024 * 1024

    def wake(self) -> None:
        """Something was started."""
        self._busy.set()

    def _loop(self) -> None:
        pause = threading.Event()
        while True:
            self._busy.wait()
            self._busy.clear()
            # A command that ended within one period needs no look: none is taken before the first pause.
            while not pause.wait(EVERY_S):
                alive = self._executions.alive()
                if not alive:
                    break
                self._look(alive)

    def _look(self, alive: List[Execution]) -> None:
        for execution in alive:
            execution.look_after_again()
        processes = tree.table()
        pids_of = [(execution, execution.pid) for execution in alive]
        trees = [(execution, tree.descendants([pid], processes)) for execution, pid in pids_of if pid is not None]
        self._count([(execution, sum(processes[pid].threads for pid in pids)) for execution, pids in trees])
        self._look_at_disk(trees)
        if sum(tree.resident(pid) for _, pids in trees for pid in pids) <= self._limit:
            return  # the cheap upper bound is enough nearly always
        held = [(sum(tree.private(pid) for pid in pids), execution) for execution, pids in trees]
        if sum(size for size, _ in held) > self._limit:
            max(held, key=lambda item: item[0])[1].kill("oom_killed")

    def _count(self, tasks: "List[Tuple[Execution, int]]") -> None:
        if sum(count for _, count in tasks) > self._tasks:
            max(tasks, key=lambda item: item[1])[0].kill(TOO_MANY_TASKS)

    def _look_at_disk(self, trees: "List[Tuple[Execution, List[int]]]") -> None:
        """Who filled it cannot be told, since writers come and go: all that runs ends."""
        folders = self._written()
        try:
            pids = [pid for _, tree_of in trees for pid in tree_of]
            full = bool(folders) and self._disk.exceeded(folders, pids, self._taken())
        except OSError:
            return  # the room ended meanwhile
        if full:
            for execution, _ in trees:
                execution.kill("disk_full")
