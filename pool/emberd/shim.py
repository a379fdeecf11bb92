"""Runs one command and stays the parent of its whole tree, children that left its session included.

It reports the foreground's real wait status the moment it has it, then lives on until its tree is empty; its end
is how emberd knows that nothing of the execution is left.
"""

import errno
import os
import resource
import signal
import socket
import stat
from typing import Any, Dict, List, NoReturn

from emberpool.pool.emberd import channel, kernel
from emberpool.pool.emberd.config import Limits


def run(message: Dict[str, Any], fds: List[int], limits: Limits, other_tasks: int) -> NoReturn:
    """`fds`: stdin, stdout, stderr, status. A byte on status tells our PID, messages follow.

    `other_tasks`: processes and threads of the same user that are no job's, and so come on top of the limit.
    """
    stdin, stdout, stderr, status_fd = fds
    status = socket.socket(fileno=status_fd)
    os.setsid()
    kernel.set_subreaper()
    status.sendall(b"!")
    try:
        _limit(limits, other_tasks)
        if message["stdin_path"]:
            os.dup2(_regular(message["stdin_path"]), stdin)
        foreground = _spawn(message, stdin, stdout, stderr)
    except OSError as error:
        os.write(stderr, _explain(error, message).encode("utf-8", "surrogateescape"))
        code = 127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126
        channel.send(status, {"status": code << 8, "left": False})
        os._exit(0)
    for fd in (stdin, stdout, stderr):
        os.close(fd)
    _watch(foreground, status)


def _spawn(message: Dict[str, Any], stdin: int, stdout: int, stderr: int) -> int:
    """Start the command in a session of its own. posix_spawn shares memory until the exec: no copy of an interpreter.

    It searches the PATH of this process, so that of the command is taken on first.
    """
    argv = [channel.encoded(part) for part in message["argv"]]
    env = {channel.encoded(name): channel.encoded(value) for name, value in message["env"].items()}
    os.chdir(channel.encoded(message["cwd"]))
    os.environb[b"PATH"] = env.get(b"PATH", os.fsencode(os.defpath))
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((stdin, stdout, stderr))]
    # Python ignores the first two and the zygote the others; a command must not: `timeout` sends SIGTERM.
    ignored = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP]
    return os.posix_spawnp(argv[0], argv, env, file_actions=actions, setsid=True, setsigdef=ignored)


def _regular(path: str) -> int:
    """A file to be read as stdin, opened as the job would. A FIFO or a device could block for ever."""
    fd = os.open(channel.encoded(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "stdin_path: no regular file", channel.encoded(path))
    return fd


def _watch(foreground: int, status: socket.socket) -> NoReturn:
    while True:
        try:
            pid, code = os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(0)
        if pid == foreground:
            try:
                channel.send(status, {"status": code, "left": _any_left()})
            except channel.Closed:
                pass  # emberd is gone; the room's end is near


def _any_left() -> bool:
    """Whether children are left: a child of the foreground became ours before its own wait status did."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


def _limit(limits: Limits, other_tasks: int) -> None:
    mega = 1024 * 1024
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, limits.pids + other_tasks),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_FSIZE, limits.file_mb * mega),
    ):
        hard = resource.getrlimit(kind)[1]
        ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (ceiling, ceiling))


def _explain(error: OSError, message: Dict[str, Any]) -> str:
    what = error.filename if error.filename is not None else message["argv"][0]
    name = os.fsdecode(what) if isinstance(what, (str, bytes)) else str(what)
    return f"emberd: {name}: {error.strerror or error}\n"
