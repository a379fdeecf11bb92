"""What is still to be written to a command's stdin: given whole at its start, or piece by piece while it runs."""

import os
import threading
from typing import Any, Dict, Optional

PENDING = 1024 * 1024
"""Bytes that wait for a command that does not read; what comes beyond that is not accepted yet."""
_PIECE = 65536
_END_OF_TRANSMISSION = b"\x04"


class Input:
    """Filled by calls from any thread, emptied by the execution's own."""

    def __init__(self, data: bytes, stays_open: bool, is_terminal: bool) -> None:
        self._data = bytearray(data)
        self._open = stays_open
        self._over = False
        self._terminal = is_terminal
        self._at_line_start = True
        self._changed = threading.Condition()
        self.accepted = len(data)
        """Bytes taken in all: the offset of the next one."""
        self.wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if stays_open else (-1, -1)

    def add(self, data: bytes, offset: int, end: bool, wait_s: float) -> Dict[str, Any]:
        """Accept bytes that start at `offset` of the whole input, as far as there is room within `wait_s`.

        What was accepted before is not written twice. `end` closes stdin once all of `data` is accepted.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._over or len(self._data) < PENDING, wait_s)
            if self._open and not self._over and offset <= self.accepted:
                fresh = data[self.accepted - offset :][: PENDING - len(self._data)]
                self._data += fresh
                self.accepted += len(fresh)
                if end and offset + len(data) <= self.accepted:
                    self._open = False
                os.write(self._waker, b"!")
            return {"accepted": self.accepted, "open": self._open and not self._over}

    def woken(self) -> None:
        """The wake-up was seen."""
        if self.wake < 0:
            return
        try:
            os.read(self.wake, 4096)
        except OSError:
            pass  # nothing there, or closed

    def feed(self, fd: int) -> Optional[bool]:
        """Write what `fd` takes. True: nothing will follow; False: nothing for now; None: more is there."""
        with self._changed:
            try:
                if self._data:
                    count = os.write(fd, self._data[:_PIECE])
                    self._at_line_start = self._data[count - 1] == 10
                    del self._data[:count]
                    self._changed.notify_all()
                if self._data:
                    return None
                if self._open:
                    return False
                if self._terminal:  # a terminal has no half-close: this reads as end-of-file at a line's start
                    os.write(fd, _END_OF_TRANSMISSION * (1 if self._at_line_start else 2))
            except BlockingIOError:
                return None
            except OSError:
                self._data.clear()
            self._over = True
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """The command has ended."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
            for fd in (self.wake, self._waker):
                if fd >= 0:
                    os.close(fd)
            self.wake = self._waker = -1
