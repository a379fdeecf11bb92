"""Runs one command and stays the parent of its whole tree, children that left its session included.

It is forked and made ready before its command is known, so that a command's start waits for no fork.
It reports the foreground's real wait status the moment it has it. If the tree is empty by then, it takes the next
command, where emberd allows it: a fork, and the pages that it copies, cost more than a short command. Else it lives on
until the tree is empty; its end is how emberd knows that nothing of the execution is left.
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

MOST_COMMANDS = 100
"""Of one shim: what each may leave in its memory, as a search path, no limit counts."""
FIRST_EXTRA, IN_COMMAND = 6, 4
"""Further files are 6 to 9 in the command, the highest numbers that every shell can name. What comes beyond them is the
shim's."""
_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
READY, NO_PROCESS = b"!", b"?"
"""What a shim says when it stands ready: the second if it was refused the process that a command would be."""
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
    said = READY if _rehearse(ended) else NO_PROCESS
    standing, inbox = _standing(), channel.Inbox(status)
    for _ in range(MOST_COMMANDS):
        try:
            status.sendall(said)
            message = _next_command(inbox)
        except (channel.Closed, OSError):
            break  # nobody needs it, or the room ends
        if not _run(message, inbox, status, ended) or _standing() != standing:
            break
        said = READY
    os._exit(0)


def _next_command(inbox: channel.Inbox) -> Dict[str, Any]:
    while "argv" not in (message := inbox.next()):
        continue  # a wish of the last command's, which came too late
    return message


def _standing() -> Tuple[Any, ...]:
    """What a command may change of its keeper's, and the next one would inherit."""
    try:
        with open("/proc/self/oom_score_adj", "rb") as file:
            chosen = file.read()
    except OSError:
        chosen = b""
    limits = [resource.getrlimit(kind) for kind in _LIMITS]
    return limits, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), os.sched_getaffinity(0), chosen


def _rehearse(ended: int) -> bool:
    """Go through the start and the end of a command: after a fork the first touch of every page copies it. Whether
    there was a process to be had for it."""
    started = True
    one, other = channel.pair()
    with one, other:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        command = {"argv": ["/"], "env": {f"NAME_{number}": "value" * 4 for number in range(32)}, "cwd": "/"}
        channel.send_packed(one, channel.packed(command), [null] * 3)
        inbox = channel.Inbox(other)
        message, fds = inbox.next(), inbox.take_fds()
        try:
            _spawn(message, fds, [])
        except OSError as error:  # a folder is no program
            started = error.errno not in (errno.EAGAIN, errno.ENOMEM)
        _close([null, *fds])
        watch = _Watch(-1, other, inbox, [])
        watch.report(0, watch.reap()[1])
        if select.select([ended, other.fileno()], [], [], 0)[0]:
            os.read(ended, 4096)
        channel.receive_end(one)
    return started


def _run(message: Dict[str, Any], inbox: channel.Inbox, status: socket.socket, ended: int) -> bool:
    """Run a command until its tree is empty. Whether another can follow: emberd asked for it, and was told all."""
    fds = inbox.take_fds()
    if len(fds) < 3:
        os._exit(1)  # its limit of open files was lowered: a command without its streams would lie
    extra = fds[3:]
    try:
        foreground = _started(message, fds[:3], extra[:IN_COMMAND])
    except OSError as error:
        os.write(fds[2], _explain(error, message).encode("utf-8", "surrogateescape"))
        _close(fds)
        code = 127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126
        channel.send_end(status, code << 8, False)
        return bool(message["stay"])
    _close(fds[: 3 + IN_COMMAND])
    return _Watch(foreground, status, inbox, extra[IN_COMMAND:]).loop(ended) and bool(message["stay"])


def _started(message: Dict[str, Any], streams: List[int], extra: List[int]) -> int:
    if message.get("stdin_path"):
        file = _regular(message["stdin_path"])
        os.dup2(file, streams[0], inheritable=False)
        os.close(file)
    return _spawn(message, streams, _moved(extra))


def _close(fds: List[int]) -> None:
    for fd in fds:
        os.close(fd)


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

    def __init__(self, foreground: int, status: socket.socket, inbox: channel.Inbox, go: List[int]) -> None:
        self._foreground, self._status, self._inbox, self._go = foreground, status, inbox, go
        self._reported = False
        self._spared: Set[int] = set()
        """Processes that an interrupt leaves alone."""

    def loop(self, ended: int) -> bool:
        """Until nothing of the tree is left. Whether that was told with the foreground's end, rather than by ours.

        `ended` is readable when a child has ended.
        """
        listened = [ended, self._status.fileno()]
        while True:
            status, left = self.reap()
            if status is not None:
                self._reported = True
                self.report(status, left)
            if not left:
                return status is not None
            at_hand = not self._inbox.is_empty
            ready = select.select(listened, [], [], 0 if at_hand else None)[0]
            if ended in ready:
                os.read(ended, 4096)
            if at_hand or self._status.fileno() in ready:
                try:
                    self._obey(self._inbox.next())
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
        elif message["do"] == "end":
            tree.end_below([os.getpid()])
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
