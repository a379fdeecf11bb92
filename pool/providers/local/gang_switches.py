"""The switches of this machine's gangs: one process each, which the supervisor hands the devices of rooms to.

Each pod whose profile has `gang_peers` finds a unix socket of its own. Its emberd sends the far end of a room's device
there, with the gang's id, which it has from a call that the lease's holder signed. Whoever has the same id gets frames
from it; nobody else knows it.
"""

import array
import asyncio
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

log = logging.getLogger(__name__)

MOST_GANGS = 1024
"""Switches at once; more are refused, and a pool has far fewer pods."""


class GangSwitches:
    """By pool and gang. Belongs to one event loop; `close` ends all."""

    def __init__(self) -> None:
        self._listeners: dict[Path, socket.socket] = {}
        self._waiting: set[socket.socket] = set()
        """Connections whose message has not come yet."""
        self._switches: dict[tuple[str, str], tuple[subprocess.Popen[bytes], socket.socket]] = {}

    def listen(self, path: Path, pool: str, host_uid: int) -> None:
        """Take rooms' devices at `path` from the pod that runs under `host_uid` (-1: under ours).

        Raises:
            OSError: the socket cannot be made.
        """
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            server.bind(str(path))
            if host_uid >= 0:
                os.chown(path, host_uid, host_uid)
            server.listen(8)
        except OSError:
            server.close()
            raise
        self._listeners[path] = server
        asyncio.get_running_loop().add_reader(server, self._accept, server, pool)

    def forget(self, path: Path) -> None:
        """Its pod is gone. Silent if there was none."""
        server = self._listeners.pop(path, None)
        if server is not None:
            _close(server)

    def close(self) -> None:
        """End every switch."""
        for path in list(self._listeners):
            self.forget(path)
        for connection in self._waiting:
            _close(connection)
        self._waiting.clear()
        for gang in list(self._switches):
            self._end(gang)

    def _accept(self, server: socket.socket, pool: str) -> None:
        with contextlib.suppress(OSError):
            connection = server.accept()[0]
            connection.setblocking(False)
            self._waiting.add(connection)
            asyncio.get_running_loop().add_reader(connection, self._take, connection, pool)

    def _take(self, connection: socket.socket, pool: str) -> None:
        """One message, one device; the switch tells its sender, or the end of the connection does."""
        self._waiting.discard(connection)
        asyncio.get_running_loop().remove_reader(connection)
        fds: list[int] = []
        try:
            data, fds, _, _ = socket.recv_fds(connection, 4096, 4)
            gang = str(json.loads(data)["gang"])
            if len(fds) == 1:
                self._hand_over((pool, gang), [fds[0], connection.fileno()])
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("a room of pool %s is not connected to its gang: %s", pool, error)
        finally:
            for fd in fds:
                os.close(fd)
            connection.close()

    def _hand_over(self, gang: tuple[str, str], fds: list[int]) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        try:
            self._switch(gang).sendmsg([b"member"], rights)
        except (BrokenPipeError, ConnectionResetError):
            self._end(gang)  # it ends just now: its rooms are gone, and this one begins anew
            self._switch(gang).sendmsg([b"member"], rights)

    def _switch(self, gang: tuple[str, str]) -> socket.socket:
        known = self._switches.get(gang)
        if known is None:
            if len(self._switches) >= MOST_GANGS:
                raise OSError(f"{MOST_GANGS} gangs have a network")
            known = self._switches[gang] = _start()
            # It says nothing: what is to be read is its end.
            asyncio.get_running_loop().add_reader(known[1], self._end, gang)
        return known[1]

    def _end(self, gang: tuple[str, str]) -> None:
        process, control = self._switches.pop(gang)
        _close(control)
        process.kill()
        process.wait()


def _start() -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    script = str(Path(__file__).with_name("switch.py"))
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", script],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours


def _close(sock: socket.socket) -> None:
    asyncio.get_running_loop().remove_reader(sock)
    sock.close()
