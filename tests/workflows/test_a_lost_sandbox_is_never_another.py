"""What a sandbox held is there, or its holder is told that it is gone and why: never an empty one of the same name."""

import os
import signal
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from fixtures.processes import state
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.ends import Bereft
from scenarios.flows import Commands, Seen
from temporalio.client import WorkflowHandle

from emberpool.pool.model.command import Outcome
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.profile import Limits, Profile
from emberpool.pool.providers.local.provider import LocalProvider
from emberpool.worker.stack.embedded import EmbeddedStack

SMALL = Profile(name="small", min_warm=1, max_pods=3, limits=Limits(memory_mb=64))
EAT = "python3 -c \"x = b'1' * 300_000_000; import time; time.sleep(20)\""


@pytest_asyncio.fixture
async def small(stack: EmbeddedStack) -> AsyncGenerator[Site]:
    """Pods with little memory, one of them warm."""
    async with running_site(stack, site_settings(stack, SMALL)) as site:
        yield site


async def holding(site: Site) -> tuple[WorkflowHandle[Any, Seen], PodName]:
    """A workflow that holds a pod with a file, and waits."""
    plan = site.plan(commands=("echo kept > a", "cat a", "ls -A; echo ok"))
    handle = await site.client.start_workflow(Bereft.run, plan, id=uuid.uuid4().hex, task_queue=site.queue)
    pod = ""

    async def held() -> bool:
        nonlocal pod
        pod = await handle.query(Bereft.pod)
        return bool(pod)

    await wait_until(held)
    return handle, PodName(pod)


async def kill(site: Site, name: PodName) -> None:
    """SIGKILL the pod's first process, and wait until nothing is left of it: while one of its threads is there, which a
    busy machine takes its time for, it takes connections and requests that nobody will answer."""
    assert site.settings.supervisor_socket is not None
    provider = LocalProvider(SMALL, site.settings.supervisor_socket, site.settings.deployment)
    seen = await provider.look_up(name)
    await provider.aclose()
    assert seen is not None
    os.kill(seen.pid, signal.SIGKILL)

    async def ended() -> bool:
        return state(seen.pid) == "X"

    await wait_until(ended)


async def attempts(handle: WorkflowHandle[Any, Any]) -> list[tuple[int, float]]:
    """Of each activity that failed: its attempts, and the seconds from its schedule to its failure."""
    events = {event.event_id: event for event in (await handle.fetch_history()).events}
    found: list[tuple[int, float]] = []
    for event in events.values():
        if event.HasField("activity_task_failed_event_attributes"):
            about = event.activity_task_failed_event_attributes
            took = event.event_time.ToDatetime() - events[about.scheduled_event_id].event_time.ToDatetime()
            tries = events[about.started_event_id].activity_task_started_event_attributes.attempt
            found.append((tries, took.total_seconds()))
    return found


async def test_the_next_command_after_a_pod_died_is_told_at_once(small: Site) -> None:
    """PID 1 is killed between two commands: the second is SandboxLost with the reason, after one attempt and without
    waiting for a dead address; a new sandbox of the same caller is another pod, at once.

    Seen in UKGovernmentBEIS/inspect_k8s_sandbox#35 (the same name came back empty) and in
    kubernetes-sigs/agent-sandbox#585 (60 s of trying the old address).
    """
    handle, pod = await holding(small)
    await kill(small, pod)
    await handle.signal(Bereft.go_on)
    seen = await handle.result()
    assert seen.text.startswith("SandboxLost: sandbox lost: exited: killed by SIGKILL, executed=no"), seen.text
    assert [result.text for result in seen.results] == ["", "ok\n"]
    ((tries, took_s),) = await attempts(handle)
    assert tries == 1 and took_s < 10, (tries, took_s)

    async def cleared_away() -> bool:
        return await small.index.pod(pod) is None

    await wait_until(cleared_away)


@pytest.mark.parametrize("cleared", ["from the provider", "from the index too"])
async def test_the_reason_outlives_the_pod(small: Site, cleared: str) -> None:
    """Whoever saw the pod end says why; a call that comes later, and finds nothing of it, says the same."""
    handle, pod = await holding(small)
    await small.index.pod_failed(pod, "exited: killed by SIGKILL")
    assert small.settings.supervisor_socket is not None
    provider = LocalProvider(SMALL, small.settings.supervisor_socket, small.settings.deployment)
    await provider.delete(pod)
    await provider.aclose()
    if cleared == "from the index too":
        await small.index.pod_gone(pod, "exited: killed by SIGKILL")
    await handle.signal(Bereft.go_on)
    seen = await handle.result()
    assert seen.text.startswith("SandboxLost: sandbox lost: exited: killed by SIGKILL, executed=no"), seen.text


async def test_an_eviction_is_told_in_the_words_of_its_cause(small: Site) -> None:
    """A pod that its provider gave up is lost with that provider's reason, whole, and nothing is tried again in it: a
    retry would only fill the next pod (decocms/studio#7011)."""
    handle, pod = await holding(small)
    await small.index.pod_failed(pod, "evicted: volume 'tmp' over 1 Gi")
    await handle.signal(Bereft.go_on)
    seen = await handle.result()
    assert seen.text.startswith("SandboxLost: sandbox lost: evicted: volume 'tmp' over 1 Gi, executed=no"), seen.text
    assert [tries for tries, _ in await attempts(handle)] == [1]


async def test_a_command_over_the_memory_limit_takes_nothing_along(small: Site) -> None:
    """It ends as oom_killed; the sandbox is the same one before and after, with its files."""
    plan = small.plan(commands=("echo kept > a", EAT, "cat a"))
    seen = await small.client.execute_workflow(Commands.run, plan, id=uuid.uuid4().hex, task_queue=small.queue)
    assert [result.outcome for result in seen.results] == [Outcome.EXITED, Outcome.OOM_KILLED, Outcome.EXITED]
    assert seen.results[2].stdout == b"kept\n"
