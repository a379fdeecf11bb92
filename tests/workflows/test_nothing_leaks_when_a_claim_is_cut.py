"""A claim that is cut short at any moment leaves no lease, no place in line and no pod behind
(PrimeIntellect-ai/verifiers#2406)."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.flows import Commands
from temporalio.client import WorkflowFailureError
from temporalio.worker import Worker

from emberpool.pool.client.emberd_client import EmberdClient, LeaseProof
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import PodRefused
from emberpool.pool.model.ids import ExecutionId, RequestId, Tag
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.state import PodState
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.stack.embedded import EmbeddedStack
from emberpool.workflows.tool_call import ToolCall, ToolCallInput

ONE = Profile(name="one", min_warm=0, max_pods=1)


@pytest_asyncio.fixture
async def one(stack: EmbeddedStack) -> AsyncIterator[Site]:
    """A pool of at most one pod, none of them warm."""
    async with running_site(stack, site_settings(stack, ONE)) as site:
        yield site


def name() -> str:
    return f"cut-{uuid.uuid4().hex[:8]}"


async def leased(site: Site) -> bool:
    return bool(await site.index.pods(PodState.LEASED, 1))


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.1, 0.2, 0.4, 0.8])
async def test_a_first_call_cancelled_in_mid_claim_leaks_nothing(one: Site, delay_s: float) -> None:
    """Whether the pod is asked for, starts, or is just leased: afterwards the next caller gets one."""
    plan = one.plan(commands=("sleep 60",), caller="cut")
    handle = await one.client.start_workflow(Commands.run, plan, id=name(), task_queue=one.queue)
    await asyncio.sleep(delay_s)  # the moment of the cut is what varies
    await handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    await one.settled()
    assert (await one.index.counts()).waiting == 0
    seen = await one.client.execute_workflow(
        Commands.run, one.plan(commands=("echo next",), caller="next"), id=name(), task_queue=one.queue
    )
    assert seen.results[0].stdout == b"next\n"


async def test_a_waiter_that_is_cancelled_leaves_the_line(one: Site) -> None:
    """A workflow cancelled while it stands in line is out of it before it ends."""
    holder = await one.client.start_workflow(
        Commands.run, one.plan(commands=("sleep 60",), caller="holder"), id=name(), task_queue=one.queue
    )
    await wait_until(lambda: leased(one))
    waiter = await one.client.start_workflow(
        Commands.run, one.plan(commands=("true",), caller="waiter"), id=name(), task_queue=one.queue
    )

    async def in_line() -> bool:
        return (await one.index.counts()).waiting == 1

    await wait_until(in_line)
    await waiter.cancel()
    with pytest.raises(WorkflowFailureError):
        await waiter.result()
    assert (await one.index.counts()).waiting == 0
    await holder.cancel()


async def test_a_late_call_of_an_old_lease_is_refused_in_the_pod(one: Site) -> None:
    """emberd judges by itself: after the reset the old epoch runs nothing, whoever sends it."""
    seen = await one.client.execute_workflow(
        Commands.run, one.plan(commands=("true",)), id=name(), task_queue=one.queue
    )
    await one.settled()
    assert seen.lease is not None
    pod = await one.index.pod(seen.lease.pod)
    assert pod is not None and pod.state is PodState.IDLE and pod.epoch > seen.lease.epoch
    address = PodAddress(name=pod.name, uid=pod.uid, boot_id=pod.boot_id, endpoint=pod.endpoint)
    proof = LeaseProof(RequestId("old"), seen.lease.epoch, Tag(pod.tag), 60.0)
    async with EmberdClient(one.settings.pool_key()) as client:
        with pytest.raises(PodRefused) as refused:
            await client.run(address, proof, ExecutionId("late"), Command(argv=("true",)), poll_s=1.0)
    assert refused.value.word == "stale_epoch"


async def test_registering_the_plugin_twice_is_harmless(stack: EmbeddedStack, one: Site) -> None:
    """On the client and on the worker again: one set of activities, one set of connections."""
    plugin = EmberpoolPlugin(one.settings)
    queue = name()
    with pytest.warns(UserWarning, match="plugin"):
        worker = Worker(one.client, task_queue=queue, plugins=[plugin])
    async with worker:
        call = ToolCallInput(profile="one", caller="twice", command=Command(shell="echo twice"), task_queue=one.queue)
        result = await one.client.execute_workflow(ToolCall.run, call, id=name(), task_queue=queue)
    assert result.stdout == b"twice\n"
