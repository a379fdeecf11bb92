"""Joining a gang's network fails for good only where it can never work: all else is tried again, in the same room."""

import asyncio
import errno
import json
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import cast

import pytest
from fixtures.emberd import ROOT_BINDS, EmberdProcess, Lease, Starter, open_lease, reset
from fixtures.hasty import shorten

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.network import join_network
from emberpool.pool.emberd.peering import Peering
from emberpool.pool.emberd.refusal import Refused
from emberpool.pool.emberd.room import Room
from emberpool.pool.model.errors import PodUnreachable
from emberpool.pool.model.gang_network import seat_of

SEAT = seat_of("g", 0)
DEVICES = "import socket; print(sorted(name for _, name in socket.if_nameindex()))"


@pytest.fixture
def pod(emberds: Starter) -> EmberdProcess:
    """A pod whose gangs' switch is the test's to play; it is waited for half a second."""
    room: dict[str, object] = {"mode": "namespaces", "root": ROOT_BINDS, "env": {}, "network": "own"}
    room["switch"] = "/run/ember/switch"
    folder = emberds.folder()
    shorten(folder, "peering.py", SWITCH_S=0.5)
    return emberds.start("namespaces", folder, room=room, listen="unix:/run/ember/s")


@contextmanager
def switch(pod: EmberdProcess) -> Generator[socket.socket]:
    """The socket that devices of rooms come to."""
    path = pod.folder / "run" / "switch"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(path))
        path.chmod(0o666)
        server.listen(8)
        server.settimeout(5)
        yield server


def take(server: socket.socket, answer: bytes) -> socket.socket:
    """The device that comes next; whoever brings it is told `answer`, or hung up on if that is empty."""
    with server.accept()[0] as connection:
        data, fds, _, _ = socket.recv_fds(connection, 4096, 4)
        assert json.loads(data) == {"gang": SEAT.gang}
        if answer:
            with suppress(BrokenPipeError):  # whoever brought it has given up
                connection.send(answer)
    return socket.socket(fileno=fds[0])


async def join(lease: Lease) -> str:
    return await join_network(lease.client, lease.pod, lease.proof, SEAT)


async def fails(lease: Lease) -> None:
    """For now, in a way that has an activity try again, at the same pod."""
    with pytest.raises(PodUnreachable, match="cannot be connected") as caught:
        await join(lease)
    assert caught.value.sent, "else a new claim would move to another pod"


async def devices(lease: Lease) -> str:
    return (await lease.run("python3", "-c", DEVICES)).text


async def test_a_switch_that_is_late_or_full_costs_one_try(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Nobody is there, nobody answers in time, or the switch lets go of the device. The try after it succeeds, though
    whoever was late holds the first one's device for good, and the room has no more than one."""
    lease = open_lease(pod, emberd_client)
    await fails(lease)
    with switch(pod) as server:
        await fails(lease)
        late = take(server, b"ok")
        assert await devices(lease) == "['gang0', 'lo']\n"
        full = asyncio.create_task(asyncio.to_thread(take, server, b""))
        await fails(lease)
        (await full).close()
        member = asyncio.create_task(asyncio.to_thread(take, server, b"ok"))
        assert await join(lease) == await join(lease) == "gang0"
        assert await devices(lease) == "['gang0', 'lo']\n"
        with late, pytest.raises(OSError, match="down"):  # and a switch drops it
            late.setblocking(False)
            late.recv(100)
        (await member).close()
    await reset(lease)


class Broken:
    """A room at which something of the kernel's goes wrong."""

    def __init__(self, number: int | None) -> None:
        self._number = number

    @property
    def pid(self) -> int:
        raise TimeoutError("timed out") if self._number is None else OSError(self._number, "as the kernel says")


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (errno.EOPNOTSUPP, "no_network"),
        (errno.EPERM, "no_network"),
        (errno.EACCES, "no_network"),
        (errno.ENODEV, "no_network"),
        (errno.EAFNOSUPPORT, "no_network"),
        (errno.EPROTONOSUPPORT, "no_network"),
        (None, "network_busy"),
        (errno.EAGAIN, "network_busy"),
        (errno.ECONNRESET, "network_busy"),
        (errno.ENOENT, "network_busy"),
        (errno.ESRCH, "network_busy"),
        (errno.EEXIST, "network_busy"),
        (errno.EMFILE, "network_busy"),
        (errno.ENOBUFS, "network_busy"),
    ],
)
def test_what_goes_wrong_for_good_is_told_apart(number: int | None, word: str) -> None:
    """A kernel that cannot says so again; and if the lease is over meanwhile, that is why."""
    room, body = cast(Room, Broken(number)), {"gang": SEAT.gang, "address": SEAT.address}
    with pytest.raises(Refused) as caught:
        Peering("/run/switch").join(room, body, lambda: None)
    assert (caught.value.status, caught.value.word) == (409, word)

    def over() -> None:
        raise Refused(409, "stale_epoch")

    with pytest.raises(Refused, match="stale_epoch"):
        Peering("/run/switch").join(room, body, over)
