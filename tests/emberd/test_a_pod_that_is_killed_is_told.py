"""Whoever waits for a command of a pod that its host kills hears of it in seconds, whatever the pod is made of."""

import asyncio
import os
import time

import pytest
from fixtures.containers import end_gvisor, runsc_path
from fixtures.emberd import Starter, open_lease
from fixtures.waiting import wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.errors import EmberpoolError, PodUnreachable

needs_runsc = pytest.mark.skipif(
    runsc_path() is None or os.geteuid() != 0, reason="needs gVisor's runsc (set RUNSC) and root"
)


@pytest.mark.parametrize("container", ["bubblewrap", "util-linux", pytest.param("gvisor", marks=needs_runsc)])
async def test_a_command_of_a_killed_pod_ends(emberds: Starter, emberd_client: EmberdClient, container: str) -> None:
    """google/gvisor#11590: SIGKILL from the host while a command runs; its caller does not wait for the command's time
    limit, and is told that it had begun."""
    lease = open_lease(emberds.start("namespaces", container=container), emberd_client)
    waiting = asyncio.create_task(lease.sh("touch begun; sleep 50"))

    async def begun() -> bool:
        try:
            return await lease.read("begun") == b""
        except EmberpoolError:
            return False

    await wait_until(begun)
    killed = time.monotonic()
    if lease.emberd.gvisor:
        end_gvisor(lease.emberd.folder, lease.emberd.gvisor)
    lease.emberd.process.kill()
    with pytest.raises(PodUnreachable) as told:
        await waiting
    assert told.value.sent and time.monotonic() - killed < 30
    lease.emberd.process.wait(10)
