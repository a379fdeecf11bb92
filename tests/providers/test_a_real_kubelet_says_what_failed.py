"""Faults of pods as a real kubelet tells of them: memory, and images that cannot be had or run."""

import time
import uuid
from pathlib import Path

import pytest
from fixtures.cluster import ClusterUp, KubernetesSite, is_init, pids_in_cgroup
from fixtures.kubernetes_pool import CALLER, PROFILE, cluster_profile, kubernetes_pool
from fixtures.kubernetes_site import TAG
from fixtures.local import new_name
from fixtures.stack import Site
from fixtures.waiting import wait_until

from emberpool.pool.client.emberd_client import EmberdClient, LeaseProof
from emberpool.pool.model.command import Command, Outcome
from emberpool.pool.model.errors import SandboxLost
from emberpool.pool.model.ids import ExecutionId
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.state import PodState
from emberpool.pool.model.tool import RunToolInput, RunToolOutput
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.stack.embedded import EmbeddedStack

pytestmark = pytest.mark.cluster
SOON_S = 15.0
NOWHERE = "127.0.0.1:1/none:1"
"""An image whose registry does not answer."""
NO_PROGRAM = "emberpool.invalid/pause:1"
"""An image that the node has, and that has no Python to run emberd with."""
PREFIXES = ("127.0.0.1:1/", "emberpool.invalid/")
GREEDY = ("python3", "-c", "import mmap; mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANON | mmap.MAP_POPULATE)")
"""Takes all memory that there is at once: before emberd has looked."""


def swapping(site: KubernetesSite, **fields: object) -> KubernetesProvider:
    """A provider whose pods may be given those images."""
    node = {"kubernetes.io/hostname": "real"}
    about = {"cpu": 0.1, "patience_s": 1.0, "node_selector": node, "image_prefixes": PREFIXES}
    return site.make(kubernetes=about, **fields)


async def test_a_pod_that_is_killed_for_its_memory_is_told_so(stack: EmbeddedStack, cluster: ClusterUp) -> None:
    """The kernel ends emberd, as it ends whole containers on nodes with cgroup v2: whose command ran there hears of it
    once its connection is gone and no other is had, SandboxLost with `oom`; the pod goes, and the next call has
    another."""
    if cluster.own is None:
        pytest.skip("processes are looked at on a node of our own only")
    # Little beside what emberd itself takes, so that the kernel sees the job before emberd does.
    about: dict[str, object] = {"cpu": 0.1, "extra_memory_mb": 32}
    async with kubernetes_pool(stack, cluster.access, cluster_profile(kubernetes=about)) as site:
        (pod,) = await site.index.pods(PodState.IDLE, 10)
        offer_emberd_first(pod.uid)
        began = time.monotonic()
        with pytest.raises(SandboxLost) as caught:
            await call(site, Command(argv=GREEDY))
        assert time.monotonic() - began < 2 * SOON_S
        assert (caught.value.reason.partition(":")[0], caught.value.executed) == ("oom", "unknown"), caught.value
        served = await call(site, Command(shell="echo served"))
        assert (served.result.text, served.pod == pod.name) == ("served\n", False)

        async def gone() -> bool:
            return await site.index.pod(pod.name) is None

        await wait_until(gone, 30)


async def test_a_greedy_job_goes_before_its_emberd(kubernetes_site: KubernetesSite, cluster: ClusterUp) -> None:
    """A job that takes all memory at once is killed, typed, and its pod serves on. The kubelet offers emberd itself to
    the kernel, so that whatever a job is made of must be offered above that."""
    if cluster.own is None:
        pytest.skip("processes are looked at on a node of our own only")
    provider, name = kubernetes_site.kubernetes, new_name()
    await provider.create(name, "")
    pod, epoch = await kubernetes_site.address(name)
    offers = offered(pod.uid)
    (emberd,) = [pid for pid in offers if is_init(pid)]
    assert all(offer > offers[emberd] for pid, offer in offers.items() if pid != emberd), offers
    proof = LeaseProof(uuid.uuid4().hex, epoch + 1, TAG, 60.0)
    async with EmberdClient(kubernetes_site.key) as client:
        done = await client.run(pod, proof, ExecutionId(uuid.uuid4().hex), Command(argv=GREEDY))
        assert done.outcome in (Outcome.OOM_KILLED, Outcome.SIGNALED), done
        done = await client.run(pod, proof, ExecutionId(uuid.uuid4().hex), Command(shell="echo on"))
    assert (done.text, (await provider.wait_ready(name, 0)).phase) == ("on\n", Phase.READY)


@pytest.mark.parametrize(
    ("image", "tier", "said"),
    [
        (NOWHERE, "room", "not_started: no container followed the one that exited: status 0"),
        (NOWHERE, "restart", "image_pull: "),
        (NO_PROGRAM, "room", "not_started: StartError failed to create containerd task"),
    ],
    ids=["no registry, one life", "no registry, started again", "nothing to run"],
)
async def test_a_swap_that_cannot_be_is_given_up_soon(
    kubernetes_site: KubernetesSite, image: str, tier: str, said: str
) -> None:
    """The pod is over, with a word that tells why, and is never half alive: not by the image that it came from either.
    Where its container is not to be started twice, the kubelet does not try a pull again, nor says what was wrong."""
    more = {"least_tier": "restart", "network": "open"} if tier == "restart" else {}
    provider, name = swapping(kubernetes_site, **more), new_name()
    await provider.create(name, "")
    assert (await provider.wait_ready(name, 30)).phase is Phase.READY
    began = time.monotonic()
    problem = await provider.swap(name, image, 2)
    assert problem.startswith(f"swap: {said}"), problem
    assert await provider.swap(name, "base", 3) != ""
    assert (await provider.wait_ready(name, 0)).phase is Phase.FAILED
    assert time.monotonic() - began < SOON_S
    await provider.delete(name)


async def test_a_poor_node_is_used_where_there_is_no_other(kubernetes_site: KubernetesSite) -> None:
    """opensandbox-group/OpenSandbox#1956: pods that its runtime could not start have the next ones ask for another
    node; the scheduler takes the wish in, and has no better one."""
    provider = swapping(kubernetes_site)
    for _ in range(2):
        name = new_name()
        await provider.create(name, NO_PROGRAM)
        facts = await provider.wait_ready(name, 30)
        assert facts.reason.startswith("not_started: StartError"), facts
    name = new_name()
    await provider.create(name, "")
    spec = (await kubernetes_site.pod(name))["spec"]
    (wish,) = spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert wish["preference"]["matchFields"][0]["values"] == ["real"]
    assert (await provider.wait_ready(name, 30)).phase is Phase.READY


def offered(uid: str) -> dict[int, int]:
    """How readily the kernel ends each of a pod's processes for their memory: from -1000, never, to 1000."""
    return {pid: int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in pids_in_cgroup(uid)}


def offer_emberd_first(uid: str) -> None:
    """Have the kernel end the pod's emberd for its memory, whatever its jobs take."""
    for pid in pids_in_cgroup(uid):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000" if is_init(pid) else "0")


async def call(site: Site, command: Command) -> RunToolOutput:
    """One tool call, without a workflow."""
    tools = ToolClient(site.client, profile=PROFILE, caller=CALLER, task_queue=site.queue)
    given = RunToolInput(profile=PROFILE, caller=CALLER, command=command, wait_timeout_s=60)
    return await tools.call(f"call-{uuid.uuid4().hex[:8]}", given)
