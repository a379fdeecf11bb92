"""A worker that dies is replaced by one that finds the command again: it ran once (agentarea/agentarea#320)."""

import asyncio
import os
import signal
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fixtures.processes import runs
from fixtures.stack import Site, site_settings
from fixtures.waiting import wait_until
from fixtures.worker import worker_process
from scenarios.flows import FLOWS, Commands, Plan, Seen
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowHistory
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from emberpool.activities.models import Progress
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.index.connection import connect
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.command import Outcome
from emberpool.pool.model.state import PodState
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.settings import Settings
from emberpool.worker.stack.embedded import EmbeddedStack

PAUSE_S = 0.7
COUNT = f"for i in 1 2 3 4 5 6 7 8; do echo $i; sleep {PAUSE_S}; done"


async def test_a_killed_workers_command_ran_once(stack: EmbeddedStack, tmp_path: Path) -> None:
    """SIGKILL in the middle of a command that counts: a second worker re-attaches, each number comes once, and its
    exit status is its own. Until then the heartbeats tell how long it has run, and the end of its output."""
    settings = site_settings(stack)
    client = await Client.connect(stack.temporal_address, plugins=[EmberpoolPlugin()])
    plan = Plan(
        profile="py",
        task_queue=settings.task_queue,
        commands=(f"date +%N >> starts; {COUNT}; exit 7", "cat starts"),
        heartbeat_s=2.0,
    )
    flows = f"flows-{uuid.uuid4().hex[:8]}"
    async with Worker(client, task_queue=flows, workflows=FLOWS):
        async with worker_process(settings, stack, tmp_path, "first") as first:
            begun = time.monotonic()
            handle = await client.start_workflow(Commands.run, plan, id=f"count-{flows}", task_queue=flows)

            beats: list[Progress] = []

            async def counting() -> bool:
                described = await handle.describe()
                pending = described.raw_description.pending_activities
                told = [p.data for one in pending for p in one.heartbeat_details.payloads if b'"tail":"1' in p.data]
                beats.extend(Progress.model_validate_json(data) for data in told)
                return len({beat.elapsed_s for beat in beats}) > 1

            await wait_until(counting, 60)
            for beat in beats:
                pauses = len(beat.tail.splitlines()) - 1
                assert PAUSE_S * pauses - 0.1 <= beat.elapsed_s < time.monotonic() - begun, beat
            assert beats == sorted(beats, key=lambda beat: beat.elapsed_s)
            async with worker_process(settings, stack, tmp_path, "second"):
                os.kill(first.pid, signal.SIGKILL)
                seen = await handle.result()
    assert seen.results[0].stdout == b"".join(b"%d\n" % i for i in range(1, 9))
    assert (seen.results[0].outcome, seen.results[0].exit_code) == (Outcome.EXITED, 7)
    assert len(seen.results[1].stdout.splitlines()) == 1, "the command was started more than once"
    await client.get_workflow_handle(f"emberpool-pool/{settings.deployment}/py").terminate("the test is over")


@asynccontextmanager
async def running(
    stack: EmbeddedStack, settings: Settings, command: str, **fields: Any
) -> AsyncGenerator[WorkflowHandle[Any, Seen]]:
    """A workflow that runs the command, ends it with status 5, and runs `cat starts`; its workflow tasks are served
    apart from its activities."""
    client = await Client.connect(stack.temporal_address, plugins=[EmberpoolPlugin()])
    commands = (f"echo once >> starts; {command}; echo done; exit 5", "cat starts")
    plan = Plan(profile="py", task_queue=settings.task_queue, commands=commands, **fields)
    flows = f"flows-{uuid.uuid4().hex[:8]}"
    async with Worker(client, task_queue=flows, workflows=FLOWS):
        yield await client.start_workflow(Commands.run, plan, id=f"go-on-{flows}", task_queue=flows)
    await client.get_workflow_handle(f"emberpool-pool/{settings.deployment}/py").terminate("the test is over")


async def until_runs(command: str) -> None:
    """Wait until a process of that command line runs."""

    async def there() -> bool:
        return runs(command)

    await wait_until(there, 60)


