"""room.network: a room apart from the pod's network has its loopback, and no way to anything else."""

import dataclasses

import pytest
from fixtures.emberd import ROOT_BINDS, EmberdProcess, Lease, Starter, new_id, open_lease, reset
from fixtures.waiting import wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.network import join_network
from emberpool.pool.client.ports import request_port
from emberpool.pool.client.processes import start_process
from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import InvalidInput, PodRefused, PortUnreachable
from emberpool.pool.model.gang_network import GangSeat, seat_of
from emberpool.pool.model.port import PortRequest

DEVICES = "import socket; print([name for _, name in socket.if_nameindex()])"
OWN_LOOPBACK = (
    "import socket; server = socket.create_server(('127.0.0.1', 0)); "
    "socket.create_connection(server.getsockname(), 2).close(); print('reached')"
)


@pytest.fixture(scope="module")
def apart(emberds: Starter) -> EmberdProcess:
    """A pod whose rooms have a network of their own; nobody serves the socket for gangs."""
    room: dict[str, object] = {"mode": "namespaces", "root": ROOT_BINDS, "env": {}, "network": "own"}
    room["switch"] = "/run/ember/switch"
    return emberds.start("namespaces", room=room, listen="unix:/run/ember/s")


async def test_a_room_apart_reaches_itself_alone(apart: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Its own loopback works; there is no other device, and what the pod listens on is not there."""
    lease = open_lease(apart, emberd_client)
    namespace = (await lease.sh("readlink /proc/self/ns/net")).text
    assert (await lease.run("python3", "-c", DEVICES)).text == "['lo']\n"
    assert (await lease.run("python3", "-c", OWN_LOOPBACK)).text == "reached\n"
    await lease.sh("python3 -c \"import socket, time; socket.create_server(('', 8000)); time.sleep(60)\" &")
    await reset(lease)
    again = open_lease(lease.emberd, emberd_client)
    assert (await again.sh("readlink /proc/self/ns/net")).text != namespace, "the next room has another"
    await reset(again)


async def test_servers_in_it_are_reached(apart: EmberdProcess, emberd_client: EmberdClient) -> None:
    """A request goes to the room's loopback, not to the pod's."""
    lease = open_lease(apart, emberd_client)
    await lease.write("index.html", b"here")
    server = Command(argv=("python3", "-m", "http.server", "--bind", "127.0.0.1", "8743"))
    await start_process(lease.client, lease.pod, lease.proof, new_id(), server)
    asked = PortRequest(port=8743, path="/index.html")

    async def answers() -> bool:
        try:
            return (await request_port(lease.client, lease.pod, lease.proof, asked)).body == b"here"
        except PortUnreachable:
            return False

    await wait_until(answers)
    await reset(lease)
    again = open_lease(apart, emberd_client)
    with pytest.raises(PortUnreachable):
        await request_port(again.client, again.pod, again.proof, asked)
    await reset(again)


async def test_a_gang_that_cannot_be_joined_is_refused(
    apart: EmberdProcess, room_lease: Lease, emberd_client: EmberdClient
) -> None:
    """The pod has no network for gangs, the lease is over, a field is wrong; each time the room has no device more than
    before."""
    lease = open_lease(apart, emberd_client)
    for one, seat, told in (
        (room_lease, seat_of("g", 0), "no_network: this pod was started without"),
        (dataclasses.replace(lease, proof=lease.proof.__class__("other", 1, "t", 1.0)), seat_of("g", 0), "stale_epoch"),
    ):
        with pytest.raises(PodRefused, match=told):
            await join_network(one.client, one.pod, one.proof, seat)
    for seat in (
        GangSeat("g", "8.8.8.8"),
        GangSeat("g", "127.0.0.1"),
        GangSeat("g", "x"),
        GangSeat("../g", "10.0.0.1"),
    ):
        with pytest.raises(InvalidInput, match="address|gang"):
            await join_network(lease.client, lease.pod, lease.proof, seat)
    assert (await lease.run("python3", "-c", DEVICES)).text == "['lo']\n"
    await reset(lease)
