"""A pod that hangs costs its own caller, and nobody else."""

import os
import signal
import uuid
from typing import Any

from fixtures.processes import runs
from fixtures.stack import Site
from fixtures.waiting import wait_until
from scenarios.flows import Commands
from temporalio.client import WorkflowHandle

from emberpool.pool.model.ids import PodName
from emberpool.pool.model.state import PodState
from emberpool.pool.providers.local.provider import LocalProvider


async def held(site: Site, command: str, caller: str) -> tuple[WorkflowHandle[Any, Any], PodName]:
    """A workflow that thinks while a process of it runs, and its pod."""
    before = {pod.name for pod in await site.index.pods(PodState.LEASED, 10)}
    plan = site.plan(commands=(f"{command} >/dev/null 2>&1 &", "true"), caller=caller, pause_s=600)
    handle = await site.client.start_workflow(Commands.run, plan, id=uuid.uuid4().hex, task_queue=site.queue)

    async def running() -> bool:
        return runs(command)

    await wait_until(running)
    (pod,) = [one.name for one in await site.index.pods(PodState.LEASED, 10) if one.name not in before]
    return handle, pod


async def test_a_frozen_pod_does_not_stop_the_tending(site: Site) -> None:
    """While the recycle of a frozen pod waits for it, closed holders of other pods are swept as soon as ever."""
    profile, socket = site.settings.all_profiles()[0], site.settings.supervisor_socket
    assert socket is not None
    frozen, frozen_pod = await held(site, "sleep 7171", "one")
    other, _ = await held(site, "sleep 7272", "two")
    provider = LocalProvider(profile, socket, site.settings.deployment)
    seen = await provider.look_up(frozen_pod)
    assert seen is not None
    os.kill(seen.pid, signal.SIGSTOP)
    try:
        await frozen.terminate("test")

        async def recycling() -> bool:
            return bool(await site.index.pods(PodState.RECYCLING, 1))

        await wait_until(recycling)
        await other.terminate("test")

        async def swept() -> bool:
            return not runs("sleep 7272")

        await wait_until(swept, 15)
    finally:
        await provider.delete(frozen_pod)
        await provider.aclose()
