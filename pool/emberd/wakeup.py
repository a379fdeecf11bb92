"""Lets a single-threaded loop wait for requests and for ended children at once."""

import os
import signal
from types import FrameType
from typing import Optional


def on_child_end() -> int:
    """A descriptor that becomes readable when a child ends. Forked children must call `forget`."""
    readable, writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _ignore)
    return readable


def forget() -> None:
    """In a forked child: its children are not the parent's business."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _ignore(_number: int, _frame: Optional[FrameType]) -> None:
    """A handler of our own, since only then does Python write to the descriptor."""
