"""A new claim whose pod fails at first contact moves on to another, inside the activity: its caller sees nothing."""

import socket
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest_asyncio
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.flows import Commands, Seen
from temporalio.api.history.v1 import HistoryEvent

from emberpool.pool.index.contract import PodRecord
from emberpool.pool.model.claim import PodAddress, Source
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.state import PodState
from emberpool.worker.connections import open_pools
from emberpool.worker.stack.embedded import EmbeddedStack
from emberpool.worker.stack.ports import choose_port

PAIR = Profile(name="py", min_warm=2, max_pods=4)
"""Room for those that take a bad pod's place."""


@pytest_asyncio.fixture
async def pair(stack: EmbeddedStack) -> AsyncGenerator[Site]:
    """Two warm pods, and a worker that serves its metrics."""
    port = choose_port("metrics", None, "")
    settings = site_settings(stack, PAIR, metrics_address=f"127.0.0.1:{port}")
    async with running_site(stack, settings) as site:
        await wait_until(lambda: both_warm(site))
        yield site


async def both_warm(site: Site) -> bool:
    """Whether both pods are idle, and nobody has used them."""
    return (await site.index.counts()).idle_fresh == 2


async def first_taken(site: Site) -> PodRecord:
    """The fresh pod that the next claim takes: the newest."""
    (name,) = await site.index.redis.commands.zrevrange(  # pyright: ignore[reportUnknownMemberType]
        f"{site.index.base}fresh", 0, 0
    )
    return next(pod for pod in await site.index.pods(PodState.IDLE, 10) if pod.name == name)


async def measured(site: Site) -> dict[str, float]:
    """The worker's metrics, by name and labels."""
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{site.settings.metrics_address}/metrics") as answer:
            lines = (await answer.text()).splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("emberpool_"))
    return {name: float(value) for name, value in pairs}


async def runs_on_another(site: Site, bad: PodRecord) -> None:
    """One command ends well on the other pod, in one attempt; the bad one is counted once, and goes."""
    handle = await site.client.start_workflow(
        Commands.run, site.plan(commands=("echo ok",)), id=uuid.uuid4().hex, task_queue=site.queue
    )
    seen: Seen = await handle.result()
    assert [result.check().text for result in seen.results] == ["ok\n"]
    assert seen.lease is not None and seen.lease.source is Source.FRESH and seen.lease.pod != bad.name
    events = list((await handle.fetch_history()).events)
    assert _attempts(events) == {1}, "the caller's activity was tried again"
    told = await measured(site)
    assert told['emberpool_first_contact_failures_total{profile="py"}'] == 1
    assert not [name for name in told if name.startswith("emberpool_sandboxes_lost_total")]

    async def gone() -> bool:
        return await site.index.pod(bad.name) is None

    await wait_until(gone)


def _attempts(events: list[HistoryEvent]) -> set[int]:
    found = [event.activity_task_started_event_attributes for event in events]
    return {started.attempt for started in found if started.scheduled_event_id}


async def test_a_pod_that_refuses_the_connection(pair: Site, tmp_path: Path) -> None:
    """Nobody listens at its address: the command runs on the other pod, and the bad one is deleted."""
    bad = await first_taken(pair)
    nobody = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(nobody)  # it does not listen: connections are refused
        await pair.index.redis.commands.hset(f"{pair.index.base}pod:{bad.name}", "endpoint", f"unix:{nobody}")
        await runs_on_another(pair, bad)


async def test_a_pod_whose_emberd_refuses_the_claim(pair: Site) -> None:
    """It was fenced above the claim's epoch, by a word of which the index does not know: likewise."""
    bad = await first_taken(pair)
    async with AsyncExitStack() as opened:
        pool = (await open_pools(pair.settings.model_copy(update={"metrics_address": ""}), opened))[0]
        address = PodAddress(name=bad.name, uid=bad.uid, boot_id=bad.boot_id, endpoint=bad.endpoint)
        await pool.client.fence(address, round((time.time() + 3600) * 1000))
    await runs_on_another(pair, bad)
