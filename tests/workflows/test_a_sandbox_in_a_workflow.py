"""What a workflow's author relies on, on real servers and real sandboxes."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from fixtures.processes import runs
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.flows import Adrift, Commands, HandOver, Pause, Seen, Stubborn, TwoAtOnce
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import CancelledError

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.claim import Source
from emberpool.pool.model.command import Outcome
from emberpool.pool.model.errors import EmberpoolError, PodRefused, PodUnreachable
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.state import PodState
from emberpool.worker.stack.embedded import EmbeddedStack


async def scheduled(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """Names of the activities that a workflow scheduled."""
    history = await handle.fetch_history()
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]


def name(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:8]}"


async def test_a_warm_tool_call_is_one_activity(site: Site) -> None:
    """With a warm pod, a run is one activity (claim and run together) and leaving is one more."""

    async def warm() -> bool:
        return (await site.index.counts()).idle_fresh >= 1

    await wait_until(warm)
    plan = site.plan(commands=("echo hello; echo oops >&2; exit 3",))
    handle = await site.client.start_workflow(Commands.run, plan, id=name("warm"), task_queue=site.queue)
    seen = await handle.result()
    assert [(r.outcome, r.exit_code, r.stdout, r.stderr) for r in seen.results] == [
        (Outcome.EXITED, 3, b"hello\n", b"oops\n")
    ]
    assert seen.lease is not None and seen.lease.source is Source.FRESH
    assert seen.recycled == RecycleOutcome.IDLE
    assert await scheduled(handle) == ["emberpool.run_command", "emberpool.recycle_pod"]


async def test_the_next_workflow_of_the_same_caller_gets_the_pod(site: Site) -> None:
    """A workflow that ends and the next of the same caller, milliseconds apart, share the pod, reset in between."""
    first = await site.client.execute_workflow(
        Commands.run, site.plan(commands=("echo mine > left; pwd",)), id=name("a"), task_queue=site.queue
    )
    second = await site.client.execute_workflow(
        Commands.run, site.plan(commands=("ls -A",)), id=name("b"), task_queue=site.queue
    )
    assert first.lease and second.lease
    assert second.lease.pod == first.lease.pod and second.lease.source is Source.REUSE
    assert second.lease.epoch > first.lease.epoch
    assert second.results[0].stdout == b"", "the reset left a file"
    assert second.lease.attestation is not None and second.lease.attestation.holds


async def test_another_caller_never_gets_a_used_pod(site: Site) -> None:
    """Another caller gets a pod that nobody used, however many used ones are idle."""
    first = await site.client.execute_workflow(
        Commands.run, site.plan(commands=("true",), caller="ann"), id=name("ann"), task_queue=site.queue
    )
    second = await site.client.execute_workflow(
        Commands.run, site.plan(commands=("true",), caller="bob"), id=name("bob"), task_queue=site.queue
    )
    assert first.lease and second.lease and first.lease.pod != second.lease.pod
    assert second.lease.source in (Source.FRESH, Source.COLD)


async def test_the_same_name_in_another_tenant_never_gets_a_used_pod(stack: EmbeddedStack) -> None:
    """The tenant comes from the worker's settings: equal caller names of two tenants never share a pod."""
    one = site_settings(stack, tenant="one")
    async with running_site(stack, one) as site:
        first = await site.client.execute_workflow(
            Commands.run, site.plan(commands=("true",)), id=name("one"), task_queue=site.queue
        )
    other = one.model_copy(update={"tenant": "two", "task_queue": one.task_queue + "x"})
    async with running_site(stack, other) as site:
        second = await site.client.execute_workflow(
            Commands.run, site.plan(commands=("true",)), id=name("two"), task_queue=site.queue
        )
    assert first.lease and second.lease and first.lease.pod != second.lease.pod


async def test_a_sandbox_outlives_a_long_thought(site: Site) -> None:
    """A workflow that sleeps five times the heartbeat time-out between write and read finds its file."""
    seen = await site.client.execute_workflow(
        Commands.run,
        site.plan(commands=("echo kept > f", "cat f"), pause_s=5.0, heartbeat_s=1.0),
        id=name("pause"),
        task_queue=site.queue,
    )
    assert seen.results[1].stdout == b"kept\n"


async def test_files_are_written_and_read(site: Site) -> None:
    """A file written through the handle is read back, its parents made."""
    seen = await site.client.execute_workflow(Pause.run, site.plan(pause_s=0.1), id=name("file"), task_queue=site.queue)
    assert seen.text == "kept"


async def test_two_first_calls_take_one_pod(site: Site) -> None:
    """Concurrent first calls of one sandbox share its pod: one lease, one working folder."""
    seen = await site.client.execute_workflow(TwoAtOnce.run, site.plan(), id=name("two"), task_queue=site.queue)
    assert [r.exit_code for r in seen.results] == [0, 0, 0]
    assert seen.results[2].stdout == b"one\n"
    await site.settled()
    pods = [pod for state in PodState if state is not PodState.GONE for pod in await site.index.pods(state, 10)]
    assert sum(pod.uses for pod in pods) == 1


