"""A stream that is cut, stopped, changed, reordered or replayed is noticed, and leaves nothing half-done."""

import asyncio
import hashlib
import random
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fixtures.emberd import Lease
from fixtures.emberd_proxy import EmberdProxy, Tamper, emberd_proxy
from fixtures.pieces import archive, fetch, of
from fixtures.waiting import wait_until

from emberpool.pool.client import transfers
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.errors import PodUnreachable
from emberpool.pool.model.files import Moved

MIB = 1024 * 1024
DATA = random.Random(7).randbytes(3 * MIB)


@pytest.fixture
async def proxied(room_lease: Lease) -> AsyncIterator[tuple[Lease, EmberdProxy, PodAddress]]:
    """A lease, and its pod's address through a proxy."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        async with emberd_proxy(room_lease.pod, Path(folder)) as (proxy, address):
            yield room_lease, proxy, address


Proxied = tuple[Lease, EmberdProxy, PodAddress]


async def upload(proxied: Proxied, path: str, data: bytes, folder: bool = False) -> Moved:
    lease, _, address = proxied
    return await lease.client.transfers.upload(address, lease.proof, path, of(data), folder=folder)


async def download(proxied: Proxied, path: str) -> bytes:
    lease, _, address = proxied
    async with lease.client.transfers.download(address, lease.proof, path) as incoming:
        return b"".join([piece async for piece in incoming.pieces])


async def nothing_half_done(lease: Lease, *left: str) -> None:
    """Only these names are in /work."""

    async def clean() -> bool:
        return (await lease.sh("ls -A")).text.split() == sorted(left)

    await wait_until(clean, 10)


@pytest.mark.parametrize("after", [400, 1000, 300_000, 3 * MIB])
async def test_an_upload_that_is_cut_leaves_the_old_file(proxied: Proxied, after: int) -> None:
    """Wherever it is cut: the file is the old one, and no temporary one is left."""
    lease, proxy, _ = proxied
    await lease.write("f", b"old")
    proxy.cut_up_after = after
    with pytest.raises(PodUnreachable):
        await upload(proxied, "f", DATA)
    await nothing_half_done(lease, "f")
    assert await lease.read("f") == b"old"


async def test_a_folder_that_is_cut_leaves_nothing(proxied: Proxied) -> None:
    """A tree of many small files and a large one, cut near its end, is not there at all; whole, it is
    (kubernetes-client/python#1866)."""
    lease, proxy, _ = proxied
    tree = archive(*((f"d{number % 20}/f{number}", b"%d" % number) for number in range(2000)), ("large", DATA))
    proxy.cut_up_after = len(tree) - 10_000
    with pytest.raises(PodUnreachable):
        await upload(proxied, "tree", tree, folder=True)
    await nothing_half_done(lease)
    proxy.cut_up_after = None
    assert (await upload(proxied, "tree", tree, folder=True)).entries == 2001
    assert (await lease.sh("find tree -type f | wc -l; cat tree/d7/f1987")).text.split() == ["2001", "1987"]


@pytest.mark.parametrize("after", [1000, 300_000, 3 * MIB])
async def test_a_download_that_is_cut_is_an_error(proxied: Proxied, after: int) -> None:
    """Never a short file that looks whole, also if only the last frame is missing."""
    lease, proxy, _ = proxied
    await lease.write("f", DATA)
    proxy.cut_down_after = after
    with pytest.raises(PodUnreachable):
        await download(proxied, "f")
    proxy.cut_down_after = None
    assert await download(proxied, "f") == DATA


async def test_much_goes_in_small_frames(proxied: Proxied) -> None:
    """28 MiB given as one piece are never one frame on the wire (UKGovernmentBEIS/inspect_k8s_sandbox#198)."""
    lease, proxy, address = proxied
    proxy.record = True
    data = random.Random(8).randbytes(28 * MIB)
    moved = await lease.client.transfers.upload(address, lease.proof, "f", of(data, len(data)))
    assert moved.bytes == len(data)
    told = (await lease.sh("sha256sum < f")).text.split()[0]
    assert told == hashlib.sha256(data).hexdigest()
    sizes = chunk_sizes(bytes(proxy.seen_up))
    assert max(sizes) <= MIB + 64 and sum(sizes) > len(data)


async def test_who_sends_waits_for_who_reads(proxied: Proxied) -> None:
    """Where the other side takes no more, no more is read of the source: a file of any size is never held in memory."""
    _, proxy, _ = proxied
    proxy.hole_up_after = MIB
    taken = 0

    async def source() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += MIB
            yield bytes(MIB)

    lease, _, address = proxied
    sending = asyncio.ensure_future(lease.client.transfers.upload(address, lease.proof, "f", source()))
    quiet = 0

    async def stopped() -> bool:
        nonlocal quiet
        before, quiet = quiet, taken
        return before == taken > MIB

    await wait_until(stopped, 10)
    assert taken <= 8 * MIB
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


def chunk_sizes(wire: bytes) -> list[int]:
    """Sizes of the chunks of the one chunked body that was sent."""
    place = wire.index(b"\r\n\r\n") + 4
    sizes: list[int] = []
    while True:
        end = wire.index(b"\r\n", place)
        sizes.append(int(wire[place:end], 16))
        if not sizes[-1]:
            return sizes
        place = end + 2 + sizes[-1] + 2


async def test_bytes_in_single_pieces_arrive(proxied: Proxied) -> None:
    """However the network splits them."""
    lease, proxy, _ = proxied
    proxy.piece = 7
    await upload(proxied, "f", DATA[:50_000])
    assert await download(proxied, "f") == DATA[:50_000] == await lease.read("f")


async def test_a_black_hole_ends_in_time(proxied: Proxied, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection over which nothing moves any more is given up, in both directions."""
    lease, proxy, _ = proxied
    monkeypatch.setattr(transfers, "STALL_S", 0.5)
    monkeypatch.setattr(transfers, "SETTLE_S", 0.5)
    await lease.write("f", DATA)
    proxy.hole_up_after = 100_000
    with pytest.raises(PodUnreachable):
        await asyncio.wait_for(upload(proxied, "g", DATA * 4), 10)
    proxy.hole_up_after, proxy.hole_down_after = None, 100_000
    with pytest.raises(PodUnreachable):
        await asyncio.wait_for(download(proxied, "f"), 10)
    await proxy.aclose()
    await nothing_half_done(lease, "f")


async def test_a_changed_byte_is_noticed(proxied: Proxied) -> None:
    """In either direction; nothing of the file is shown."""
    lease, proxy, _ = proxied

    def flip(data: bytes) -> bytes:
        return data.replace(b"needle", b"noodle")

    text = b"x" * 300_000 + b"needle" + b"y" * 300_000
    await lease.write("f", text)
    proxy.change_up = flip
    with pytest.raises(PodUnreachable, match="changed, moved or left out"):
        await upload(proxied, "g", text)
    proxy.change_up, proxy.change_down = None, flip
    with pytest.raises(PodUnreachable, match="changed, moved or left out"):
        await download(proxied, "f")
    await nothing_half_done(lease, "f")


async def test_frames_have_their_places(proxied: Proxied) -> None:
    """Two frames of equal length that change places, or one that comes twice, are noticed."""
    lease, proxy, _ = proxied
    first, second = b"a" * 100, b"b" * 100
    size = 5 + 100 + 32

    def swap(data: bytes) -> bytes:
        at, then = data.find(b"\0\0\0\0d" + first), data.find(b"\0\0\0\0d" + second)
        if at < 0 or then < 0:
            return data
        one, two = data[at : at + size], data[then : then + size]
        return data.replace(one, b"\xff" * 9).replace(two, one).replace(b"\xff" * 9, two)

    def twice(data: bytes) -> bytes:
        at, then = data.find(b"\0\0\0\0d" + first), data.find(b"\0\0\0\0d" + second)
        return data if at < 0 or then < 0 else data.replace(data[then : then + size], data[at : at + size])

    for tamper in (swap, twice):
        seen: list[bool] = []

        def change(data: bytes, tamper: Tamper = tamper, seen: list[bool] = seen) -> bytes:
            changed = tamper(data)
            seen.append(changed != data)
            return changed

        async def pieces() -> AsyncIterator[bytes]:
            yield first
            yield second

        proxy.change_up = change
        with pytest.raises(PodUnreachable, match="changed, moved or left out"):
            await lease.client.transfers.upload(proxied[2], lease.proof, "f", pieces())
        assert any(seen), "the frames did not pass in one piece"
        proxy.change_up = None
    await nothing_half_done(lease)


async def test_a_replayed_upload_is_refused(proxied: Proxied) -> None:
    """Every byte of an upload, sent again, changes nothing."""
    lease, proxy, _ = proxied
    proxy.record = True
    await upload(proxied, "f", b"one")
    proxy.record = False
    await lease.write("f", b"two")
    reader, writer = await asyncio.open_unix_connection(lease.pod.endpoint.removeprefix("unix:"))
    writer.write(bytes(proxy.seen_up))
    status = await reader.readline()
    writer.close()
    assert re.match(rb"HTTP/1.1 401 ", status)
    assert await fetch(lease, "f") == b"two"


async def test_a_wrong_key_takes_nothing(room_lease: Lease) -> None:
    """An upload signed with another key is turned away at its first line, and is an error in time."""
    await room_lease.sh("true")
    async with EmberdClient(b"w" * 32) as stranger:
        for size in (10, 8 * MIB):
            with pytest.raises(PodUnreachable):
                uploading = stranger.transfers.upload(room_lease.pod, room_lease.proof, "f", of(bytes(size)))
                await asyncio.wait_for(uploading, 10)
    await nothing_half_done(room_lease)
