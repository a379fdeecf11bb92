"""A worker speaks with more pods than it keeps connections to: those of calls that are under way are not closed."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from fixtures.emberd import Lease
from fixtures.waiting import wait_until

from emberpool.pool.client import emberd_client, transport
from emberpool.pool.client.emberd_client import ANSWER_S, EmberdClient
from emberpool.pool.client.transport import Transport
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.errors import PodUnreachable
from emberpool.pool.model.ids import ExecutionId, PodName

KEPT = 2


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few are kept, of connections and of signers."""
    monkeypatch.setattr(transport, "SESSIONS_KEPT", KEPT)
    monkeypatch.setattr(emberd_client, "SIGNERS_KEPT", KEPT)


class Doors:
    """Servers on unix sockets that know who is connected to them, and answer when they may."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.connected: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.senders: list[str] = []
        """Of each request."""
        self.shut: dict[str, asyncio.Event] = {}
        """What a door waits for before it answers."""

    @property
    def open(self) -> set[str]:
        """Doors with a connection."""
        return {door for door, number in self.connected.items() if number}

    def at(self, door: str) -> str:
        """Its endpoint."""
        return f"unix:{self._path(door)}"

    @asynccontextmanager
    async def serving(self, names: str) -> AsyncGenerator["Doors"]:
        """One per letter. All who are connected must be gone at the end."""
        servers = [await asyncio.start_unix_server(partial(self._serve, name), self._path(name)) for name in names]
        try:
            yield self
            await until_open(self, "")
        finally:
            for server in servers:
                server.close()

    def _path(self, door: str) -> str:
        return f"{self._folder}/{door}"

    async def _serve(self, door: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected[door] += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                self.senders.append(head.partition("x-ember-nonce: ")[2][:16])
                self.asked[door] += 1
                if door in self.shut:
                    await self._opened(self.shut[door], reader)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        writer.close()
        self.connected[door] -= 1

    async def _opened(self, shut: asyncio.Event, reader: asyncio.StreamReader) -> None:
        """Wait for it, or until whoever asked is gone."""
        waits = [asyncio.ensure_future(shut.wait()), asyncio.ensure_future(reader.read(1))]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[Doors]:
    """From a to f."""
    async with Doors(tmp_path).serving("abcdef") as serving:
        yield serving


async def _ask(to: Transport, doors: Doors, door: str) -> None:
    assert (await to.send("pod", doors.at(door), "GET", "/", {}, b"", 10.0)).status == 200


async def until_open(doors: Doors, names: str) -> None:
    async def so() -> bool:
        return doors.open == set(names)

    await wait_until(so, 10)


async def test_the_longest_unused_is_closed_first(doors: Doors) -> None:
    """Whichever was opened first; and no more are kept than shall be."""
    to = Transport()
    for door, left in (("a", "a"), ("b", "ab"), ("a", "ab"), ("c", "ac"), ("d", "cd")):
        await _ask(to, doors, door)
        await until_open(doors, left)
    assert doors.asked["a"] == 2
    await to.aclose()
    await until_open(doors, "")


async def test_what_is_in_use_is_not_closed(doors: Doors) -> None:
    """Not by any number of others, also if it is more than are kept, nor as one of its two requests ends. Afterwards it
    is kept or closed as any other."""
    to = Transport()
    doors.shut = {door: asyncio.Event() for door in "abc"}
    asking = [asyncio.create_task(_ask(to, doors, door)) for door in "aabc"]

    async def all_asked() -> bool:
        return doors.asked == Counter("aabc")

    await wait_until(all_asked, 10)
    for door in "def":
        await _ask(to, doors, door)
    await until_open(doors, "abc")
    doors.shut["b"].set()
    await asking[2]
    await until_open(doors, "ac")
    doors.shut["c"].set()
    await asking[3]
    asking[0].cancel()
    await asyncio.wait(asking[:1])
    await _ask(to, doors, "d")
    await until_open(doors, "ad")
    doors.shut["a"].set()
    await asking[1]
    await _ask(to, doors, "e")
    await until_open(doors, "ae")
    await to.aclose()


async def test_whoever_is_cut_at_the_end_opens_nothing_anew(doors: Doors) -> None:
    """A request that the close of all cuts leaves no connection behind."""
    to = Transport()
    doors.shut = {"a": asyncio.Event()}
    asking = asyncio.create_task(_ask(to, doors, "a"))
    await until_open(doors, "a")
    await to.aclose()
    with pytest.raises(PodUnreachable):
        await asking
    await until_open(doors, "")
    await to.aclose()


def _more_ways(lease: Lease, folder: Path) -> list[PodAddress]:
    """The pod at other endpoints, as if they were other pods."""
    ways: list[PodAddress] = []
    for number in range(KEPT + 1):
        (folder / f"s{number}").symlink_to(lease.pod.endpoint.removeprefix("unix:"))
        ways.append(lease.pod.model_copy(update={"endpoint": f"unix:{folder}/s{number}"}))
    return ways


async def test_a_long_upload_goes_on(room_lease: Lease, tmp_path: Path) -> None:
    """While the worker asks more other pods than it keeps connections to."""
    ways, others_asked = _more_ways(room_lease, tmp_path), asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        await others_asked.wait()
        yield b"two"

    client = room_lease.client
    uploading = asyncio.create_task(client.transfers.upload(room_lease.pod, room_lease.proof, "f", pieces()))
    for way in ways:
        await client.state(way.name, way.endpoint)
    others_asked.set()
    assert (await uploading).bytes == 6
    assert await room_lease.read("f") == b"onetwo"


async def test_a_call_that_waits_hears_its_answer(room_lease: Lease, tmp_path: Path) -> None:
    """The same of a request that is answered late, as one of a port or a recycle is."""
    ways, client, proof = _more_ways(room_lease, tmp_path), room_lease.client, room_lease.proof
    body = {"id": "waits", "shell": "until [ -e go ]; do sleep 0.02; done", "wait_s": ANSWER_S}
    waiting = asyncio.create_task(client.ask(room_lease.pod, proof, "/v1/exec", body, ANSWER_S))

    async def runs() -> bool:
        return await client.look(ways[0], proof, ExecutionId("waits")) is not None

    await wait_until(runs, 10)
    for way in ways:
        await client.state(way.name, way.endpoint)
    await client.write_file(ways[0], proof, "go", b"")
    assert (await waiting)["exit_code"] == 0


async def test_pods_that_are_not_called_are_forgotten(doors: Doors) -> None:
    """A worker that meets pods for months holds the signers of the last few; whoever is called again is known anew."""

    async def ask(client: EmberdClient, name: str) -> str:
        with pytest.raises(PodUnreachable, match="without a valid signature"):
            await client.state(PodName(name), doors.at("a"))
        return doors.senders[-1]

    async with EmberdClient(b"k" * 32) as client:
        first = await ask(client, "one")
        assert await ask(client, "one") == first != await ask(client, "two")
        assert await ask(client, "one") == first
        await ask(client, "three")
        assert await ask(client, "one") == first, "it was called since"
        await ask(client, "four")
        await ask(client, "five")
        assert await ask(client, "one") != first
