"""What means to fill emberd's memory, to keep it busy or to outlive its lease comes to nothing."""

import asyncio
import bz2
import gzip
import io
import lzma
import os
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures.emberd import EmberdProcess, Lease, Starter, new_id, open_lease, reset
from fixtures.pieces import of
from fixtures.waiting import wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.layers import send_layer
from emberpool.pool.client.ports import request_port
from emberpool.pool.client.processes import start_process
from emberpool.pool.emberd.frames import ChunkedBody
from emberpool.pool.emberd.refusal import Refused
from emberpool.pool.emberd.unpack import BadArchive, check
from emberpool.pool.layers.store import Layer, sha256_of
from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import InvalidInput, PodRefused, PodUnreachable, PortUnreachable, SandboxFileError
from emberpool.pool.model.ids import ExecutionId
from emberpool.pool.model.port import PortRequest

MIB = 1024 * 1024


def header(kind: bytes, size: int = 0, name: str = "f") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def pax(**fields: str) -> bytes:
    """An extended header of the next entry."""
    lines = b""
    for name, value in fields.items():
        rest = f" {name.replace('_', '.')}={value}\n".encode()
        size = next(size for size in range(len(rest), len(rest) + 9) if size == len(rest) + len(str(size)))
        lines += str(size).encode() + rest
    return header(b"x", len(lines)) + lines + bytes(-len(lines) % 512)


SPARSE_MAP = header(b"0", 200 * MIB) + b"99999999\n" + b"0\n" * (100 * MIB)
BOMBS = {
    "extended header": lambda: header(b"x", 200 * MIB) + bytes(200 * MIB),
    "long name": lambda: header(b"L", 200 * MIB) + b"a" * (200 * MIB),
    "sparse map": lambda: pax(**{"GNU.sparse_major": "1", "GNU.sparse_minor": "0"}) + SPARSE_MAP,
    "global headers": lambda: (header(b"g", 512) + bytes(512)) * 100_000,
}


REFUSED = "headers in front of an entry|cannot be read as tar"


def packed(folder: Path, data: bytes) -> Layer:
    """The archive, some hundred times smaller."""
    path = folder / "bomb.tar.gz"
    path.write_bytes(gzip.compress(data, 1))
    return Layer(path, sha256_of(path))


def memory_mb(pod: EmberdProcess, field: str = "VmHWM") -> int:
    """The most memory that emberd ever had; with VmRSS what it has now."""
    path = Path(f"/proc/{pod.process.pid}")
    lines = (path / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) // 1024


@pytest.fixture(scope="module")
def plain_pod(emberds: Starter) -> EmberdProcess:
    """A pod whose process is emberd itself."""
    return emberds.start("plain")


@pytest.mark.parametrize("bomb", ["extended header", "long name", "sparse map", "global headers"])
async def test_a_small_archive_does_not_fill_memory(
    plain_pod: EmberdProcess, emberd_client: EmberdClient, tmp_path: Path, bomb: str
) -> None:
    """What tarfile would read into memory in front of an entry is refused, in the pod and before that on the worker."""
    layer = packed(tmp_path, BOMBS[bomb]())
    assert layer.path.stat().st_size < 8 * MIB
    with pytest.raises(BadArchive, match=REFUSED):
        check(str(layer.path))
    lease, before = open_lease(plain_pod, emberd_client), memory_mb(plain_pod)
    with pytest.raises(InvalidInput, match=REFUSED):
        await send_layer(lease.client, lease.pod, lease.proof, layer, "bundle.url")
    assert memory_mb(plain_pod) - before < 40
    await reset(lease)


