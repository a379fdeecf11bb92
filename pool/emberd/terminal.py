"""Terminals of jobs: a pair of ends of which emberd keeps one."""

import fcntl
import os
import struct
import termios
from typing import Tuple


def open_pair(rows: int, cols: int) -> Tuple[int, int]:
    """emberd's end, not blocking, and the command's."""
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    resize(ours, rows, cols)
    return ours, theirs


def resize(fd: int, rows: int, cols: int) -> None:
    """Set the window's size; the command is told by SIGWINCH."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def take_control(fd: int) -> None:
    """Make it the controlling terminal of this session, whose leader this process is."""
    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)
