"""emberd behind a certificate of its own: all that works in the clear works there, nobody reads along, and whoever is
not meant hears why at once."""

import asyncio
import os
import shutil
import ssl
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from fixtures.emberd import (
    PYTHON,
    EmberdProcess,
    Lease,
    Starter,
    first_line,
    new_id,
    oldest_pythons,
    open_lease,
    reset,
)
from fixtures.pieces import fetch, put
from fixtures.pods import claimed, released
from fixtures.tls import Certificates, expired, expired_authority, make_certificates

from emberpool.activities.metrics import Metrics, PoolMetrics
from emberpool.activities.pools import Pool
from emberpool.activities.recycle import recycle
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.following import follow
from emberpool.pool.client.processes import start_process
from emberpool.pool.client.trust import Trust, trust_in
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import InvalidInput, PodUnreachable
from emberpool.pool.model.ids import BootId, PodName, PodUid
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.state import PodState

NAME = "emberd"
SECRET = b"nobody-else-reads-this"


@dataclass
class Shown:
    """An emberd's files of certificate and key, and whom they are from."""

    folder: Path
    certificates: Certificates

    @property
    def config(self) -> dict[str, str]:
        return {"cert": str(self.folder / "now/tls.crt"), "key": str(self.folder / "now/tls.key")}

    def show(self, pair: tuple[Path, Path], number: int) -> None:
        """Put another pair in place at once, as the kubelet does with a Secret's: by a link that is moved."""
        new = self.folder / f"v{number}"
        new.mkdir()
        for source, name in zip(pair, ("tls.crt", "tls.key"), strict=True):
            shutil.copy(source, new / name)
            (new / name).chmod(0o644)  # of a test: whoever it is that runs emberd reads them
        link = self.folder / "next"
        link.symlink_to(new.name)
        link.replace(self.folder / "now")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, and what it signed for emberds."""
    return make_certificates(tmp_path_factory.mktemp("authority"), f"DNS:{NAME}")


@pytest.fixture(scope="module")
def trust(certificates: Certificates) -> Trust:
    """In that authority."""
    return trust_in(certificates.authority, NAME)


def start(starter: Starter, certificates: Certificates, python: str = PYTHON) -> tuple[EmberdProcess, Shown]:
    """An emberd on TCP that shows the authority's certificate."""
    folder = starter.folder()
    shown = Shown(folder / "tls", certificates)
    shown.folder.mkdir()
    shown.folder.chmod(0o755)
    shown.show(certificates.server, 0)
    root: dict[str, Any] = {"test_allow_host_root": True} if python != PYTHON else {}
    pod = starter.start("plain", folder, python, listen="https://127.0.0.1:0", tls=shown.config, **root)
    return pod, shown


@pytest.fixture(scope="module")
def pod(emberds: Starter, certificates: Certificates) -> Iterator[EmberdProcess]:
    """One for many tests."""
    started, _ = start(emberds, certificates)
    yield started
    assert started.stop() == 0


