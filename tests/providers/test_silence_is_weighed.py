"""Silence of pods whose node is not heard of counts against them only if it lasts, and if it is not this worker's own
trouble. What does not answer are sockets of this test."""

import asyncio
import os
import resource
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager

import pytest
from fixtures.local import new_name
from fixtures.waiting import wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.hearing import Heard, hear
from emberpool.pool.model.ids import PodName, PodUid
from emberpool.pool.providers.kubernetes import silent_nodes
from emberpool.pool.providers.kubernetes.silent_nodes import SilentNodes
from emberpool.pool.providers.kubernetes.view import PORT, PodView

NOBODY = "127.8.8.8"
"""Loopback, where nothing listens."""


@pytest.fixture
async def client() -> AsyncGenerator[EmberdClient]:
    """A worker's."""
    async with EmberdClient(b"k" * 32) as one:
        yield one


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds of waiting become tenths of one."""
    for name, value in (("ANSWER_S", 0.2), ("AGAIN_S", 0.05), ("SILENT_S", 0.2), ("ALONE_S", 0.6), ("AT_ONCE", 4)):
        monkeypatch.setattr(silent_nodes, name, value)


def cut_off(address: str) -> PodView:
    """A pod of a silent node."""
    name = new_name()
    return PodView.model_construct(
        name=name, uid=PodUid(name), node="n", address=address, running=True, deleting=False, cut_off=True, tls=False
    )


@contextmanager
def no_more_files() -> Generator[None]:
    """This process opens none any more, as one that has too many open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first_free = os.open("/dev/null", os.O_RDONLY)
    os.close(first_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_worker_without_files_knows_nothing_of_pods(client: EmberdClient) -> None:
    """That it cannot ask is not that they do not answer."""
    endpoint = f"http://{NOBODY}:{PORT}"
    with no_more_files():
        heard, why = await hear(client, PodName("p"), endpoint, 1.0)
    assert heard is Heard.UNKNOWN and "Too many open files" in why
    assert (await hear(client, PodName("p"), endpoint, 1.0))[0] is Heard.SILENCE


async def test_the_only_pod_is_believed_later(client: EmberdClient) -> None:
    """Where no other can be asked, its silence must last longer."""
    lost: list[PodView] = []
    nodes, began = SilentNodes(client, lost.append, lambda _: True), time.monotonic()
    nodes.look(pod := cut_off(NOBODY))

    async def told() -> bool:
        return bool(lost)

    await wait_until(told, 15)
    assert lost == [pod] and time.monotonic() - began >= silent_nodes.ALONE_S
    await nodes.aclose()


async def test_many_pods_are_asked_a_few_at_a_time(client: EmberdClient) -> None:
    """However many are cut off at once: this worker has a bounded number of sockets open to them."""
    opened, now, most = 0, 0, 0

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened, now, most
        opened, now = opened + 1, now + 1
        most = max(most, now)
        try:
            while await reader.read(65536):
                pass
        except ConnectionError:
            pass
        now -= 1
        writer.close()

    address = f"127.8.{os.getpid() % 250}.7"
    server = await asyncio.start_server(mute, address, PORT)
    nodes = SilentNodes(client, lambda _: None, lambda _: True)
    for _ in range(4 * silent_nodes.AT_ONCE):
        nodes.look(cut_off(address))

    async def all_asked() -> bool:
        return opened >= 4 * silent_nodes.AT_ONCE

    await wait_until(all_asked, 15)
    await nodes.aclose()
    server.close()
    # One that was given up may be counted a moment longer than its client knows of it.
    assert silent_nodes.AT_ONCE <= most <= 2 * silent_nodes.AT_ONCE
