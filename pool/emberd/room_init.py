"""A room's first process: builds the room around itself, gives up every privilege, then serves emberd's requests.

With namespaces it is PID 1 of the room, and its end is the room's end. In plain mode it is an ordinary process
that adopts what its jobs leave behind.
"""

import os
import select
import signal
import socket
from typing import Any, Dict, List, Set

from emberpool.pool.emberd import (
    channel,
    identity,
    ipc,
    kernel,
    roomfiles,
    roomroot,
    seccomp,
    shim,
    tasks,
    tree,
    wakeup,
)
from emberpool.pool.emberd.config import RoomSpec


def serve(sock: socket.socket, folder: str, spec: RoomSpec) -> None:
    """Build the room in `folder` and serve `sock` until emberd is gone. The first message tells how it went."""
    kernel.die_with_parent(signal.SIGKILL)
    kernel.set_subreaper()
    try:
        if spec.mode == "namespaces":
            kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
            if spec.own_network:
                kernel.unshare(kernel.CLONE_NEWNET)
                kernel.raise_loopback()
            roomroot.build(folder, spec)
            home = roomroot.Home("/work", "/home/job", "/tmp")
        else:
            home = roomroot.plain(folder, spec.job_uid)
            if spec.job_uid:
                identity.become(spec.job_uid)
                kernel.die_with_parent(signal.SIGKILL)  # a change of user has undone it
        facts: Dict[str, Any] = {"ipc": _namespace("ipc"), "work": home.work, "home": home.home, "tmp": home.tmp}
        kernel.drop_privileges()
        facts["unfiltered"] = seccomp.install() or ""
        if spec.mode == "namespaces":
            facts["mounts"] = roomroot.mounted()
        os.umask(0o022)
        os.chdir(home.work)
    except OSError as error:
        channel.send(sock, {"error": f"room: {error}"})
        return
    channel.send(sock, facts)
    try:
        _Init(sock, home, spec).loop()
    except channel.Closed:
        pass
    finally:
        tree.end_below([os.getpid()])


def _namespace(kind: str) -> int:
    return os.stat(f"/proc/self/ns/{kind}").st_ino


class _Init:
    def __init__(self, sock: socket.socket, home: roomroot.Home, spec: RoomSpec) -> None:
        self._sock, self._home, self._spec = sock, home, spec
        self._other_tasks = tasks.others(spec)
        self._own: Set[int] = set()
        """Shims and file workers; any other child is an orphan."""

    def loop(self) -> None:
        ended = wakeup.on_child_end()
        while True:
            ready = select.select([self._sock.fileno(), ended], [], [])[0]
            if ended in ready:
                os.read(ended, 4096)
                self._reap()
            if self._sock.fileno() in ready:
                message, fds = channel.receive(self._sock)
                try:
                    self._answer(message, fds)
                finally:
                    for fd in fds:
                        os.close(fd)

    def _answer(self, message: Dict[str, Any], fds: List[int]) -> None:
        if message["do"] == "inspect":
            channel.send(self._sock, self._inspect())
            return
        try:
            pid = os.fork()
        except OSError:
            return  # the files are closed: emberd sees that nothing started
        if pid:
            self._own.add(pid)
            return
        try:
            wakeup.forget()
            self._sock.close()
            if message["do"] == "shim":
                shim.stand_by(socket.socket(fileno=fds[0]), self._spec.limits, self._other_tasks)
            else:
                roomfiles.serve(socket.socket(fileno=fds[0]), message, self._spec.limits)
        finally:
            os._exit(1)

    def _reap(self) -> None:
        lost = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in self._own:
                self._own.discard(pid)
                lost = lost or status != 0
        if lost:
            self._end_orphans()

    def _end_orphans(self) -> None:
        """A shim was killed from within: what it kept track of is ours now, and belongs to no execution any more."""
        processes = tree.table()
        mine = [pid for pid, process in processes.items() if process.parent == os.getpid() and pid not in self._own]
        tree.end_below(mine)
        for pid in mine:
            _kill(pid)

    def _inspect(self) -> Dict[str, Any]:
        """What a job of this room would find that nobody has put there."""
        found: Dict[str, Any] = {"shared_memory": [], "ipc": _namespace("ipc")}
        if self._spec.mode == "namespaces":
            found["shared_memory"] = sorted(ipc.there())
            found["mounts"] = roomroot.mounted()
        found["files"] = [
            os.path.join(folder, name)
            for folder in (self._home.work, self._home.home, self._home.tmp)
            for name in os.listdir(folder)
        ]
        return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
