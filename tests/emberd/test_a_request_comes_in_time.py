"""A connection has some seconds to show the key, however its bytes fall; whoever has shown it may take his time."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fixtures.emberd import POOL_KEY, EmberdProcess, Starter, new_id
from fixtures.hasty import shorten
from fixtures.tls import make_certificates

from emberpool.pool.client.signing import PodSigner, pod_key

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
FIRST_S = HEAD_S = 1.5
PAUSE_S = 0.2
"""Between two bytes."""
STATE = b"GET /v1/state HTTP/1.1\r\nhost: x\r\n"
NEVER = 200
"""Bytes that take much longer than anybody has."""


@pytest.fixture
def pods(emberds: Starter, tmp_path: Path) -> Iterator[list[EmberdProcess]]:
    """Emberds in a hurry, one behind each kind of socket."""
    started = [hasty(emberds), hasty(emberds, listen="http://127.0.0.1:0")]
    folder = emberds.folder()
    files = {name: folder / name for name in ("cert", "key")}
    for source, file in zip(make_certificates(tmp_path, "DNS:emberd").server, files.values(), strict=True):
        file.write_bytes(source.read_bytes())
        file.chmod(0o644)  # of a test: whoever it is that runs emberd reads it
    tls = {name: str(file) for name, file in files.items()}
    started.append(hasty(emberds, folder, listen="https://127.0.0.1:0", tls=tls))
    yield started
    assert [pod.stop() for pod in started] == [0, 0, 0]


def hasty(emberds: Starter, folder: Path | None = None, **changes: Any) -> EmberdProcess:
    folder = folder or emberds.folder()
    shorten(folder, "connections.py", FIRST_S=FIRST_S)
    shorten(folder, "server.py", HEAD_S=HEAD_S)
    return emberds.start("plain", folder, **changes)


@asynccontextmanager
async def connected(pod: EmberdProcess) -> AsyncGenerator[Connection]:
    scheme, _, where = pod.address.endpoint.partition(":")
    if scheme == "unix":
        reader, writer = await asyncio.open_unix_connection(where)
    else:
        context = ssl.create_default_context() if scheme == "https" else None
        if context is not None:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        host, _, port = where.removeprefix("//").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def signed(pod: EmberdProcess, method: str, target: str, body: bytes = b"") -> bytes:
    """A head with the key, of a claim that is the first to come."""
    signer = PodSigner(pod_key(POOL_KEY, pod.address.name)).request()
    headers = signer.headers(method, target, body, "l", 1, "t" * 32, pod.address.boot_id, "900")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {target} HTTP/1.1\r\nhost: x\r\n{lines}content-length: {len(body)}\r\n\r\n".encode()


async def answered(connection: Connection) -> int:
    """The status of the next answer."""
    head = await asyncio.wait_for(connection[0].readuntil(b"\r\n\r\n"), 5)
    size = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
    await asyncio.wait_for(connection[0].readexactly(int(size.split()[1])), 5)
    return int(head.split()[1])


async def cut_after(connection: Connection, *pieces: bytes) -> float:
    """Seconds until the other side hangs up, while the pieces are sent with a pause after each."""
    began, (reader, writer) = time.monotonic(), connection

    async def drip() -> None:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(PAUSE_S)

    dripping = asyncio.create_task(drip())
    try:
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 4 * FIRST_S)
        return time.monotonic() - began
    except TimeoutError:
        return float("inf")
    finally:
        dripping.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await dripping


async def first(pod: EmberdProcess, *pieces: bytes) -> float:
    async with connected(pod) as connection:
        return await cut_after(connection, *pieces)


async def later(pod: EmberdProcess, *pieces: bytes) -> float:
    """The same after a request with the key, and after a while without any."""
    async with connected(pod) as connection:
        connection[1].write(signed(pod, "GET", "/v1/state"))
        assert await answered(connection) == 200
        await asyncio.sleep(FIRST_S + PAUSE_S)
        connection[1].write(signed(pod, "GET", "/v1/state"))
        assert await answered(connection) == 200, "whoever has shown the key is waited for"
        return await cut_after(connection, *pieces)


async def slow(pod: EmberdProcess) -> int:
    """The status of a request whose head shows the key, and whose body takes longer than anybody else has."""
    body = b'{"id": "' + new_id().encode() + b'", "argv": ["true"], "wait_s": 5}'
    async with connected(pod) as connection:
        connection[1].write(signed(pod, "POST", "/v1/exec", body))
        for part in range(10):
            await asyncio.sleep(1.3 * FIRST_S / 10)
            connection[1].write(body[part * 8 : (part + 1) * 8])
        connection[1].write(body[80:])
        return await answered(connection)


async def drip_at(pod: EmberdProcess) -> None:
    wrong = b"x-ember-body: " + b"0" * 64 + b"\r\ncontent-length: 0\r\n\r\n"
    drips = [bytes([byte]) for byte in b"x" * NEVER]
    *cut, later_cut, status = await asyncio.gather(
        first(pod, b"GET /", *drips),
        first(pod, STATE, *drips),
        first(pod, STATE + b"content-length: 60000\r\n\r\n", *drips),
        first(pod, *[STATE + wrong] * NEVER),
        later(pod, b"GET /", *drips),
        slow(pod),
    )
    assert status == 200
    assert all(seconds < 2 * FIRST_S for seconds in cut), cut
    assert later_cut < 2 * HEAD_S, later_cut
    assert (pod.folder / "log").read_text() == ""


async def test_who_sends_a_byte_now_and_then_is_hung_up_on(pods: list[EmberdProcess]) -> None:
    """In the first request's own line, its headers, a body that nothing vouches for, with one refused request after the
    other, and in a later head; one who has shown the key sends on meanwhile."""
    await asyncio.gather(*[drip_at(pod) for pod in pods])
