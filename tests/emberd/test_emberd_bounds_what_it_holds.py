"""Whoever reaches emberd's address, and whatever a lease asks for: its memory, threads and disk have bounds."""

import asyncio
import hashlib
import lzma
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures.emberd import EmberdProcess, Lease, Starter, new_id, open_lease, reset
from fixtures.processes import running
from fixtures.waiting import wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.layers import send_layer
from emberpool.pool.client.processes import await_end, start_process
from emberpool.pool.emberd.connections import MOST
from emberpool.pool.emberd.replays import MOST_SENDERS, WINDOW, Replays
from emberpool.pool.emberd.spill import SpillFolder
from emberpool.pool.emberd.unpack import BadArchive, check
from emberpool.pool.layers.store import Layer
from emberpool.pool.model.command import Command, Outcome
from emberpool.pool.model.errors import EmberpoolError

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def tcp(emberds: Starter) -> Iterator[EmberdProcess]:
    """An emberd on TCP, its process emberd itself."""
    limits = {"memory_mb": 400, "pids": 64, "open_files": 256, "file_mb": 64, "time_limit_s": 60, "disk_mb": 24}
    started = emberds.start("plain", listen="http://127.0.0.1:0", limits=limits)
    yield started
    started.stop()


def status_of(pod: EmberdProcess, field: str) -> int:
    """A number in /proc/PID/status: memory in KiB, or Threads."""
    lines = Path(f"/proc/{pod.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


async def connect(pod: EmberdProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """One connection of somebody without the key."""
    host, _, port = pod.address.endpoint.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))


@pytest.mark.parametrize(
    ("headers", "status"),
    [("", 413), (f"x-ember-body: {'0' * 64}\r\nx-ember-mac: {'0' * 64}\r\n", 401)],
    ids=["without a hash", "with a wrong signature"],
)
async def test_a_body_without_the_key_is_not_read(tcp: EmberdProcess, headers: str, status: int) -> None:
    """The answer comes before the body, and the connection ends: nobody fills memory with what will be refused."""
    before = status_of(tcp, "VmHWM")
    reader, writer = await connect(tcp)
    writer.write(f"PUT /v1/file?path=x HTTP/1.1\r\nhost: x\r\n{headers}content-length: {64 * MIB}\r\n\r\n".encode())
    assert int((await asyncio.wait_for(reader.readline(), 5)).split()[1]) == status
    await asyncio.wait_for(reader.read(), 5)
    writer.close()
    assert status_of(tcp, "VmHWM") - before < 4 * 1024


async def test_what_was_announced_must_come(tcp: EmberdProcess, emberd_client: EmberdClient) -> None:
    """A signature over another body's hash opens the door to no body but that one."""
    lease = open_lease(tcp, emberd_client)
    await lease.sh("true")
    signer = emberd_client._signer(tcp.address.name)  # pyright: ignore[reportPrivateUsage]
    body, other = os.urandom(100_000), os.urandom(100_000)
    proof = lease.proof
    target = "/v1/file?path=x"
    headers = signer.headers(
        "PUT", target, body, proof.request_id, proof.epoch, proof.tag, tcp.address.boot_id, "900.000"
    )
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    reader, writer = await connect(tcp)
    writer.write(f"PUT {target} HTTP/1.1\r\nhost: x\r\n{lines}content-length: 100000\r\n\r\n".encode() + other)
    assert int((await asyncio.wait_for(reader.readline(), 5)).split()[1]) == 401
    writer.close()
    assert not (await lease.sh("ls x")).ok
    await lease.write("x", body)
    assert await lease.read("x") == body
    await reset(lease)


