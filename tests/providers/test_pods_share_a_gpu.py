"""GPUs of pods on the real kubelet: a device plugin gives out devices that are not there, whole or in slices."""

import pytest
from fixtures.cluster import KubernetesSite
from fixtures.local import new_name
from fixtures.nvml import FakeNvml
from testcluster.devices import PLUGINS, plugged

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider

pytestmark = pytest.mark.cluster
CARD = "GPU-3f2b9c1e-0000-4000-8000-00000000000a"
ASK = "echo $CUDA_VISIBLE_DEVICES"
DRIVERS_OWN, GIB = 300 << 20, 1 << 30


def profile_with(site: KubernetesSite, resource: str, sharing: str) -> KubernetesProvider:
    """A provider of pods with one device, or slice, each."""
    about = {
        "cpu": 0.2,
        "patience_s": 1.0,
        "node_selector": {"kubernetes.io/hostname": "real"},
        "gpu": {"resource": resource, "sharing": sharing},
    }
    return site.make(kubernetes=about)


async def ready(provider: KubernetesProvider, standby: bool = False) -> PodName:
    """A new pod that is ready."""
    name = new_name()
    await provider.create(name, "", standby=standby)
    facts = await provider.wait_ready(name, 60)
    assert facts.phase is Phase.READY, facts
    return name


async def full(provider: KubernetesProvider) -> bool:
    """Whether a further pod is refused a device, by name."""
    name = new_name()
    await provider.create(name, "")
    facts = await provider.wait_ready(name, 30)
    await provider.delete(name)
    return facts.phase is Phase.FAILED and facts.reason.startswith("unschedulable:") and "Insufficient" in facts.reason


async def test_a_pod_that_stands_by_is_on_the_device_of_one_that_works(kubernetes_site: KubernetesSite) -> None:
    """Time-slicing: both see the same UUID before and after the promotion, which asks for no further slice; a third pod
    finds none. A reset does not take the neighbour's memory for a leak: the device is not asked."""
    site = kubernetes_site
    if site.cluster.own is None:
        pytest.skip("a device plugin is started on a node of our own only")
    with plugged(site.cluster.own, "emberpool.test/sliced", [CARD], replicas=2):
        provider = profile_with(site, "emberpool.test/sliced", "time_slicing")
        site.kubernetes = provider
        active, standby = await ready(provider), await ready(provider, standby=True)
        assert await full(provider)
        assert await site.job(active, ASK) == f"{CARD}\n"
        assert await provider.promote(standby) == ""
        assert await site.job(standby, ASK) == f"{CARD}\n"
        assert await site.job(active, ASK) == f"{CARD}\n", "it has noticed nothing"
        for name in (active, standby):
            await provider.delete(name)


async def test_a_device_of_ones_own_is_proved_to_be_free(kubernetes_site: KubernetesSite) -> None:
    """Without sharing one pod has it: the next finds none until the first is gone. A reset asks the driver, and a job's
    memory that stays on the device is told by the attestation."""
    site, folder = kubernetes_site, PLUGINS / "nvml"
    if site.cluster.own is None:
        pytest.skip("a device plugin is started on a node of our own only")
    folder.mkdir(mode=0o755, exist_ok=True)
    quiet: dict[str, tuple[int, list[int]]] = {CARD: (DRIVERS_OWN, [])}
    leaking: dict[str, tuple[int, list[int]]] = {CARD: (DRIVERS_OWN + GIB, [])}
    nvml = FakeNvml(folder)
    nvml.say(**quiet)
    mounts = {folder: str(folder), nvml.library: "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"}
    with plugged(site.cluster.own, "emberpool.test/whole", [CARD], mounts=mounts):
        provider = profile_with(site, "emberpool.test/whole", "none")
        site.kubernetes = provider
        first = await ready(provider)
        assert await full(provider)
        assert await site.job(first, ASK) == f"{CARD}\n"
        nvml.say(**leaking)
        assert not await still_clean(site, first)
        await provider.delete(first)
        nvml.say(**quiet)
        second = await ready(provider)
        assert await still_clean(site, second)
        await provider.delete(second)


async def still_clean(site: KubernetesSite, name: PodName) -> bool:
    """Whether a reset after a lease holds, the check of devices among its checks."""
    proof, (pod, _) = await site.lease(name), await site.address(name)
    async with EmberdClient(site.key) as client:
        await client.fence(pod, proof.epoch + 1)
        attestation = await client.recycle(pod, proof.epoch + 1)
    assert {name for name, held in attestation.checks.items() if not held} <= {"vram"} <= attestation.checks.keys()
    return attestation.holds
