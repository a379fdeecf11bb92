"""Rooms in pods of the test cluster, behind each boundary that a profile may name: new after every job, hostile ones
among them, and none where the boundary is missing."""

import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fixtures.attacks import ATTACKED, attack, look, plant
from fixtures.cluster import KubernetesSite
from fixtures.hostile_jobs import JOBS, KILLERS, Job
from fixtures.kubernetes_site import TAG
from fixtures.local import new_name

from emberpool.pool.client.emberd_client import EmberdClient, LeaseProof
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.ids import ExecutionId, PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.recycle import RecycleTier
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider

pytestmark = pytest.mark.cluster
BOUNDARIES = {
    "user_namespace": {"runtime_class": "runc", "scratch_mb": 1024},
    "gvisor": {"runtime_class": "gvisor", "scratch_mb": 256},
}
REAL = {"kubernetes.io/hostname": "real"}


def behind(site: KubernetesSite, boundary: str) -> KubernetesProvider:
    """A provider of pods with that boundary."""
    about = {"cpu": 0.2, "patience_s": 10.0, "node_selector": REAL, "boundary": boundary, **BOUNDARIES[boundary]}
    # Room enough that emberd sees a greedy job before the kernel does, which may take emberd for the greedy one.
    about["extra_memory_mb"] = 512
    return site.make(limits=ATTACKED, kubernetes=about)


class RealPod:
    """One pod, let again and again."""

    def __init__(self, client: EmberdClient, address: PodAddress) -> None:
        self._client, self._address, self.name = client, address, address.name
        self._epoch, self._proof = 0, LeaseProof("", 0, TAG, 60.0)

    async def run(self, *argv: str, **fields: Any) -> CommandResult:
        """Under the present lease."""
        command = Command(argv=argv or None, **fields)
        return await self._client.run(self._address, self._proof, ExecutionId(uuid.uuid4().hex), command)

    async def sh(self, text: str, **fields: Any) -> CommandResult:
        """Under the present lease."""
        return await self.run(shell=text, **fields)

    @asynccontextmanager
    async def leased(self) -> AsyncGenerator["RealPod"]:
        """A lease, and the reset after it, which must be attested by a new room."""
        self._epoch += 1
        self._proof = LeaseProof(uuid.uuid4().hex, self._epoch, TAG, 60.0)
        try:
            yield self
        finally:
            self._epoch += 1
            await self._client.fence(self._address, self._epoch)
            attestation = await self._client.recycle(self._address, self._epoch)
        assert attestation.holds and attestation.tier is RecycleTier.ROOM, attestation


@asynccontextmanager
async def real_pod(site: KubernetesSite, provider: KubernetesProvider) -> AsyncGenerator[RealPod]:
    """A pod of that provider that is ready."""
    name = new_name()
    await provider.create(name, "")
    facts = await provider.wait_ready(name, 60)
    assert facts.phase is Phase.READY, facts
    async with EmberdClient(site.key) as client:
        state = await client.state(name, facts.endpoint)
        yield RealPod(client, PodAddress(name=name, uid=facts.uid, boot_id=state.boot_id, endpoint=facts.endpoint))


CROWDS = ("fork_bomb", "100_000_threads")
"""Not in the cluster's gVisor, whose runtime then takes a minute to end the pod; tests/emberd runs them in gVisor."""


@pytest.mark.parametrize("boundary", BOUNDARIES)
async def test_a_pod_says_how_it_is_reset(kubernetes_site: KubernetesSite, boundary: str) -> None:
    """The provider tells the tier that the pod's emberd allows, in every boundary a room of its own; and not before it
    knows."""
    provider, name = behind(kubernetes_site, boundary), new_name()
    await provider.create(name, "")
    (before,) = await provider.list()
    after = await provider.wait_ready(name, 60)
    assert (before.tier, after.tier) == (None, RecycleTier.ROOM), (before, after)


@pytest.mark.parametrize("boundary", BOUNDARIES)
async def test_the_next_job_finds_a_new_room(kubernetes_site: KubernetesSite, boundary: str) -> None:
    """kubernetes-sigs/agent-sandbox#158: in either runtime class jobs run by the pod's address, twenty-odd hostile ones
    in turn; each reset is attested, and nothing that the following job can see has changed. The same pod serves to the
    end: those that stop or kill all they see several times over, since in gVisor they once took it with them."""
    provider, first = behind(kubernetes_site, boundary), ""
    left_out = CROWDS if boundary == "gvisor" else ()
    jobs = [job for job in JOBS if not {boundary, "overlay"} & set(job.not_in) and job.name not in left_out]
    async with real_pod(kubernetes_site, provider) as pod:
        for job in [*jobs, *KILLERS, *KILLERS]:
            print(job.name)  # shown where one of them gets away with something
            first = await attacked(pod, job, first)


async def attacked(pod: RealPod, job: Job, first: str) -> str:
    """What a job sees after the attack: the same as the first job of all."""
    if not first:
        async with pod.leased():
            first = await look(pod)
            assert "/work d" in first
    async with pod.leased():
        await attack(pod, job)
    async with pod.leased():
        assert await look(pod) == first, job.name
    return first


@pytest.mark.parametrize("boundary", BOUNDARIES)
async def test_what_is_planted_goes_with_its_room(kubernetes_site: KubernetesSite, boundary: str) -> None:
    """These rooms' whole root can be written to: files that a job leaves among programs and Python's own modules, and
    bytes that it changes there, show in its room, and neither the next job nor emberd finds any of them."""
    async with real_pod(kubernetes_site, behind(kubernetes_site, boundary)) as pod:
        async with pod.leased():
            first = await look(pod)
            planted = await plant(pod, first)
        assert planted >= {f"{place}/.planted" for place in ("/usr/bin", "/usr/lib", "/etc", "/opt")}, planted
        assert any(path.endswith("/site.py") for path in planted), planted
        for _ in range(2):
            async with pod.leased():
                assert await look(pod) == first


@pytest.mark.parametrize("boundary", BOUNDARIES)
async def test_no_job_reads_what_emberd_was_told(kubernetes_site: KubernetesSite, boundary: str) -> None:
    """Neither the pod's key nor emberd's state: in gVisor a room's root shows what is mounted in the pod."""
    provider = behind(kubernetes_site, boundary)
    async with real_pod(kubernetes_site, provider) as pod, pod.leased():
        said = await pod.sh("id; find /run -ls; cat /run/emberd/told/config /run/emberd/told/uid /run/emberd/state/*")
        print(said.text, said.error_text)
        assert "key" not in said.text and pod.name not in said.text, said.text


async def test_no_boundary_no_pod(kubernetes_site: KubernetesSite) -> None:
    """A profile that says gVisor, in a runtime class that is none: the pod would hold SYS_ADMIN on its node. Its emberd
    refuses to serve, and the provider says so within seconds."""
    about = {"cpu": 0.1, "node_selector": REAL, "boundary": "gvisor", "runtime_class": "runc"}
    provider, name = kubernetes_site.make(kubernetes=about), new_name()
    await provider.create(name, "")
    facts = await provider.wait_ready(PodName(name), 30)
    assert (facts.phase, facts.tier) == (Phase.FAILED, None), facts
    assert facts.reason.startswith("exited: status 2"), facts
    assert "CAP_SYS_ADMIN in the initial user namespace" in facts.reason, "emberd's own judgement, and no other mistake"
