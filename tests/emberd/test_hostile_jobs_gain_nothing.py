"""Whatever a job tries, its pod serves on, and the next job of the same caller finds a room as new as the first one.

In pods of every kind that one machine can make; gVisor's want `runsc` in RUNSC, on PATH, or the test cluster's.
"""

import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import pytest
from fixtures.attacks import ATTACKED, attack, look, plant
from fixtures.containers import runsc_path
from fixtures.emberd import EmberdProcess, Lease, Starter, open_lease
from fixtures.hostile_jobs import JOBS, Job

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.recycle import RecycleTier

needs_runsc = pytest.mark.skipif(
    runsc_path() is None or os.geteuid() != 0, reason="needs gVisor's runsc (set RUNSC) and root"
)
CONTAINERS = ["bubblewrap", "util-linux", pytest.param("gvisor", marks=needs_runsc)]


@pytest.fixture(scope="module", params=CONTAINERS)
def pod(request: pytest.FixtureRequest, emberds: Starter) -> Iterator[EmberdProcess]:
    """One pod of each kind for all jobs in turn: they are each other's successors."""
    started = emberds.start("namespaces", container=str(request.param), limits=ATTACKED)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def seen() -> dict[str, str]:
    """What the first job of all saw, by kind of pod."""
    return {}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
async def test_the_next_job_finds_a_new_room(
    pod: EmberdProcess, emberd_client: EmberdClient, seen: dict[str, str], job: Job
) -> None:
    """The job ends as it should, emberd answers, the reset is attested, and nothing that can be seen has changed.

    Among them NVIDIA/NemoClaw#809 (fork bomb, 100,000 threads), google/gvisor#11836 (`kill -9 1`, `kill -9 -1`),
    omnigent-ai/omnigent#6744 and decocms/studio#7011 (a job that fills the disk).
    """
    if pod.container in job.not_in:
        pytest.skip(f"not in {pod.container}")
    async with leased(pod, emberd_client) as lease:
        if pod.container not in seen:
            seen[pod.container] = await look(lease)
            assert "/work d" in seen[pod.container]
        await attack(lease, job)
        state = await emberd_client.state(pod.address.name, pod.address.endpoint)
        assert state.boot_id == pod.address.boot_id
    async with leased(pod, emberd_client) as following:
        assert await look(following) == seen[pod.container]


async def test_what_is_planted_shows_and_goes(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """A file in every folder that a job may write to: to look is to find it, and none is there after the reset."""
    async with leased(pod, emberd_client) as lease:
        first = await look(lease)
        planted = await plant(lease, first)
    assert planted >= {"/work/.planted", "/tmp/.planted", "/dev/shm/.planted"}
    async with leased(pod, emberd_client) as following:
        assert await look(following) == first


@asynccontextmanager
async def leased(pod: EmberdProcess, client: EmberdClient) -> AsyncGenerator[Lease]:
    """A lease of the pod, and the reset after it, which must be attested."""
    try:
        yield open_lease(pod, client)
    finally:
        pod.epoch += 1
        await client.fence(pod.address, pod.epoch)
        attestation = await client.recycle(pod.address, pod.epoch)
    assert attestation.holds and attestation.tier is RecycleTier.ROOM, attestation
