"""A request's head says whose it is and that it never came before: until that is known, nothing more of it is taken."""

import asyncio
import os
from collections.abc import Iterator

import pytest
from fixtures.emberd import EmberdProcess, Lease, Starter, open_lease, reset
from fixtures.pieces import fetch, of

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.signing import RequestSigner
from emberpool.pool.emberd.connections import MOST
from emberpool.pool.emberd.headers import MOST_BYTES
from emberpool.pool.model.errors import SandboxFileError

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
UPLOAD = "/v1/upload?path=f&kind=file&mode=0644"
FILE = "/v1/file?path=f&mode=0644"


@pytest.fixture(scope="module")
def tcp(emberds: Starter) -> Iterator[EmberdProcess]:
    """An emberd on TCP."""
    started = emberds.start("plain", listen="http://127.0.0.1:0")
    yield started
    started.stop()


async def connect(pod: EmberdProcess) -> Connection:
    host, _, port = pod.address.endpoint.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))


def signer(lease: Lease) -> RequestSigner:
    return lease.client._signer(lease.pod.name)  # pyright: ignore[reportPrivateUsage]


def announced(lease: Lease, data: bytes, boot: str = "") -> bytes:
    """The head of an upload whose hash is told beforehand."""
    proof, boot = lease.proof, boot or lease.pod.boot_id
    headers = signer(lease).headers("PUT", FILE, data, proof.request_id, proof.epoch, proof.tag, boot, "900.000")
    return head(FILE, headers | {"content-length": str(len(data))})


def streamed(lease: Lease, signed: RequestSigner, boot: str = "") -> bytes:
    """The head of an upload in frames."""
    proof, boot = lease.proof, boot or lease.pod.boot_id
    headers = signed.streamed_headers("PUT", UPLOAD, proof.request_id, proof.epoch, proof.tag, boot, "900.000")
    return head(UPLOAD, headers | {"transfer-encoding": "chunked"})


def frames(signed: RequestSigner, data: bytes) -> bytes:
    """The body of one, in a single chunk."""
    body = b""
    for index, (kind, piece) in enumerate(((0, data), (1, b"{}"))):
        body += bytes([kind]) + len(piece).to_bytes(4, "big") + piece + signed.frame_mac("request", index, kind, piece)
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def head(target: str, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"PUT {target} HTTP/1.1\r\nhost: x\r\n{lines}\r\n".encode()


async def status(connection: Connection) -> int:
    """Of the next answer, which must come soon."""
    return int((await asyncio.wait_for(connection[0].readline(), 5)).split()[1])


async def sent(pod: EmberdProcess, data: bytes) -> int:
    """The status of what is answered to it; then the connection ends."""
    connection = await connect(pod)
    connection[1].write(data)
    answered = await status(connection)
    connection[1].write_eof()
    await asyncio.wait_for(connection[0].read(), 5)
    connection[1].close()
    return answered


@pytest.mark.parametrize(
    "lines",
    [
        b"GET /v1/state?" + b"x" * MOST_BYTES,
        b"GET /v1/state HTTP/1.1\r\n" + b"x-a: " + b"y" * MOST_BYTES,
        b"GET /v1/state HTTP/1.1\r\n" + (b"x-a: " + b"y" * 1000 + b"\r\n") * 17,
        b"GET /v1/state HTTP/1.1\r\n" + b"x-a: y\r\n" * 100,
    ],
    ids=["a long line", "a long header", "many bytes", "many headers"],
)
async def test_a_head_is_short(tcp: EmberdProcess, lines: bytes) -> None:
    """431 before its end has come, whoever sends it: 100 headers of 64 KiB would be megabytes for each connection."""
    assert await sent(tcp, lines) == 431


async def test_the_longest_path_fits(tcp: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Each of its bytes escaped; a longer one is none to the kernel, and the caller hears it by its name."""
    lease = open_lease(tcp, emberd_client)
    folder = tcp.scratch / "work"
    name = "ä" * 120
    path = f"{folder}/" + f"{name}/" * 16
    path += "ö" * ((4094 - len(path.encode())) // 2)
    await lease.client.transfers.upload(lease.pod, lease.proof, path, of(b"x"))
    assert await fetch(lease, path) == b"x"
    with pytest.raises(SandboxFileError, match="too long") as caught:
        await lease.write("/" + "ä" * 2048, b"x")
    assert caught.value.path.startswith("/ää")
    await reset(lease)


async def test_a_replayed_head_is_refused_without_its_body(tcp: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Of an upload that was served, in frames or announced: 401 at once, though nothing of the body has come."""
    lease, data = open_lease(tcp, emberd_client), os.urandom(100_000)
    signed = signer(lease)
    for first, body in ((streamed(lease, signed), frames(signed, data)), (announced(lease, data), data)):
        assert await sent(tcp, first + body) == 200
        assert await lease.read("f") == data
        assert await sent(tcp, first) == 401
    await reset(lease)


async def test_a_head_is_good_once_also_while_its_body_is_on_its_way(
    tcp: EmberdProcess, emberd_client: EmberdClient
) -> None:
    """Who has seen it on the wire cannot be served beside who sent it."""
    lease, data = open_lease(tcp, emberd_client), os.urandom(100_000)
    signed = signer(lease)
    for first, body in ((streamed(lease, signed), frames(signed, data)), (announced(lease, data), data)):
        sender = await connect(tcp)
        sender[1].write(first + body[:50_000])
        await sender[1].drain()
        await lease.client.state(lease.pod.name, lease.pod.endpoint)  # a round trip later the head was read
        assert await sent(tcp, first) == 401
        sender[1].write(body[50_000:])
        assert await status(sender) == 200
        sender[1].close()
        assert await lease.read("f") == data
    await reset(lease)


async def test_whoever_means_another_boot_hears_it_before_the_body(
    tcp: EmberdProcess, emberd_client: EmberdClient
) -> None:
    """A worker whose pod was started anew is told so by a signed answer, however much it has to send."""
    lease, boot = open_lease(tcp, emberd_client), "0" * 32
    await lease.sh("true")
    for first in (streamed(lease, signer(lease), boot), announced(lease, b"x" * 100_000, boot)):
        assert await sent(tcp, first) == 409
    lease.emberd.address = lease.pod.model_copy(update={"boot_id": boot})
    try:
        with pytest.raises(Exception, match="other_boot"):
            await lease.client.transfers.upload(lease.pod, lease.proof, "f", of(bytes(8 * 1024 * 1024)))
        with pytest.raises(Exception, match="other_boot"):
            await lease.write("f", bytes(8 * 1024 * 1024))
    finally:
        boot = (await emberd_client.state(lease.pod.name, lease.pod.endpoint)).boot_id
        lease.emberd.address = lease.pod.model_copy(update={"boot_id": boot})
    await reset(lease)


async def test_an_upload_is_served_from_its_head_on(tcp: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Strangers' connections beyond the bound take each other's place, not that of a body on its way."""
    lease, data = open_lease(tcp, emberd_client), os.urandom(100_000)
    sender = await connect(tcp)
    sender[1].write(announced(lease, data) + data[:50_000])
    await sender[1].drain()
    await lease.sh("true")  # a round trip later the head was read
    strangers = [await connect(tcp) for _ in range(MOST + 10)]
    sender[1].write(data[50_000:])
    assert await status(sender) == 200
    for _, writer in (sender, *strangers):
        writer.close()
    assert await lease.read("f") == data
    await reset(lease)
