"""Where jobs share their pod's network, as in Kubernetes, a job finds emberd's port, and may have what workers sent."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fixtures.emberd import EmberdProcess, Starter, open_lease, recycled
from fixtures.leftovers import only_child, planted

from emberpool.pool.client.emberd_client import EmberdClient

PORT = 8740
FORWARD = """
import fcntl, os, socket, struct, sys, threading
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14x", b"lo", 1))  # up, as it is in a real pod
path, port, seen = sys.argv[1], int(sys.argv[2]), open(sys.argv[3], "ab", buffering=0)
server = socket.socket(socket.AF_UNIX); server.bind(path); os.chmod(path, 0o666); server.listen()
def pump(source, sink, record):
    while data := source.recv(65536):
        if record: seen.write(data)
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)
def accept():
    while True:
        near = server.accept()[0]
        far = socket.create_connection(("127.0.0.1", port))
        for ends in ((near, far, True), (far, near, False)):
            threading.Thread(target=pump, args=ends, daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
print("up", flush=True)
sys.stdin.read()
"""
"""In the pod's network, at a socket that the test reaches: what workers send goes through it and is kept."""
ATTACK = r"""
import re, socket
for family, kind in ((17, 2), (17, 3), (2, 3), (10, 3)):  # to listen on the device takes one of these
    try: socket.socket(family, kind, 0xff if family != 17 else 0x0300)
    except OSError: continue
    raise SystemExit(f"open: socket {family} {kind}")
sockets = [line.split() for line in open("/proc/net/tcp").readlines()[1:]]
ports = {int(line[1].split(":")[1], 16) for line in sockets if line[3] == "0A"}
assert PORT in ports, ports
def ask(request):
    with socket.create_connection(("127.0.0.1", PORT), 10) as connection:
        connection.sendall(request)
        return int(connection.makefile("rb").readline().split()[1])
data, requests = open("seen", "rb").read(), []
while data:
    head, _, data = data.partition(b"\r\n\r\n")
    size = int((re.search(rb"content-length: (\d+)", head, re.I) or [0, b"0"])[1])
    requests.append((head, data[:size])); data = data[size:]
kinds = {head.split()[1].split(b"?")[0] for head, _ in requests}
assert {b"/v1/exec", b"/v1/fence", b"/v1/recycle", b"/v1/file"} <= kinds, kinds
for head, body in requests:
    end = b"\r\n\r\n" + body
    changed = re.sub(rb"(x-ember-nonce: ).{16}", rb"\g<1>" + b"f" * 16, head, flags=re.I)
    later = re.sub(rb"(x-ember-epoch: )\d+", rb"\g<1>99", changed, flags=re.I)
    without = re.sub(rb"\r\nx-ember-mac: \w+", b"", changed, flags=re.I)
    assert len({head, changed, later, without}) == 4, head
    for request in (head, changed, later, without):
        status = ask(request + end)
        # What was signed for a lease that is over, or for an earlier epoch, is told so.
        if status not in ((401, 409) if request is head else (401,)): raise SystemExit(f"open: {status} to {request}")
print(len(requests), "held")
"""
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="entering a pod's network takes root")


@contextmanager
def seen_by_all(pod: EmberdProcess) -> Generator[tuple[EmberdProcess, Path]]:
    """The pod at a socket that passes everything on to its port, and the file that keeps what was sent to it."""
    path, seen = pod.folder / "run" / "p", pod.folder / "seen"
    command = (sys.executable, "-c", FORWARD, str(path), str(PORT), str(seen))
    inside = pod.process.pid if pod.container == "util-linux" else only_child(pod.process.pid)
    with planted(inside, "--net", *command):
        pod.address = pod.address.model_copy(update={"endpoint": f"unix:{path}"})
        yield pod, seen


@pytest.mark.parametrize("container", ["bubblewrap", "util-linux"])
async def test_a_sniffed_request_is_worth_nothing(
    emberds: Starter, emberd_client: EmberdClient, container: str
) -> None:
    """All that workers sent, under an earlier lease and under its own, is sent again by a job: as it was, with another
    nonce, another epoch, no signature. All is refused. It cannot listen on the device itself, and its lease goes on."""
    started = emberds.start("namespaces", container=container, listen=f"http://127.0.0.1:{PORT}")
    with seen_by_all(started) as (pod, seen):
        lease = open_lease(pod, emberd_client)
        assert (await lease.sh("echo secret")).ok
        assert (await recycled(pod, emberd_client)).holds
        lease = open_lease(pod, emberd_client)
        assert (await lease.sh("echo x >> runs")).ok
        await lease.write("f", b"x")
        before = await emberd_client.state(pod.address.name, pod.address.endpoint)
        await lease.write("seen", seen.read_bytes())
        result = await lease.run("python3", "-c", f"PORT = {PORT}{ATTACK}")
        assert result.ok and result.text.endswith(" held\n"), (result.text, result.error_text)
        after = await emberd_client.state(pod.address.name, pod.address.endpoint)
        assert (after.state, after.epoch, after.lease) == (before.state, before.epoch, before.lease)
        assert (await lease.sh("cat runs f")).text == "x\nx"
        assert (await recycled(pod, emberd_client)).holds
    started.stop()