async def test_idle_connections_do_not_shut_workers_out(tcp: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Beyond the bound the oldest that never showed the key makes place; a call that is being served is not touched."""
    lease = open_lease(tcp, emberd_client)
    running = asyncio.create_task(lease.sh("sleep 2; echo kept"))
    idle = [await connect(tcp) for _ in range(MOST + 100)]
    assert (await lease.sh("echo served")).stdout == b"served\n"
    assert await asyncio.wait_for(idle[0][0].read(), 5) == b"", "the oldest is closed"

    async def few_threads() -> bool:
        return status_of(tcp, "Threads:") <= MOST + 20

    await wait_until(few_threads)
    assert (await running).stdout == b"kept\n"
    for _, writer in idle:
        writer.close()
    await reset(lease)


def test_replays_are_known_by_little_memory() -> None:
    """Each number of a sender is taken once, in any order within the window; what is behind it is refused unseen."""
    replays = Replays()
    numbers = [index ^ 63 for index in range(20_032)]  # neighbours overtake each other
    assert not any(replays.why_refused(f"{'a' * 16}{number:016x}") for number in numbers)
    for number in (20_031, 19_900, 20_032 - WINDOW + 100):
        assert replays.why_refused(f"{'a' * 16}{number:016x}") == "nonce: seen before"
    assert "overtaken" in replays.why_refused(f"{'a' * 16}{5:016x}")
    assert replays.why_refused(f"{'a' * 16}{1 << 60:016x}") == "" != replays.why_refused(f"{'a' * 16}{20_031:016x}")
    for sender in range(MOST_SENDERS - 1):
        assert replays.why_refused(f"{sender:016x}{1:016x}") == ""
    assert "senders" in replays.why_refused(f"{'b' * 16}{1:016x}")
    assert "hex" in replays.why_refused("x" * 32)


def test_a_spill_that_is_closed_is_no_fault(tmp_path: Path) -> None:
    """Whoever asks for it as it goes hears that it was dropped; who reads it already reads it to its end."""
    spill = SpillFolder(str(tmp_path), 1000).new()
    assert spill is not None
    spill.add(b"kept")
    reading = spill.read(0)
    spill.close()
    assert reading is not None and b"".join(reading) == b"kept"
    assert spill.read(0) is None


def test_a_compression_that_wants_much_memory_is_refused(tmp_path: Path) -> None:
    """An .lzma header that asks for a dictionary of a gigabyte; what asks for little is read, in one stream or two."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(__file__, "file")
    plain = path.read_bytes()
    size = os.stat(__file__).st_size
    alone = bytearray(lzma.compress(plain, format=lzma.FORMAT_ALONE))
    half = len(plain) // 2
    two = lzma.compress(plain[:half], preset=9) + bytes(8) + lzma.compress(plain[half:])
    for good in (bytes(alone), two, lzma.compress(plain, check=lzma.CHECK_NONE)):
        path.write_bytes(good)
        assert check(str(path)) == size
    alone[1:5] = (1 << 30).to_bytes(4, "little")
    path.write_bytes(alone)
    with pytest.raises(BadArchive, match="[Mm]emory"):
        check(str(path))


def layer_of(folder: Path, size: int) -> Layer:
    """An archive of one file that nothing compresses."""
    (folder / "file").write_bytes(os.urandom(size))
    path = folder / "layer.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(folder / "file", "file")
    return Layer(path, hashlib.sha256(path.read_bytes()).hexdigest())


async def test_layers_count_as_files_of_their_jobs(
    tcp: EmberdProcess, emberd_client: EmberdClient, tmp_path: Path
) -> None:
    """disk_mb holds for both together: a job beside a large layer has less, and layers of one lease have no more."""
    lease = open_lease(tcp, emberd_client)
    assert (await lease.sh("head -c 12M /dev/zero > f; sleep 0.3; rm f")).ok
    await send_layer(lease.client, lease.pod, lease.proof, layer_of(tmp_path, 16 * MIB), "requirements")
    assert (await lease.sh("head -c 12M /dev/zero > f; sleep 5")).outcome is Outcome.DISK_FULL
    assert (await lease.sh("rm -f f; head -c 4M /dev/zero > f; sleep 0.3")).ok
    with pytest.raises(EmberpoolError, match="limits.disk_mb"):
        await send_layer(lease.client, lease.pod, lease.proof, layer_of(tmp_path, 12 * MIB), "requirements")
    await reset(lease)
    following = open_lease(tcp, emberd_client)  # what it does not ask for makes place
    await send_layer(following.client, following.pod, following.proof, layer_of(tmp_path, 12 * MIB), "requirements")
    assert (await following.sh("head -c 8M /dev/zero > f; sleep 0.3; rm f")).ok
    await reset(following)


async def test_disk_that_survivors_fill_is_bounded(tcp: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Also those of a background process whose foreground ended at once, and that nobody waits for."""
    lease = open_lease(tcp, emberd_client)
    assert (await lease.sh("true")).ok
    at = (lease.client, lease.pod, lease.proof, new_id())
    await start_process(*at, Command(shell="{ head -c 40M /dev/zero > f; sleep 4364; } >/dev/null 2>&1 &"))
    end = await await_end(*at, 10)
    assert end is not None and end.survivors

    async def ended() -> bool:
        return not any("sleep 4364" in line for line in running())  # nor the shell that would come to it

    await wait_until(ended, 20)
    await reset(lease)


async def test_the_output_of_many_commands_has_one_bound(tcp: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Together they keep what one emberd can hold: later ones keep less in memory and say so; all count their bytes."""
    lease: Lease = open_lease(tcp, emberd_client)
    await lease.sh("true")
    before, ids = status_of(tcp, "VmRSS"), [new_id() for _ in range(10)]
    for execution in ids:
        body = {"id": execution, "shell": "head -c 8M /dev/zero; exec sleep 30", "output_limit": 8 * MIB}
        await lease.client._json(lease.pod, lease.proof, "/v1/exec", body, 30)  # pyright: ignore[reportPrivateUsage]

    async def printed() -> bool:
        looks = [await lease.client.look(lease.pod, lease.proof, execution) for execution in ids]
        return all(look is not None and look.stdout_bytes == 8 * MIB for look in looks)

    await wait_until(printed)
    assert status_of(tcp, "VmRSS") - before < 64 * 1024, "of 10 times 8 MiB"
    ends = [await lease.client.kill(lease.pod, lease.proof, execution) for execution in ids]
    assert not ends[0].truncated and ends[-1].truncated
    assert {end.stdout_bytes for end in ends} == {8 * MIB}
    assert len(ends[-1].stdout) < MIB
    await reset(lease)
