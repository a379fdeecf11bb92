"""The streams of a command, opened before it starts: three pipes, or one terminal."""

import fcntl
import os
from typing import NamedTuple, Tuple

from emberpool.pool.emberd import terminal
from emberpool.pool.emberd.exec_request import Request


class Streams(NamedTuple):
    """Open files. Those of emberd's own are -1 where there is none."""

    command: Tuple[int, int, int]
    """What the command is to have as its stdin, stdout and stderr."""
    stdin: int
    stdout: int
    stderr: int


def opened(request: Request) -> Streams:
    """The streams that a request asks for. Raises OSError."""
    if request.tty is not None:
        stdout, child = terminal.open_pair(*request.tty)
        return Streams((child, child, child), fcntl.fcntl(stdout, fcntl.F_DUPFD_CLOEXEC, 3), stdout, -1)
    wanted = request.stdin or request.stdin_open
    child_in, stdin = os.pipe2(os.O_CLOEXEC) if wanted else (os.open(os.devnull, os.O_RDONLY), -1)
    stdout, child_out = os.pipe2(os.O_CLOEXEC)
    stderr, child_err = os.pipe2(os.O_CLOEXEC)
    for fd in (stdout, stderr):
        os.set_blocking(fd, False)  # two threads may read what is there
    return Streams((child_in, child_out, child_err), stdin, stdout, stderr)