async def test_detach_carries_a_sandbox_over_continue_as_new(site: Site) -> None:
    """The next run of the workflow adopts the sandbox and finds its files; leaving there releases it."""
    seen = await site.client.execute_workflow(HandOver.run, site.plan(), id=name("over"), task_queue=site.queue)
    assert seen.results[0].stdout == b"carried\n"
    await site.settled()


async def test_a_cancelled_adoption_leaves_nothing(site: Site) -> None:
    """Cancelled while it takes a detached sandbox over, a workflow releases it."""
    seen = await site.client.execute_workflow(Adrift.run, site.plan(), id=name("adrift"), task_queue=site.queue)
    assert seen.text == "cancelled"
    await site.settled()


async def test_leaving_is_shielded_from_cancellation(site: Site) -> None:
    """A cancelled workflow recycles its pod before it ends; the command is dead (temporalio/sdk-python#700)."""
    plan = site.plan(commands=("echo started > /work/s; sleep 600",), time_limit_s=900)
    handle = await site.client.start_workflow(Stubborn.run, plan, id=name("cancel"), task_queue=site.queue)

    async def leased() -> bool:
        return bool(await site.index.pods(PodState.LEASED, 10))

    await wait_until(leased)
    await handle.cancel()
    seen: Seen = await handle.result()
    assert seen.recycled in (RecycleOutcome.IDLE, RecycleOutcome.HANDED_OVER)
    await site.settled()


@pytest.mark.parametrize("error", [PodRefused("unknown_execution"), PodUnreachable("p", "silent")], ids=type)
async def test_a_kill_that_fails_loses_no_cancellation(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: EmberpoolError
) -> None:
    """A cancelled workflow ends as cancelled also if its pod does not answer the kill; the release ends the command."""

    async def kill(*_: object) -> None:
        raise error

    monkeypatch.setattr(EmberdClient, "kill", kill)
    plan = site.plan(commands=("sleep 4343",), time_limit_s=900)
    handle = await site.client.start_workflow(Commands.run, plan, id=name("deaf"), task_queue=site.queue)

    async def running() -> bool:
        return runs("sleep 4343")

    await wait_until(running)
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as caught:
        await handle.result()
    assert isinstance(caught.value.cause, CancelledError), caught.value.cause
    await site.settled()
    assert not runs("sleep 4343")


async def test_everything_replays_without_a_cache(stack: EmbeddedStack) -> None:
    """With no workflow cached every task replays from the start, and the same activities are scheduled once."""
    async with running_site(stack, site_settings(stack), cached_workflows=0) as site:
        plan = site.plan(commands=("echo 1", "echo 2", "echo 3"))
        handle = await site.client.start_workflow(Commands.run, plan, id=name("cold"), task_queue=site.queue)
        seen = await handle.result()
        assert [r.stdout for r in seen.results] == [b"1\n", b"2\n", b"3\n"]
        names = [n for n in await scheduled(handle) if n == "emberpool.run_command"]
        assert len(names) in (3, 4)  # one more if the pool was still warming up


async def test_a_closed_holders_sandbox_is_taken_back(site: Site) -> None:
    """After a terminated workflow no lease and no job process is left."""
    plan = site.plan(commands=("sleep 4242",), time_limit_s=9000)
    handle = await site.client.start_workflow(Commands.run, plan, id=name("kill"), task_queue=site.queue)

    async def leased() -> bool:
        return bool(await site.index.pods(PodState.LEASED, 10)) and runs("sleep 4242")

    await wait_until(leased)
    await handle.terminate("test")

    async def nothing_left() -> bool:
        return (await site.index.counts()).leases == 0 and not runs("sleep 4242")

    await wait_until(nothing_left)
    await site.settled()


async def test_a_failed_command_fails_no_workflow(site: Site) -> None:
    """Time-out and signal are results, told apart, with what was printed until then."""
    seen = await site.client.execute_workflow(
        Commands.run,
        site.plan(commands=("echo A; echo B >&2; sleep 30", "kill -SEGV $$"), time_limit_s=1.0),
        id=name("ends"),
        task_queue=site.queue,
    )
    late, dead = seen.results
    assert late.outcome is Outcome.TIMED_OUT and (late.stdout, late.stderr) == (b"A\n", b"B\n")
    assert dead.outcome is Outcome.SIGNALED and dead.signal == 11


async def test_input_that_cannot_work_fails_once(site: Site) -> None:
    """A NUL byte in a command ends the workflow with InvalidInput before a pod is claimed."""
    with pytest.raises(WorkflowFailureError) as caught:
        await site.client.execute_workflow(
            Commands.run,
            site.plan(commands=("echo \0",)),
            id=name("nul"),
            task_queue=site.queue,
            execution_timeout=timedelta(seconds=20),
        )
    cause = caught.value.cause
    assert getattr(cause, "type", "") == "InvalidInput"
    assert (await site.index.counts()).leases == 0
