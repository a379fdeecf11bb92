"""The small single-threaded process that all rooms are forked from.

It is forked off before emberd reads its key or starts a thread: a fork of it is cheap and safe, and no memory
below it ever held the key. Everything that rooms need is imported here once.
"""

import gc
import os
import select
import signal
import socket
import time
import traceback
from typing import Any, Callable, Dict, NoReturn, Optional, Set, Tuple

from emberpool.pool.emberd import channel, identity, kernel, room_init, tree, wakeup
from emberpool.pool.emberd.config import Limits, RoomSpec
from emberpool.pool.emberd.removal import remove_tree
from emberpool.pool.emberd.roomroot import why_no_rooms
from emberpool.pool.emberd.taskgroup import OF_NO_GROUP, TaskGroup

HELPER_S = 1.0
"""Seconds for what is done as the jobs' user; it takes some milliseconds."""
END_USER_S = 5.0
"""Seconds in which all of that user is ended. What lives on is found by the attestation."""


def fork_off() -> Tuple[socket.socket, int]:
    """Start the zygote; its socket and PID."""
    mine, other = channel.pair()
    pid = os.fork()
    if pid == 0:
        mine.close()
        _serve(other)
    other.close()
    return mine, pid


def _serve(sock: socket.socket) -> NoReturn:
    """Make and end rooms as asked, until emberd is gone; then end all."""
    try:
        _prepare()
        spec = _spec(channel.receive(sock)[0])
        if spec.mode == "auto":
            spec = _settled(spec, sock)
        _Zygote(sock, spec).loop()
    except channel.Closed:
        os._exit(0)
    except BaseException:
        traceback.print_exc()  # without it no room can be made: whoever looks into the pod's log must know why
    finally:
        os._exit(1)


def _prepare() -> None:
    gc.disable()
    gc.freeze()  # its pages stay shared with every fork
    kernel.set_subreaper()
    os.setsid()
    # SIGHUP: gVisor sends it to all of our group when a room ends in which a job had stopped others.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            # Inherited by every job: the kernel picks them before emberd, which a kubelet gives up to 999 itself.
            file.write("1000")
    except OSError:
        pass
    kernel.set_undumpable()
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os.close(null)


def spec_message(spec: RoomSpec) -> Dict[str, Any]:
    """The first message to a zygote."""
    return dict(spec._asdict(), limits=dict(spec.limits._asdict()))


def _spec(message: Dict[str, Any]) -> RoomSpec:
    limits = Limits(**message.pop("limits"))
    message["binds"] = [(source, target) for source, target in message["binds"]]
    return RoomSpec(limits=limits, **message)


def _settled(spec: RoomSpec, sock: socket.socket) -> RoomSpec:
    """Find out what rooms this pod can have, and tell."""
    why = why_no_rooms(spec.scratch)
    spec = spec._replace(mode="plain" if why else "namespaces")
    channel.send(sock, {"mode": spec.mode, "why": why})
    return spec


def _wait_for(pid: int) -> None:
    """Until a child is reaped. It is some job's equal, which may stop it: it goes on, and is killed if that fails."""
    deadline = time.monotonic() + HELPER_S
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        os.kill(pid, signal.SIGCONT if time.monotonic() < deadline else signal.SIGKILL)
        time.sleep(0.0005)