async def test_a_result_that_its_worker_never_delivered_is_fetched_by_the_next(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    """The worker hangs, the command ends, the worker dies: another one, elsewhere, takes the end from the pod by the
    execution's id. Nothing in the pod knows where its worker was.

    Seen in inflexa-ai/inflexa#41: the host died after the command's end and before its callback.
    """
    settings = site_settings(stack)
    async with worker_process(settings, stack, tmp_path, "first") as first:
        async with running(stack, settings, "sleep 1.717", heartbeat_s=2.0) as handle:
            await until_runs("sleep 1.717")
            os.kill(first.pid, signal.SIGSTOP)

            async def ended() -> bool:
                return not runs("sleep 1.717")

            await wait_until(ended)
            os.kill(first.pid, signal.SIGKILL)
            async with worker_process(settings, stack, tmp_path, "second"):
                seen = await handle.result()
    assert ends(seen) == [(b"done\n", 5), (b"once\n", 0)]


async def test_a_lease_that_was_lost_with_its_worker_is_told(stack: EmbeddedStack, tmp_path: Path) -> None:
    """SIGKILL of the worker, and its command's lease ends before another one takes over: SandboxLost with executed
    unknown, and nothing is run again."""
    settings = site_settings(stack)
    async with worker_process(settings, stack, tmp_path, "first") as first:
        async with running(stack, settings, "sleep 4747", heartbeat_s=2.0, time_limit_s=5000.0) as handle:
            await until_runs("sleep 4747")
            os.kill(first.pid, signal.SIGKILL)
            await fence(settings)
            async with worker_process(settings, stack, tmp_path, "second"):
                with pytest.raises(WorkflowFailureError) as raised:
                    await handle.result()
            tries = attempts_in(await handle.fetch_history())
    lost = raised.value.cause
    assert isinstance(lost, ApplicationError) and lost.type == "SandboxLost", lost
    assert "executed=unknown" in lost.message and max(tries) == 2, (lost, tries)
    assert not runs("sleep 4747")


async def fence(settings: Settings) -> None:
    """End the lease of the only pod that is held."""
    redis = await connect(settings.redis_url)
    index = RedisIndex(redis, settings.deployment, "py")
    try:
        (pod,) = await index.pods(PodState.LEASED, 10)
    finally:
        await index.aclose()
        await redis.aclose()
    address = PodAddress(name=pod.name, uid=pod.uid, boot_id=pod.boot_id, endpoint=pod.endpoint)
    async with EmberdClient(settings.pool_key()) as emberd:
        await emberd.fence(address, pod.epoch + 1)


@pytest.mark.parametrize(("grace_s", "attempts"), [(0.3, 2), (60.0, 1)], ids=["handed over", "finished"])
async def test_a_worker_that_is_told_to_stop_finishes_or_hands_over(
    stack: EmbeddedStack, tmp_path: Path, grace_s: float, attempts: int
) -> None:
    """SIGTERM in mid-command: within the grace the command's end is still delivered by the same attempt; past it the
    next worker joins the same command. Either way the worker ends with status 0 and the command ran once.

    Seen in temporalio/sdk-python#367: a grace was set, and SIGTERM failed the activity all the same.
    """
    settings = site_settings(stack, graceful_shutdown_s=grace_s)
    number = f"sleep 3.{round(grace_s * 10)}7"
    async with worker_process(settings, stack, tmp_path, "first") as first:
        async with running(stack, settings, number, heartbeat_s=10.0) as handle:
            await until_runs(number)
            async with worker_process(settings, stack, tmp_path, "second"):
                os.kill(first.pid, signal.SIGTERM)
                seen = await handle.result()
                assert await asyncio.wait_for(first.wait(), 20) == 0
            history = await handle.fetch_history()
    assert ends(seen) == [(b"done\n", 5), (b"once\n", 0)]
    tries = attempts_in(history)
    assert max(tries) == attempts, tries


def ends(seen: Seen) -> list[tuple[bytes, int | None]]:
    """What each command printed, and its exit status."""
    return [(result.stdout, result.exit_code) for result in seen.results]


def attempts_in(history: WorkflowHistory) -> list[int]:
    """At which attempt each activity that ended was."""
    return [
        event.activity_task_started_event_attributes.attempt
        for event in history.events
        if event.HasField("activity_task_started_event_attributes")
    ]


@activity.defn(name="tests.block_the_loop")
async def block_the_loop(seconds: float) -> None:
    """What no activity may do: it decodes, or computes, on the worker's event loop."""
    time.sleep(seconds)  # noqa: ASYNC251 - that is the fault


async def test_a_blocked_event_loop_starts_no_second_command(site: Site) -> None:
    """Another activity holds the worker's event loop for longer than the heartbeat time-out: the server begins a second
    attempt, and that one finds the first one's command by its id (PostHog/posthog#83080)."""
    commands = ("echo once >> starts; sleep 3.61; echo done; exit 5", "cat starts")
    plan = site.plan(commands=commands, heartbeat_s=1.0)
    handle = await site.client.start_workflow(
        Commands.run, plan, id=f"blocked-{uuid.uuid4().hex[:8]}", task_queue=site.queue
    )
    await until_runs("sleep 3.61")
    queue = f"rude-{uuid.uuid4().hex[:8]}"
    async with Worker(site.client, task_queue=queue, activities=[block_the_loop]):
        await site.client.execute_activity(
            block_the_loop, 2.5, id=queue, task_queue=queue, start_to_close_timeout=timedelta(seconds=30)
        )
    seen = await handle.result()
    assert ends(seen) == [(b"done\n", 5), (b"once\n", 0)]
    history = await handle.fetch_history()
    tries = attempts_in(history)
    assert max(tries) > 1, "the loop was not blocked for long enough"
