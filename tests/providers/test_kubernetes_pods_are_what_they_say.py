"""Pods of the Kubernetes provider on the test cluster: failures by name, nothing lent to jobs."""

import pytest
from fixtures.cluster import KubernetesSite
from fixtures.local import new_name, watching

from emberpool.pool.model.pod import Phase
from emberpool.pool.providers.kubernetes.access import KubernetesApi

pytestmark = pytest.mark.cluster


async def test_a_job_finds_no_credentials(kubernetes_site: KubernetesSite) -> None:
    """UKGovernmentBEIS/inspect_k8s_sandbox#214: no token of an account, no key of the pod, nothing in the
    environment, and uid 0 is nobody on the node."""
    provider, name = kubernetes_site.kubernetes, new_name()
    await provider.create(name, "")
    looks = "ls -A /run/emberd /run/emberd/told /var/run/secrets 2>&1; env; cat /proc/self/uid_map; ps -e 2>&1 | wc -l"
    said = await kubernetes_site.job(name, looks)
    pod = await kubernetes_site.pod(name)
    assert "token" not in said.lower() and "config" not in said and "KUBERNETES" not in said
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert not any(line.split()[:2] == ["0", "0"] for line in said.splitlines()), said


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
