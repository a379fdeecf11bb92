"""The open ends of one execution (its streams, its status, its wake-up), waited for at once."""

import math
import os
import select
import socket
from typing import Dict

from emberpool.pool.emberd.feed import Input

MOST_S = 3600.0
"""Longest wait at a time: the kernel counts in milliseconds."""


class Loop:
    """The open ends of one execution, by name. Used by one thread at a time."""

    def __init__(self, stdin: int, given: Input, stdout: int, stderr: int, status: socket.socket) -> None:
        self._poll = select.poll()  # for so few files cheaper than what holds a file of its own
        self._files: Dict[str, int] = {}
        self._names: Dict[int, str] = {}
        self._add("stdout", stdout, select.POLLIN)
        self._add("status", status.fileno(), select.POLLIN)
        if stderr >= 0:
            self._add("stderr", stderr, select.POLLIN)
        if given.wake >= 0:
            self._add("wake", given.wake, select.POLLIN)
        self._stdin, self._input = stdin, given
        if stdin >= 0:
            os.set_blocking(stdin, False)
            self.want_input()

    @property
    def tree_lives(self) -> bool:
        """Whether the shim, and so something of the tree, is there."""
        return "status" in self._files

    @property
    def output_open(self) -> bool:
        """Whether somebody may still write."""
        return "stdout" in self._files or "stderr" in self._files

    @property
    def open_count(self) -> int:
        """Ends to look after."""
        return len(self._files)

    def ready(self, wait_s: float) -> "list[str]":
        """Names of the ends that can be served, as soon as any can, or after `wait_s` at the latest."""
        wait_ms = math.ceil(max(0.0, min(wait_s, MOST_S)) * 1000)
        return [self._names[fd] for fd, _ in self._poll.poll(wait_ms)]

    def drop(self, name: str) -> None:
        """Look after it no more."""
        fd = self._files.pop(name)
        del self._names[fd]
        self._poll.unregister(fd)

    def want_input(self) -> None:
        """Something may have to be written to stdin: look when it takes bytes."""
        self._input.woken()
        if self._stdin >= 0 and "stdin" not in self._files:
            self._add("stdin", self._stdin, select.POLLOUT)

    def feed(self) -> bool:
        """Write what stdin takes; True when nothing will follow: it is to be closed."""
        over = self._input.feed(self._stdin)
        if over is None:
            return False
        self.drop("stdin")
        if over:
            self._stdin = -1
        return over

    def end_input(self) -> None:
        """Nobody will read stdin any more."""
        for name in ("stdin", "wake"):
            if name in self._files:
                self.drop(name)
        self._stdin = -1

    def _add(self, name: str, fd: int, events: int) -> None:
        self._files[name], self._names[fd] = fd, name
        self._poll.register(fd, events)
