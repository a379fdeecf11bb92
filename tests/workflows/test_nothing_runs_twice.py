"""A command that may have run is never run again, and its caller is told so."""

import asyncio
import uuid
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from fixtures.processes import runs
from fixtures.stack import PROFILE, Site, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.flows import Typed

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.state import PodState
from emberpool.worker.stack.embedded import EmbeddedStack


@pytest_asyncio.fixture(params=[0.3, 8.0], ids=["polled", "first answer"])
async def busy(stack: EmbeddedStack, request: pytest.FixtureRequest) -> AsyncGenerator[Site]:
    """A pool whose commands are asked after often, or not before they have ended."""
    async with running_site(stack, site_settings(stack, heartbeat_s=request.param)) as site:
        yield site


async def test_a_first_command_that_its_pod_lost_is_not_repeated_elsewhere(busy: Site) -> None:
    """The pod ends the lease of a sandbox's first command while it runs: SandboxLost, executed unknown."""
    assert PROFILE.max_pods > 1, "there would be another pod to move to"
    plan = busy.plan(commands=("sleep 5151",), time_limit_s=9000)
    handle = await busy.client.start_workflow(Typed.run, plan, id=f"t-{uuid.uuid4().hex}", task_queue=busy.queue)

    async def running() -> bool:
        return runs("sleep 5151")

    await wait_until(running)
    (pod,) = await busy.index.pods(PodState.LEASED, 10)
    address = PodAddress(name=pod.name, uid=pod.uid, boot_id=pod.boot_id, endpoint=pod.endpoint)
    async with EmberdClient(busy.settings.pool_key()) as client:
        await client.fence(address, pod.epoch + 1)

    text = (await asyncio.wait_for(handle.result(), 15)).text
    assert text.startswith("SandboxLost: sandbox lost: fenced, executed=unknown"), text
