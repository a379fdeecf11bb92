"""Passes Ethernet frames on between the rooms of one gang, and to nobody else.

Run as a script by the supervisor, one process per gang, so that a flood of frames costs its own gang alone; standard
library only. It takes packet sockets by descriptor 0, each the far end of a room's only device, and ends when the
supervisor is gone or the last room is. Frames that a receiver has no room for are dropped, as a switch does.
"""

import array
import contextlib
import errno
import os
import select
import socket

FRAME_BYTES = 10 + 14 + 65535 + 64
"""A virtio header, an Ethernet header, and the largest packet that a kernel leaves uncut."""
_HEAD = 10
"""Bytes of the virtio header before each frame; passed on as they are."""
_BATCH = 64
"""Frames of one member before it is the others' turn."""
NOBODY = 65534


class Switch:
    """The members of one gang, by descriptor, and which hardware address was seen behind which."""

    def __init__(self, control: socket.socket) -> None:
        """`control` brings members: each message has a packet socket, and the connection that is told `ok`."""
        self._control = control
        self._members: dict[int, socket.socket] = {}
        self._behind: dict[bytes, int] = {}
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._buffer = bytearray(FRAME_BYTES)
        self._served = False
        """Whether it has had a member."""

    def run(self) -> None:
        """Serve until nobody needs it."""
        while True:
            for fd, _ in self._poll.poll():
                if fd != self._control.fileno():
                    self._pass_on(fd)
                elif not self._admit():
                    return
            if self._served and not self._members:
                return

    def _admit(self) -> bool:
        """Take one more member; False if the supervisor is gone."""
        data, control, _, _ = self._control.recvmsg(64, socket.CMSG_SPACE(8), socket.MSG_CMSG_CLOEXEC)
        fds = array.array("i")
        for level, kind, payload in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        if len(fds) != 2:
            for fd in fds:
                os.close(fd)
            return bool(data)
        member, told = (socket.socket(fileno=fd) for fd in fds)
        member.setblocking(False)
        self._members[member.fileno()], self._served = member, True
        self._poll.register(member, select.POLLIN)
        with told, contextlib.suppress(OSError):
            told.setblocking(False)
            told.send(b"ok")
        return True

    def _pass_on(self, fd: int) -> None:
        member = self._members.get(fd)
        for _ in range(_BATCH):
            if member is None:
                return
            try:
                size = member.recv_into(self._buffer)
            except BlockingIOError:
                return
            except OSError:
                self._drop(fd)  # its room ended, and its device with it
                return
            frame = memoryview(self._buffer)[:size]
            target, source = bytes(frame[_HEAD : _HEAD + 6]), bytes(frame[_HEAD + 6 : _HEAD + 12])
            if len(source) < 6:
                continue
            self._behind[source] = fd
            known = None if target[0] & 1 else self._behind.get(target)
            for other in [known] if known is not None else list(self._members):
                if other != fd:
                    self._send(other, frame)

    def _send(self, fd: int, frame: memoryview) -> None:
        member = self._members.get(fd)
        if member is None:
            return
        try:
            member.send(frame)
        except OSError as error:
            if error.errno in (errno.ENETDOWN, errno.ENXIO, errno.ENODEV):
                self._drop(fd)

    def _drop(self, fd: int) -> None:
        member = self._members.pop(fd)
        self._poll.unregister(fd)
        member.close()
        self._behind = {address: behind for address, behind in self._behind.items() if behind != fd}


def main() -> None:
    """Give up root, if it was had, and serve."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    Switch(socket.socket(fileno=0)).run()


if __name__ == "__main__":
    main()
