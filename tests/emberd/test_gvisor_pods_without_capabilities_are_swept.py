"""gVisor where the cluster's policy refuses capabilities: no rooms, but jobs of another user, and a sweep; and pods in
gVisor that their node kills. They want `runsc` in RUNSC, on PATH, or in what the test cluster
was built from."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from fixtures.containers import JOBS_USER, runsc_path
from fixtures.emberd import EmberdProcess, Starter, open_lease, recycled
from fixtures.processes import command_line, descendants

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.errors import PodUnreachable
from emberpool.pool.model.recycle import RecycleTier

pytestmark = pytest.mark.skipif(
    runsc_path() is None or os.geteuid() != 0, reason="needs gVisor's runsc (set RUNSC) and root"
)
takes_a_minute = pytest.mark.skipif("RUNSC" not in os.environ, reason="takes up to a minute: set RUNSC")


@pytest.fixture
def pod(emberds: Starter) -> Iterator[EmberdProcess]:
    """A pod whose emberd may make no rooms."""
    started = emberds.start("auto", container="gvisor")
    yield started
    started.stop()


async def test_what_a_job_leaves_is_swept(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Jobs are another user than emberd; files wherever they may write, and processes, are gone after the reset, which
    is attested by a sweep."""
    state = await emberd_client.state(pod.address.name, pod.address.endpoint)
    assert state.tier is RecycleTier.SWEEP
    for _ in range(2):
        lease = open_lease(pod, emberd_client)
        said = await lease.sh("id -u; ls -A . /tmp; ps -e 2>/dev/null | grep -c sleep; cat /state/state.json")
        assert said.text.split()[0] == str(JOBS_USER) and "left" not in said.text
        assert "Permission denied" in said.error_text
        assert (await lease.sh("touch left /tmp/left; (setsid sleep 300 >/dev/null 2>&1 &)")).ok
        attestation = await recycled(pod, emberd_client)
        assert attestation.holds and attestation.tier is RecycleTier.SWEEP, attestation


@pytest.mark.parametrize("victim", ["sandbox", pytest.param("workload", marks=takes_a_minute)])
async def test_a_pod_that_its_node_kills_is_noticed(emberds: Starter, emberd_client: EmberdClient, victim: str) -> None:
    """google/gvisor#11590: the host kills gVisor's own process, or those that carry the workload, as its killer for
    want of memory does; the pod then stands there and never answers. Whoever waits for a command hears of it within
    seconds, or of the latter within about a minute."""
    pod = emberds.start("namespaces", container="gvisor")
    lease = open_lease(pod, emberd_client)
    running = asyncio.ensure_future(lease.sh("sleep 300", time_limit_s=300))
    await lease.sh("true")
    below = {pid: command_line(pid) for pid in descendants(pod.process.pid)}
    sandbox = [pid for pid, said in below.items() if said.endswith(pod.gvisor)]
    workload = [pid for pid, said in below.items() if not said]
    assert len(sandbox) == 1 and workload, below
    began = time.monotonic()
    for pid in sandbox if victim == "sandbox" else workload:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with pytest.raises(PodUnreachable):
        await running
    assert time.monotonic() - began < 75
    pod.stop()
