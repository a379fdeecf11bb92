"""A tool call from a program outside Temporal is idempotent by its id, whatever becomes of worker and caller
(temporalio/sdk-python#1718)."""

import asyncio
import os
import signal
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from fixtures.processes import runs
from fixtures.stack import Site, site_settings
from fixtures.waiting import wait_until
from fixtures.worker import worker_process
from temporalio.client import ActivityFailureError, Client

from emberpool.pool.model.claim import Source
from emberpool.pool.model.errors import NoCapacity, RequestMismatch
from emberpool.pool.model.inputs import checked
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.rollout import TextFile
from emberpool.pool.model.state import PodState
from emberpool.pool.model.tool import RunToolInput
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.stack.embedded import EmbeddedStack

DIGEST = "a9c251ae3c8072279b6b5c0d86b213fd"
"""Of a call without a binding, from before there were any."""


def tools(site: Site, caller: str = "ann") -> ToolClient:
    return ToolClient(site.client, profile="py", caller=caller, task_queue=site.queue)


def new_id() -> str:
    return f"call-{uuid.uuid4().hex[:8]}"


async def test_a_call_binds_runs_and_gives_its_pod_back(site: Site) -> None:
    """One standalone activity binds the files, runs the command and recycles the pod before it answers."""
    given = checked(
        RunToolInput,
        profile="py",
        caller="ann",
        command={"shell": "cat in.txt; exit 3"},
        files=(TextFile(path="in.txt", text="bound"),),
    )
    output = await tools(site).call(new_id(), given)
    assert (output.result.exit_code, output.result.stdout) == (3, b"bound")
    assert output.recycled is RecycleOutcome.IDLE and output.ttfc_s is not None
    counts = await site.index.counts()
    assert counts.leases == 0 and not counts.by_state.get(PodState.LEASED, 0)
    again = await tools(site).call(new_id(), given)
    assert (again.pod, again.source) == (output.pod, Source.REUSE)


async def test_the_same_id_runs_once_while_it_runs_and_after(site: Site) -> None:
    """Calls of one id, together and after the end, all get the first one's result; the command ran once."""
    call_id, client = new_id(), tools(site)
    command = "cat /proc/sys/kernel/random/uuid; sleep 0.5"
    together = await asyncio.gather(*[client.run(call_id, command) for _ in range(3)])
    later = await client.run(call_id, command)
    assert {result.stdout for result in (*together, later)} == {together[0].stdout}
    assert (await client.run(new_id(), command)).stdout != later.stdout


async def test_an_id_with_another_command_is_refused(site: Site) -> None:
    """An id that comes back with another command is RequestMismatch, never the other command's result."""
    call_id = new_id()
    await tools(site).run(call_id, "echo one")
    with pytest.raises(RequestMismatch):
        await tools(site).run(call_id, "echo two")


async def test_callers_do_not_share_ids(site: Site) -> None:
    """Two callers with the same call id each get their own result, from pods of their own."""
    call_id = new_id()
    ann, bob = await asyncio.gather(
        tools(site, "ann").run(call_id, "echo ann"), tools(site, "bob").run(call_id, "echo bob")
    )
    assert (ann.text, bob.text) == ("ann\n", "bob\n")


async def test_more_calls_than_pods_wait_in_line(site: Site) -> None:
    """The activity climbs the ladder by itself: pods are provisioned up to the ceiling, the rest waits."""
    client = tools(site)
    results = await asyncio.gather(*[client.run(new_id(), f"sleep 0.3; echo {n}") for n in range(7)])
    assert [result.text for result in results] == [f"{n}\n" for n in range(7)]
    await site.settled()


async def test_a_call_that_finds_no_pod_leaves_the_line(site: Site) -> None:
    """NoCapacity at the deadline; nothing is left in line."""
    holders = [asyncio.create_task(tools(site, f"h{n}").run(new_id(), "sleep 30")) for n in range(3)]

    async def full() -> bool:
        return len(await site.index.pods(PodState.LEASED, 10)) == 3

    await wait_until(full)
    with pytest.raises(NoCapacity):
        await tools(site, "late").run(new_id(), "true", wait_timeout=timedelta(seconds=1))
    assert (await site.index.counts()).waiting == 0
    for holder in holders:
        holder.cancel()


async def test_a_cancelled_call_is_dead_and_gives_its_pod_back(site: Site) -> None:
    """Cancelling the activity kills the command and recycles the pod."""
    client, call_id = tools(site), new_id()
    running = asyncio.create_task(client.run(call_id, "sleep 4343", time_limit=timedelta(hours=1)))

    async def started() -> bool:
        return runs("sleep 4343")

    await wait_until(started)
    await site.client.get_activity_handle(client.activity_id(call_id)).cancel()
    with pytest.raises(ActivityFailureError):
        await running
    assert not runs("sleep 4343")
    await site.settled()


async def test_a_terminated_call_is_swept(site: Site) -> None:
    """After its activity was terminated no job process and no lease is left: the holder is the standalone activity."""
    client, call_id = tools(site), new_id()
    running = asyncio.create_task(client.run(call_id, "sleep 4344", time_limit=timedelta(hours=1)))

    async def started() -> bool:
        return runs("sleep 4344")

    await wait_until(started)
    await site.client.get_activity_handle(client.activity_id(call_id)).terminate()
    with pytest.raises(ActivityFailureError):
        await running

    async def nothing_left() -> bool:
        return not runs("sleep 4344") and (await site.index.counts()).leases == 0

    await wait_until(nothing_left)
    await site.settled()


async def test_a_killed_worker_changes_nothing(stack: EmbeddedStack, tmp_path: Path) -> None:
    """SIGKILL of the worker in mid-command: another one goes on with it, and the command was started once."""
    settings = site_settings(stack)
    client = await Client.connect(stack.temporal_address, plugins=[EmberpoolPlugin()])
    calls = ToolClient(client, profile="py", caller="ann", task_queue=settings.task_queue)
    command = "date +%N >> starts; sleep 4.345; echo $(wc -l < starts)"
    async with worker_process(settings, stack, tmp_path, "first") as first:
        running = asyncio.create_task(calls.run("killed", command, time_limit=timedelta(minutes=5)))

        async def started() -> bool:
            return runs("sleep 4.345")

        await wait_until(started, 60)
        async with worker_process(settings, stack, tmp_path, "second"):
            os.kill(first.pid, signal.SIGKILL)
            result = await running
            assert (result.exit_code, result.text) == (0, "1\n")
            assert await calls.run("killed", command, time_limit=timedelta(minutes=5)) == result
    await client.get_workflow_handle(f"emberpool-pool/{settings.deployment}/py").terminate("the test is over")


def test_a_call_that_binds_nothing_keeps_its_digest() -> None:
    """Calls that span an upgrade are known; a binding makes another call of it."""
    plain = checked(RunToolInput, profile="py", caller="ann", command={"shell": "true"})
    bound = plain.model_copy(update={"requirements": "attrs"})
    assert plain.digest() == DIGEST != bound.digest()
