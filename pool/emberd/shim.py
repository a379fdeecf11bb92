"""Runs one command and stays the parent of its whole tree, children that left its session included.

It is forked and made ready before its command is known, so that a command's start waits for no fork.
It reports the foreground's real wait status the moment it has it, then lives on until its tree is empty; its end
is how emberd knows that nothing of the execution is left.
"""

import errno
import fcntl
import os
import resource
import select
import signal
import socket
import stat
from typing import Any, Dict, List, NoReturn, Optional, Set, Tuple

from emberpool.pool.emberd import channel, kernel, terminal, tree, wakeup
from emberpool.pool.emberd.config import Limits

FIRST_EXTRA, IN_COMMAND = 6, 4
"""Further files are 6 to 9 in the command, the highest numbers that every shell can name. What comes beyond them is the
shim's."""
_FROM_TERMINAL = [signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU]
"""What a terminal may send to the shim, which shares the command's process group."""


def stand_by(status: socket.socket, limits: Limits, other_tasks: int) -> NoReturn:
    """A byte on `status` tells our PID; then comes the command, with its files, and we answer there.

    `other_tasks`: processes and threads of the same user that are no job's, and so come on top of the limit.
    """
    os.setsid()
    kernel.set_subreaper()
    _limit(limits, other_tasks)
    ended = wakeup.on_child_end()
    _rehearse(ended)
    status.sendall(b"!")
    try:
        message, fds = channel.receive_from_above(status)
    except channel.Closed:
        os._exit(0)  # the room ends
    _run(message, fds, status, ended)


def _rehearse(ended: int) -> None:
    """Go through the start and the end of a command: after a fork the first touch of every page copies it."""
    one, other = channel.pair()
    with one, other:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        command = {"argv": ["/"], "env": {f"NAME_{number}": "value" * 4 for number in range(32)}, "cwd": "/"}
        channel.send_down(one, command, [null] * 3)
        message, fds = channel.receive_from_above(other)
        try:
            _spawn(message, fds, [])
        except OSError:
            pass  # a folder is no program
        for fd in (null, *fds):
            os.close(fd)
        watch = _Watch(-1, other, [])
        watch.report(0, watch.reap()[1])
        if select.select([ended, other.fileno()], [], [], 0)[0]:
            os.read(ended, 4096)
        channel.receive_end(one)


def _run(message: Dict[str, Any], fds: List[int], status: socket.socket, ended: int) -> NoReturn:
    stdin, stdout, stderr, *extra = fds
    try:
        if message.get("stdin_path"):
            os.dup2(_regular(message["stdin_path"]), stdin)
        foreground = _spawn(message, [stdin, stdout, stderr], _moved(extra[:IN_COMMAND]))
    except OSError as error:
        os.write(stderr, _explain(error, message).encode("utf-8", "surrogateescape"))
        code = 127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126
        channel.send_end(status, code << 8, False)
        os._exit(0)
    for fd in (stdin, stdout, stderr, *extra[:IN_COMMAND]):
        os.close(fd)
    _Watch(foreground, status, extra[IN_COMMAND:]).loop(ended)


def _moved(extra: List[int]) -> List[int]:
    """Out of the way of the numbers that they are to have in the command."""
    return [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in extra]


def _spawn(message: Dict[str, Any], streams: List[int], extra: List[int]) -> int:
    """Start the command in a session of its own. posix_spawn shares memory until the exec: no copy of an interpreter.

    It searches the PATH of this process, so that of the command is taken on first. With a terminal the session is the
    shim's: when the leader of a session ends, the kernel throws away what nobody has read yet of its terminal.
    """
    argv, env = _arguments(message)
    os.chdir(channel.encoded(message["cwd"]))
    os.environb[b"PATH"] = env.get(b"PATH", os.fsencode(os.defpath))
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(streams)]
    actions += [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(extra, FIRST_EXTRA)]
    # Python ignores the first two and the zygote the others; a command must not: `timeout` sends SIGTERM.
    ignored = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP]
    if message.get("tty"):
        terminal.take_control(streams[0])
        for number in _FROM_TERMINAL:
            signal.signal(number, signal.SIG_IGN)
        ignored += _FROM_TERMINAL
    return os.posix_spawnp(argv[0], argv, env, file_actions=actions, setsid=not message.get("tty"), setsigdef=ignored)


def _arguments(message: Dict[str, Any]) -> "Tuple[List[bytes], Dict[bytes, bytes]]":
    argv = [channel.encoded(part) for part in message["argv"]]
    return argv, {channel.encoded(name): channel.encoded(value) for name, value in message["env"].items()}


def _regular(path: str) -> int:
    """A file to be read as stdin, opened as the job would. A FIFO or a device could block for ever."""
    fd = os.open(channel.encoded(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "stdin_path: no regular file", channel.encoded(path))
    return fd


class _Watch:
    """Waits for ended children and for emberd's wishes at once."""

    def __init__(self, foreground: int, status: socket.socket, go: List[int]) -> None:
        self._foreground, self._status, self._go = foreground, status, go
        self._reported = False
        self._spared: Set[int] = set()
        """Processes that an interrupt leaves alone."""

    def loop(self, ended: int) -> NoReturn:
        """`ended` is readable when a child has ended."""
        listened = [ended, self._status.fileno()]
        while True:
            status, left = self.reap()
            if status is not None:
                self._reported = True
                self.report(status, left)
            if not left:
                os._exit(0)
            ready = select.select(listened, [], [])[0]
            if ended in ready:
                os.read(ended, 4096)
            if self._status.fileno() in ready:
                try:
                    self._obey(channel.receive_from_above(self._status)[0])
                except channel.Closed:
                    listened = [ended]  # emberd is gone; the room's end is near

    def reap(self) -> Tuple[Optional[int], bool]:
        """The foreground's wait status, if it has just ended, and whether any child is left. A child of the foreground
        becomes ours before its wait status does, so that is known when the status is told."""
        status: Optional[int] = None
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return status, False
            if pid == 0:
                return status, True
            if pid == self._foreground:
                status = code

    def report(self, status: int, left: bool) -> None:
        """Tell emberd how the foreground ended."""
        try:
            channel.send_end(self._status, status, left)
        except channel.Closed:
            pass

    def _obey(self, message: Dict[str, Any]) -> None:
        if self._reported:
            return
        if message["do"] == "signal":
            _signal_group(self._foreground, message["signal"])
        elif message["do"] == "go":
            # From here, so that nothing of the text can run before it is known what was there already.
            self._spared = set(tree.descendants([self._foreground], tree.table()))
            os.write(self._go[0], b"\n")
        elif message["do"] == "interrupt":
            os.kill(self._foreground, message["signal"])
            for pid in set(tree.descendants([self._foreground], tree.table())) - self._spared:
                _kill(pid)


def _signal_group(pid: int, number: int) -> None:
    """To the command and what it started in its process group; with a terminal the group is ours too: only to it."""
    try:
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except OSError:
        pass


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


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
