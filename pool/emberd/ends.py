"""The open ends of one execution (its streams, its status, its wake-up), waited for at once."""

import os
import selectors
import socket
from typing import Any, Dict, Optional

from emberpool.pool.emberd.feed import Input


class Loop:
    """The open ends of one execution, by name."""

    def __init__(self, stdin: int, given: Input, stdout: int, stderr: int, status: socket.socket) -> None:
        self._selector = selectors.DefaultSelector()
        self._files: Dict[str, Any] = {"stdout": stdout, "status": status}
        if stderr >= 0:
            self._files["stderr"] = stderr
        if given.wake >= 0:
            self._files["wake"] = given.wake
        for name, file in self._files.items():
            self._selector.register(file, selectors.EVENT_READ, name)
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

    def ready(self, wait_s: Optional[float]) -> "list[str]":
        """Names of the ends that can be served now."""
        return [key.data for key, _ in self._selector.select(wait_s)]

    def drop(self, name: str) -> None:
        """Look after it no more."""
        self._selector.unregister(self._files.pop(name))
        if not self._files:
            self._selector.close()

    def want_input(self) -> None:
        """Something may have to be written to stdin: look when it takes bytes."""
        self._input.woken()
        if self._stdin >= 0 and "stdin" not in self._files:
            self._files["stdin"] = self._stdin
            self._selector.register(self._stdin, selectors.EVENT_WRITE, "stdin")

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