def test_a_zip_of_too_many_entries_is_refused_unread(tmp_path: Path) -> None:
    """zipfile makes an object of each before the first is judged."""
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a", "")
    whole = path.read_bytes()
    at = whole.index(b"PK\1\2")
    entry = whole[at : whole.index(b"PK\5\6")]
    many = entry * 200_000
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, len(many), at, 0)
    path.write_bytes(whole[:at] + many + end)
    with pytest.raises(BadArchive, match="over 100000 entries"):
        check(str(path))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_damaged_compression_is_a_bad_archive(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    """Cut or changed, it is refused as what it is; whole, it is read."""
    data = compress(header(tarfile.REGTYPE, 100_000) + os.urandom(100_000) + bytes(-100_000 % 512 + 1024))
    path = tmp_path / "a"
    path.write_bytes(data)
    assert check(str(path)) == 100_000
    for bad in (data[:50_000], data[:40_000] + b"\xff" * 1000 + data[41_000:]):
        path.write_bytes(bad)
        with pytest.raises(BadArchive):
            check(str(path))


async def test_the_end_of_a_lease_does_not_wait_for_an_archive(
    plain_pod: EmberdProcess, emberd_client: EmberdClient, tmp_path: Path
) -> None:
    """Unpacking stops at the fence, which kills the jobs at once; nothing of the layer is left."""
    lease = open_lease(plain_pod, emberd_client)
    layer = packed(tmp_path, header(tarfile.REGTYPE) * 300_000)
    sending = asyncio.create_task(send_layer(lease.client, lease.pod, lease.proof, layer, "bundle.url"))
    parts = plain_pod.scratch / "layers" / "parts"

    async def is_unpacking() -> bool:
        return (parts / f"{layer.sha256}.d").exists()

    await wait_until(is_unpacking)
    assert (await asyncio.wait_for(lease.sh("echo on"), 10)).text == "on\n"
    began = time.monotonic()
    await reset(lease)
    assert time.monotonic() - began < 2
    with pytest.raises((PodRefused, SandboxFileError, PodUnreachable)):
        await sending
    assert not list(parts.iterdir()) and not list((parts.parent / "ready").iterdir())


@pytest.mark.parametrize("size", [b"-1", b"-5", b"+5", b"0x5", b"1_0", b"", b"fffffffff"])
def test_a_chunk_has_a_size_in_hex_only(size: bytes) -> None:
    """A read of -1 bytes would go on to the end of the connection, without any limit."""
    with pytest.raises(Refused, match="chunks"):
        ChunkedBody(io.BytesIO(size + b"\r\nabcdefgh")).exactly(5)


async def test_ended_commands_keep_no_input(plain_pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Stdin and environment of a command go when it has them, not when the lease ends."""
    lease = open_lease(plain_pod, emberd_client)
    for _ in range(5):
        await lease.run("wc", "-c", stdin=bytes(MIB))
    before = memory_mb(plain_pod, "VmRSS")
    for _ in range(50):
        assert (await lease.run("wc", "-c", stdin=bytes(MIB))).text.strip() == str(MIB)
    assert memory_mb(plain_pod, "VmRSS") - before < 20
    await reset(lease)


async def test_output_is_not_read_past_its_lease(plain_pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """A reader that is slow loses the rest when the lease ends, though emberd holds the file."""
    lease = open_lease(plain_pod, emberd_client)
    result = await lease.sh("head -c 30000000 /dev/zero", output_limit=0)
    execution = ExecutionId(result.execution_id)
    opening = lease.client.transfers.output(lease.pod, lease.proof, execution, "stdout", 0)
    got = 0
    with pytest.raises(PodRefused):
        async with opening as incoming:
            got += len(await anext(aiter(incoming.pieces)))
            await reset(lease)
            async for piece in incoming.pieces:
                got += len(piece)
    assert got < 30_000_000


DRIPPING = """
import socket, time
server = socket.create_server(("127.0.0.1", 8743))
while True:
    connection, _ = server.accept()
    told = connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nconnection: close\\r\\n\\r\\n")
    if b"/told" in told:
        connection.sendall(told)
    try:
        while b"/drip" in told:
            connection.sendall(b".")
            time.sleep(0.05)
    except OSError:
        pass
    connection.close()
"""


async def test_a_server_of_a_job_holds_a_call_no_longer_than_it_may(lease: Lease) -> None:
    """A byte now and then does not move the time limit on. Headers pass as they are, and none for the connection."""
    await lease.write("drip.py", DRIPPING.encode())
    await start_process(lease.client, lease.pod, lease.proof, new_id(), Command(argv=("python3", "drip.py")))

    async def ask(path: str, *headers: tuple[str, str]) -> str:
        request = PortRequest(port=8743, path=path, headers=headers, time_limit_s=0.6)
        return (await request_port(lease.client, lease.pod, lease.proof, request)).body.decode()

    async def answers() -> bool:
        return bool(await ask("/told"))

    await wait_until(answers)
    told = await ask("/told", ("x-a", "1"), ("x-a", "2"), ("Transfer-Encoding", "chunked"))
    assert "x-a: 1\r\nx-a: 2\r\n" in told and "chunked" not in told
    for name, value in (("transfer-encoding ", "chunked"), ("a b", "1"), ("x", "1\r\ny: 2"), ("x", "\N{SNOWMAN}")):
        with pytest.raises(InvalidInput, match="headers"):
            await ask("/told", (name, value))
    began = time.monotonic()
    with pytest.raises(PortUnreachable):
        await ask("/drip")
    assert time.monotonic() - began < 5


async def test_calls_leave_no_descriptors_open(plain_pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """After many calls of every kind emberd has as many open files as before."""
    lease = open_lease(plain_pod, emberd_client)

    def count() -> int:
        return len(os.listdir(f"/proc/{plain_pod.process.pid}/fd"))

    async def each() -> None:
        long = await lease.sh("seq 1 3000", output_limit=100, stdin=b"x")
        opening = lease.client.transfers.output(lease.pod, lease.proof, ExecutionId(long.execution_id), "stdout", 0)
        async with opening as incoming:
            await anext(aiter(incoming.pieces))
        await lease.write("f", b"x")
        await lease.read("f")
        await lease.client.transfers.upload(lease.pod, lease.proof, "d/g", of(b"y" * 1000), folder=False, mode=0o644)
        async with lease.client.transfers.download(lease.pod, lease.proof, "d") as folder:
            await anext(aiter(folder.pieces))
        with pytest.raises(PortUnreachable):
            await request_port(lease.client, lease.pod, lease.proof, PortRequest(port=8744))

    await each()
    before = count()
    for _ in range(25):
        await each()
    await reset(lease)  # with the spills, which stay open until then

    async def as_before() -> bool:
        return count() <= before

    await wait_until(as_before)
