"""room.network: a room apart from the pod's network has its loopback, and no way to anything else."""

from fixtures.emberd import ROOT_BINDS, Starter, open_lease, reset

from emberpool.pool.client.emberd_client import EmberdClient

DEVICES = "import socket; print([name for _, name in socket.if_nameindex()])"
OWN_LOOPBACK = (
    "import socket; server = socket.create_server(('127.0.0.1', 0)); "
    "socket.create_connection(server.getsockname(), 2).close(); print('reached')"
)


async def test_a_room_apart_reaches_itself_alone(emberds: Starter, emberd_client: EmberdClient) -> None:
    """Its own loopback works; there is no other device, and what the pod listens on is not there."""
    room: dict[str, object] = {"mode": "namespaces", "root": ROOT_BINDS, "env": {}, "network": "own"}
    lease = open_lease(emberds.start("namespaces", room=room, listen="unix:/run/ember/s"), emberd_client)
    namespace = (await lease.sh("readlink /proc/self/ns/net")).text
    assert (await lease.run("python3", "-c", DEVICES)).text == "['lo']\n"
    assert (await lease.run("python3", "-c", OWN_LOOPBACK)).text == "reached\n"
    await lease.sh("python3 -c \"import socket, time; socket.create_server(('', 8000)); time.sleep(60)\" &")
    await reset(lease)
    again = open_lease(lease.emberd, emberd_client)
    assert (await again.sh("readlink /proc/self/ns/net")).text != namespace, "the next room has another"
    await reset(again)