class _Zygote:
    def __init__(self, sock: socket.socket, spec: RoomSpec) -> None:
        self._sock, self._spec = sock, spec
        self._inits: Dict[int, int] = {}
        """Wait status of every init that ended, by PID, until it was asked for; -1 while it runs."""
        self._deleters: Set[int] = set()
        self._group: Optional[TaskGroup] = None
        """What bounds the number of processes where no limit of a user's does; see taskgroup.py."""

    def loop(self) -> None:
        ended = wakeup.on_child_end()
        try:
            while True:
                ready = select.select([self._sock.fileno(), ended], [], [])[0]
                if ended in ready:
                    os.read(ended, 4096)
                    self._reap()
                if self._sock.fileno() in ready:
                    self._answer()
        finally:
            tree.end_below([os.getpid()])
            self._reap()

    def _answer(self) -> None:
        message, fds = channel.receive(self._sock)
        reply: Dict[str, Any] = {}
        try:
            if message["do"] == "make":
                reply = {"pid": self._make(message["folder"], fds[0], self._spec_of(message))}
            elif message["do"] == "end":
                reply = {"ended": self._end(message["pid"])}
            elif message["do"] == "count":
                reply = {"left": OF_NO_GROUP if self._group is None else self._group.left()}
            elif message["do"] == "sweep":
                self._as_job(identity.remove_ipc)
            else:
                self._delete(message["folder"])
        except OSError as error:
            reply = {"error": str(error)}
        finally:
            for fd in fds:
                os.close(fd)
        channel.send(self._sock, reply)

    def _spec_of(self, message: Dict[str, Any]) -> RoomSpec:
        """Of one room: its root and memory may be others than those of the rooms before."""
        binds = [(source, target) for source, target in message["binds"]]
        limits = self._spec.limits._replace(memory_mb=message["memory_mb"])
        return self._spec._replace(binds=binds, overlay=message["overlay"], limits=limits)

    def _make(self, folder: str, fd: int, spec: RoomSpec) -> int:
        """Fork a room's init. With namespaces its PID is 1 in there; the PID returned is ours."""
        if self._group is None:
            self._group = TaskGroup(folder, self._spec)
        pid = kernel.fork_into(kernel.CLONE_NEWPID) if self._spec.mode == "namespaces" else os.fork()
        if pid == 0:
            self._become_init(folder, fd, spec)
        self._inits[pid] = -1
        return pid

    def _become_init(self, folder: str, fd: int, spec: RoomSpec) -> None:
        status = 1
        try:
            wakeup.forget()
            self._sock.close()
            if self._group is not None:
                self._group.join()
            room_init.serve(socket.socket(fileno=fd), folder, spec)
            status = 0
        finally:
            os._exit(status)

    def _end(self, pid: int) -> bool:
        """Kill an init and wait until it is reaped. With namespaces the kernel has reaped all below it by then;
        in plain mode that is swept, and what a killed init left to us as well."""
        if pid not in self._inits:
            return True
        plain = self._spec.mode == "plain"
        if plain and self._spec.job_uid:
            self._end_user(self._spec.job_uid)
        gone = tree.end_below([pid]) if plain else True
        if self._inits[pid] == -1:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        del self._inits[pid]
        return gone and (not plain or self._end_orphans())

    def _end_user(self, uid: int) -> None:
        """End all that the jobs' user runs. A job may kill who is sent to do it: then another one is sent."""
        deadline = time.monotonic() + END_USER_S
        while tree.of_user(uid) and time.monotonic() < deadline:
            self._as_job(identity.end_all)

    def _as_job(self, do: Callable[[], None]) -> None:
        """Do something as the jobs' user, in a process of its own, and wait for its end."""
        pid = os.fork()
        if pid != 0:
            _wait_for(pid)
            return
        try:
            wakeup.forget()
            self._sock.close()
            if self._spec.job_uid:
                identity.become(self._spec.job_uid)
                do()
        finally:
            os._exit(0)

    def _end_orphans(self) -> bool:
        mine = {*self._inits, *self._deleters}
        orphans = [pid for pid, process in tree.table().items() if process.parent == os.getpid() and pid not in mine]
        gone = tree.end_below(orphans)
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return gone

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._deleters.discard(pid)
            if pid in self._inits:
                self._inits[pid] = status

    def _delete(self, folder: str) -> None:
        """Remove a folder in a child at the lowest priority; nobody waits for it."""
        pid = os.fork()
        if pid != 0:
            self._deleters.add(pid)
            return
        try:
            wakeup.forget()
            self._sock.close()
            os.nice(19)
            remove_tree(folder)
        finally:
            os._exit(0)
