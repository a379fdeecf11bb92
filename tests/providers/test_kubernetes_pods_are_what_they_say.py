"""Pods of the Kubernetes provider on the test cluster: failures by name, changes in place, nothing lent to jobs."""

import uuid
from collections.abc import AsyncIterator

import pytest
from fixtures.cluster import KubernetesSite
from fixtures.local import new_name, watching
from testcluster.image import POD_IMAGES

from emberpool.pool.client.emberd_client import EmberdClient, LeaseProof
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.command import Command
from emberpool.pool.model.ids import ExecutionId, PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.providers.kubernetes.access import KubernetesApi
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider
from emberpool.pool.providers.kubernetes.view import view

pytestmark = pytest.mark.cluster
TAG = "a" * 32


@pytest.fixture
async def client(kubernetes_site: KubernetesSite) -> AsyncIterator[EmberdClient]:
    """With the key of the site's pods."""
    async with EmberdClient(kubernetes_site.key) as one:
        yield one


async def address_of(provider: KubernetesProvider, client: EmberdClient, name: PodName) -> tuple[PodAddress, int]:
    """Where the pod is, and its emberd's epoch."""
    facts = await provider.wait_ready(name, 30)
    assert facts.phase is Phase.READY, facts
    state = await client.state(name, facts.endpoint)
    return PodAddress(name=name, uid=facts.uid, boot_id=state.boot_id, endpoint=facts.endpoint), state.epoch


async def job(provider: KubernetesProvider, client: EmberdClient, name: PodName, shell: str) -> str:
    """What a job prints, under a lease of its own that is fenced and reset at its end."""
    pod, epoch = await address_of(provider, client, name)
    proof = LeaseProof(uuid.uuid4().hex, epoch + 1, TAG, 60.0)
    result = await client.run(pod, proof, ExecutionId(uuid.uuid4().hex), Command(shell=shell, time_limit_s=20))
    await client.fence(pod, epoch + 2)
    assert (await client.recycle(pod, epoch + 2)).holds
    return result.text + result.error_text


async def test_a_job_finds_no_credentials(kubernetes_site: KubernetesSite, client: EmberdClient) -> None:
    """UKGovernmentBEIS/inspect_k8s_sandbox#214: no token of an account, no key of the pod, nothing in the
    environment, and uid 0 is nobody on the node."""
    provider, name = kubernetes_site.kubernetes, new_name()
    await provider.create(name, "")
    looks = "ls -A /run/emberd /run/emberd/told /var/run/secrets 2>&1; env; cat /proc/self/uid_map; ps -e 2>&1 | wc -l"
    said = await job(provider, client, name, looks)
    pod = await kubernetes_site.pod(name)
    assert "token" not in said.lower() and "config" not in said and "KUBERNETES" not in said
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert not any(line.split()[:2] == ["0", "0"] for line in said.splitlines()), said


async def test_a_swapped_pod_is_the_same_pod_with_another_image(
    kubernetes_site: KubernetesSite, client: EmberdClient
) -> None:
    """UID, node, address and tag stay; the new emberd has proved that nothing of the last job is left."""
    provider, name = kubernetes_site.kubernetes, new_name()
    await provider.create(name, "")
    assert POD_IMAGES[0] in await job(provider, client, name, "cat /etc/image-mark; touch /work/left")
    before = await provider.wait_ready(name, 0)
    _, epoch = await address_of(provider, client, name)
    assert await provider.swap(name, "second", epoch + 1) == ""
    assert await provider.swap(name, "second", epoch + 1) == "", "a retry finds it done"
    after = await provider.wait_ready(name, 0)
    assert (after.uid, after.endpoint, after.image) == (before.uid, before.endpoint, "second")
    assert view(await kubernetes_site.pod(name)).restarts == 1
    state = await client.state(name, after.endpoint)
    assert (state.state, state.tag) == ("clean", TAG)
    assert await job(provider, client, name, "cat /etc/image-mark; ls /work") == f"{POD_IMAGES[1]}\n"


async def test_a_promoted_pod_holds_its_full_share(kubernetes_site: KubernetesSite) -> None:
    """Tiny requests while it stands by; the profile's after the promotion, in place."""
    provider, name = kubernetes_site.kubernetes, new_name()
    await provider.create(name, "", standby=True)
    assert (await provider.wait_ready(name, 30)).phase is Phase.READY
    assert dict(view(await kubernetes_site.pod(name)).requests) == {"cpu": "10m", "memory": "64Mi"}
    assert await provider.promote(name) == ""
    after = view(await kubernetes_site.pod(name))
    assert (dict(after.requests), after.restarts) == ({"cpu": "100m", "memory": "128Mi"}, 0)


async def test_what_no_node_can_hold_is_unschedulable(kubernetes_site: KubernetesSite) -> None:
    """Given up after the profile's patience, in the scheduler's words."""
    provider, name = kubernetes_site.make(kubernetes={"cpu": 1000, "patience_s": 1.0}), new_name()
    await provider.create(name, "")
    facts = await provider.wait_ready(name, 30)
    assert facts.phase is Phase.FAILED and facts.reason.startswith("unschedulable: "), facts
    assert "Insufficient cpu" in facts.reason


async def test_an_image_that_cannot_be_had_is_said_so(kubernetes_site: KubernetesSite) -> None:
    """A registry that is not there: given up after the profile's patience, with the image's name."""
    missing = "registry.invalid/none:1"
    provider = kubernetes_site.make(images={"base": missing}, kubernetes={"cpu": 0.1, "patience_s": 1.0})
    name = new_name()
    await provider.create(name, "")
    facts = await provider.wait_ready(name, 60)
    assert facts.phase is Phase.FAILED and facts.reason.startswith("image_pull: "), facts
    assert missing in facts.reason


async def test_an_evicted_pod_says_who_took_it(kubernetes_site: KubernetesSite) -> None:
    """aws/karpenter-provider-aws#3594: a drained node evicts through the API; its holder hears of it at once."""
    provider, name = kubernetes_site.kubernetes, new_name()
    await provider.create(name, "")
    assert (await provider.wait_ready(name, 30)).phase is Phase.READY
    api = KubernetesApi(kubernetes_site.cluster.access)
    async with watching(provider) as changes:
        assert (await anext(changes)).phase is Phase.READY
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        await api.call("POST", f"/api/v1/namespaces/default/pods/{name}/eviction", body=body)
        facts = await anext(changes)
    await api.aclose()
    assert facts.phase is Phase.FAILED and facts.reason == "evicted: EvictionByEvictionAPI", facts