@asynccontextmanager
async def overheard(pod: EmberdProcess) -> AsyncGenerator[tuple[str, bytearray]]:
    """An endpoint before a pod's, and all that goes over that wire, both ways."""
    host, _, port = pod.address.endpoint.removeprefix("https://").rpartition(":")
    heard, tasks = bytearray(), set[asyncio.Task[None]]()

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            heard.extend(data)
            sink.write(data)
            await sink.drain()
        sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, int(port))
        for way in ((reader, there[1]), (there[0], writer)):
            tasks.add(asyncio.ensure_future(pump(*way)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("python", [PYTHON, *oldest_pythons()[:1]], ids=lambda path: Path(path).name)
async def test_all_of_it_works_and_nobody_reads_along(
    emberds: Starter, certificates: Certificates, trust: Trust, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    """Commands, stdin, files, streams of both ways and output as it comes; on the oldest Python too. Of what was sent
    and answered nothing is to be found on the wire."""
    if python != PYTHON:
        monkeypatch.setattr("fixtures.emberd._uid", lambda: None)  # the interpreter may lie in a closed home
    started, _ = start(emberds, certificates, python)
    async with overheard(started) as (endpoint, wire):
        started.address = started.address.model_copy(update={"endpoint": endpoint})
        async with EmberdClient(b"k" * 32, trust) as client:
            lease = open_lease(started, client)
            said = await lease.sh("cat; echo $WORD >&2", stdin=SECRET, env={"WORD": SECRET.decode()})
            assert (said.stdout, said.stderr) == (SECRET, SECRET + b"\n")
            data = (SECRET + os.urandom(10)) * 40_000
            await put(lease, "large", data)
            assert await fetch(lease, "large") == data
            assert await lease.read("large", limit=64, offset=0) == data[:64]
            assert await followed(lease) == b"one\ntwo\n"
            await reset(lease)
    assert len(wire) > 2 * len(data)
    assert SECRET not in wire and b"x-ember" not in wire and b"HTTP/1.1" not in wire
    assert started.stop() == 0


async def followed(lease: Lease) -> bytes:
    """What a command printed, read while it runs."""
    command, execution = Command(shell="echo one; sleep 0.3; echo two"), new_id()
    await start_process(lease.client, lease.pod, lease.proof, execution, command, time_limited=True)
    return b"".join([seen.stdout.data async for seen in follow(lease.client, lease.pod, lease.proof, execution)])


async def refused(pod: EmberdProcess, trust: Trust | None, endpoint: str = "") -> PodUnreachable:
    """How the first call to it fails, which must be soon."""
    began = time.monotonic()
    async with EmberdClient(b"k" * 32, trust) as client:
        with pytest.raises(PodUnreachable) as caught:
            await client.state(pod.address.name, endpoint or pod.address.endpoint)
    assert time.monotonic() - began < 5 and caught.value.untrusted
    return caught.value


async def test_another_authority_is_not_trusted(pod: EmberdProcess, tmp_path: Path) -> None:
    """Nothing is sent, and the error names the setting and the Secret."""
    others = make_certificates(tmp_path, f"DNS:{NAME}")
    error = await refused(pod, trust_in(others.authority, NAME))
    assert not error.sent and "tls_ca_file" in str(error) and "kubernetes.tls_secret" in str(error)


async def test_who_does_not_trust_a_pod_leaves_its_reset_to_others(
    pod: EmberdProcess, index: RedisIndex, tmp_path: Path
) -> None:
    """A pod that was not asked has failed nothing: it stays, and the next worker takes it up."""
    others = make_certificates(tmp_path, f"DNS:{NAME}")
    await index.reserve_warm(PodName("p1"), "base")
    await index.pod_ready(PodName("p1"), PodUid("u"), BootId("b"), pod.address.endpoint, "base")
    await claimed(index, "r1")
    await released(index, "r1")
    nothing, metrics = cast(Any, None), PoolMetrics(Metrics(), "p")
    async with EmberdClient(b"k" * 32, trust_in(others.authority, NAME)) as client:
        pool = Pool(Profile(name="p"), index, nothing, client, nothing, "d", "t", b"k" * 32, metrics)
        assert (await recycle(pool, PodName("p1"))).outcome is RecycleOutcome.ALREADY
    assert [one.name for one in await index.pods(PodState.RECYCLING, 10)] == ["p1"]


async def test_another_name_is_not_trusted(pod: EmberdProcess, certificates: Certificates) -> None:
    """A certificate of the same authority for something else: the error names the setting."""
    error = await refused(pod, trust_in(certificates.authority, "other"))
    assert not error.sent and "'emberd'" not in str(error) and "tls_server_name" in str(error)


async def test_an_expired_certificate_is_said_so(
    emberds: Starter, certificates: Certificates, trust: Trust, tmp_path: Path
) -> None:
    """And how it is renewed. That is enough: a running emberd shows the new one to the next connection, and one that
    was made before goes on."""
    pod, shown = start(emberds, certificates)
    async with EmberdClient(b"k" * 32, trust) as before:
        await before.state(pod.address.name, pod.address.endpoint)
        shown.show(expired(certificates, tmp_path), 1)
        error = await refused(pod, trust)
        assert "expired" in str(error) and "renew the Secret" in str(error)
        await before.state(pod.address.name, pod.address.endpoint)
    shown.show(certificates.server, 2)
    async with EmberdClient(b"k" * 32, trust) as client:
        await client.state(pod.address.name, pod.address.endpoint)
        (shown.folder / "v2/tls.key").write_text("half of a key")
        async with EmberdClient(b"k" * 32, trust) as another:
            await another.state(pod.address.name, pod.address.endpoint)
    assert "the old certificate stays" in (pod.folder / "log").read_text()
    assert pod.stop() == 0


async def test_who_speaks_in_the_clear_is_told(pod: EmberdProcess) -> None:
    """A worker that takes it for a plain emberd; a person with curl reads it too."""
    plain = pod.address.endpoint.replace("https", "http")
    error = await refused(pod, None, plain)
    assert "it speaks TLS, and was asked in the clear" in str(error)
    assert error.sent, "an answer without a signature proves nothing"
    error = await refused(pod, None)
    assert not error.sent and "set tls_ca_file" in str(error)


async def test_who_speaks_tls_to_a_plain_one_is_told(
    emberds: Starter, certificates: Certificates, trust: Trust, emberd_client: EmberdClient
) -> None:
    """At once, not when a time limit is over; and a worker whose settings want TLS does not speak without it."""
    plain = emberds.start("plain", listen="http://127.0.0.1:0")
    error = await refused(plain, trust, plain.address.endpoint.replace("http", "https"))
    assert not error.sent and "no TLS with it" in str(error) and "kubernetes.tls_secret" in str(error)
    async with EmberdClient(b"k" * 32, trust) as client:
        await client.state(plain.address.name, plain.address.endpoint)
    error = await refused(plain, trust_in(certificates.authority, NAME, only=True))
    assert not error.sent and "tls_only" in str(error)
    assert plain.stop() == 0


async def test_who_says_nothing_holds_up_nobody(pod: EmberdProcess, trust: Trust) -> None:
    """Fifty connections without a byte and fifty that stop in the middle of their greeting: calls are answered as ever,
    and within a bounded time each of them is closed."""
    host, _, port = pod.address.endpoint.removeprefix("https://").rpartition(":")
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(100)]
    hello = ssl.MemoryBIO()
    greeting = trust.context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname=NAME)
    with pytest.raises(ssl.SSLWantReadError):
        greeting.do_handshake()
    half = hello.read()[:100]
    for _, writer in silent[50:]:
        writer.write(half)
    async with EmberdClient(b"k" * 32, trust) as client:
        began = time.monotonic()
        for _ in range(3):
            await client.state(pod.address.name, pod.address.endpoint)
        assert time.monotonic() - began < 5
    async with asyncio.timeout(30):
        ends = await asyncio.gather(*(reader.read() for reader, _ in silent), return_exceptions=True)
    assert all(end == b"" or isinstance(end, ConnectionError) for end in ends), ends
    for _, writer in silent:
        writer.close()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"listen": "https://127.0.0.1:0"}, "tls: goes with"),
        ({"tls": {"cert": "a", "key": "b"}}, "tls: goes with"),
        ({"listen": "https://127.0.0.1:0", "tls": {"cert": "a"}}, "tls.key: must be"),
        ({"listen": "https://127.0.0.1:0", "tls": {"cert": "/no/tls.crt", "key": "/no/tls.key"}}, "tls: [Errno 2]"),
        ({"listen": "https://127.0.0.1:0", "tls": {"cert": "/etc/passwd", "key": "/etc/passwd"}}, "tls: /etc/passwd"),
    ],
    ids=["no files", "no https", "no key", "not there", "no certificate"],
)
def test_a_wrong_configuration_is_named(emberds: Starter, changes: dict[str, Any], reason: str) -> None:
    """One line says why, and the process ends with status 2."""
    _, _, process = emberds.spawn("plain", **changes)
    said = first_line(process)
    assert said["ready"] is False and said["reason"].startswith(reason), said
    assert process.wait(5) == 2


def test_authorities_that_vouch_for_nobody_are_refused(certificates: Certificates, tmp_path: Path) -> None:
    """A file that is not there, holds no certificate, or only what has expired: the setting is named at the start."""
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    old = expired_authority(certificates, tmp_path)
    for path, problem in ((tmp_path / "none", "no certificates"), (empty, "no certificates"), (old, "has expired")):
        with pytest.raises(InvalidInput, match=problem) as caught:
            trust_in(path, NAME)
        assert caught.value.field == "tls_ca_file"
