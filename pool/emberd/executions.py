"""The executions of the current lease, by id: started once each, their results kept until the lease ends."""

import threading
from collections import deque
from typing import Callable, Deque, Dict, List

from emberpool.pool.emberd.exec_request import Request
from emberpool.pool.emberd.execution import Execution
from emberpool.pool.emberd.refusal import Refused
from emberpool.pool.emberd.spill import SpillFolder

OUTPUT_KEPT = 64 * 1024 * 1024
"""Bytes of output of ended executions in memory; beyond that the oldest keep their status and lose their output."""

OUTPUT_RUNNING = 64 * 1024 * 1024
"""Limits of output of all running executions together, both streams; beyond it a new one keeps less of its own."""
LEAST_OUTPUT = 16 * 1024
"""What is kept of each stream all the same."""


class Executions:
    """Safe from any thread. A start costs the same however many commands the lease has had."""

    def __init__(self, spills: SpillFolder) -> None:
        self._spills = spills
        self._lock = threading.Lock()
        self._start_anew()

    def _start_anew(self) -> None:
        self._by_id: Dict[str, Execution] = {}
        self._running: List[Execution] = []
        """Those that had not ended at the last look."""
        self._living: List[Execution] = []
        """Those of which any process lived at the last look."""
        self._printed: Deque[Execution] = deque()
        """Ended ones whose output is kept, oldest first, and how much that is."""
        self._kept = 0
        self._spilled: Deque[Execution] = deque()
        """Ended ones that may have spills, oldest first."""

    def start_or_join(self, request: Request, start: Callable[[Request], Execution]) -> Execution:
        """The execution of this id; `start` is called only if there is none. The caller must hold the ledger's lock."""
        with self._lock:
            known = self._by_id.get(request.id)
            if known is not None:
                return known
            self._look_for_ends()
            wanted = self._granted(request)
        started = start(wanted)  # a job may hold it up for seconds: meanwhile all others are looked after
        with self._lock:
            self._by_id[request.id] = started
            self._running.append(started)
            self._living.append(started)
            self._trim()
            return started

    def _granted(self, request: Request) -> Request:
        """With the output limit that memory has place for."""
        taken = sum(2 * one.request.output_limit for one in self._running)
        most = max(LEAST_OUTPUT, (OUTPUT_RUNNING - taken) // 2)
        return request if request.output_limit <= most else request._replace(output_limit=most)

    def get(self, execution_id: str) -> Execution:
        """Raises Refused: 404 unknown_execution."""
        with self._lock:
            known = self._by_id.get(execution_id)
        if known is None:
            raise Refused(404, "unknown_execution", execution_id)
        return known

    def all(self) -> List[Execution]:
        """All of the lease, oldest first."""
        with self._lock:
            return list(self._by_id.values())

    def alive(self) -> List[Execution]:
        """Those of which any process may live, survivors of ended ones too, or that nobody looks after."""
        with self._lock:
            self._living = [one for one in self._living if one.pid is not None or one.care.lacks_thread]
            return list(self._living)

    def forget_all(self) -> None:
        """The lease is over."""
        with self._lock:
            gone = list(self._by_id.values())
            self._start_anew()
        for execution in gone:
            execution.lease_ended()

    def _look_for_ends(self) -> None:
        running: List[Execution] = []
        for execution in self._running:
            if execution.running:
                running.append(execution)
                continue
            if execution.kept_bytes:
                self._kept += execution.kept_bytes
                self._printed.append(execution)
            if execution.spills:
                self._spilled.append(execution)
        self._running = running

    def _trim(self) -> None:
        while self._spilled and self._spills.is_full:
            self._spilled.popleft().drop_spills()
        while self._kept > OUTPUT_KEPT:
            self._kept -= self._printed.popleft().forget_output()
