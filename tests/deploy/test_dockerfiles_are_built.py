"""deploy/images as buildah builds them, without a registry, and a pod from each on the test cluster's node."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures.cluster import ClusterUp, KubernetesSite
from fixtures.deployed import deployed, kubectl_of
from fixtures.local import new_name
from testcluster.built_images import CUDA_BASE, NO_SHELL_BASE, Builder
from testcluster.cluster import Cluster
from testcluster.injected_image import GLIBC_IMAGE, MUSL_IMAGE, write_injected_images

from emberpool.pool.model.pod import Phase
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider
from emberpool.worker.stack.embedded import EmbeddedStack

pytestmark = pytest.mark.images
SANDBOX, CUDA, WORKER, EMBERD = (
    f"emberpool.invalid/built-{name}:1" for name in ("sandbox", "cuda", "worker", "emberd")
)
NODE = {"cpu": 0.1, "node_selector": {"kubernetes.io/hostname": "real"}}
GVISOR = {"runtime_class": "gvisor", "boundary": "gvisor", "scratch_mb": 64}
STARTS = 5


@pytest.fixture(scope="module")
def builder(cluster: ClusterUp, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """With the bases that the Dockerfiles name."""
    assert cluster.own is not None, "images are imported into a cluster of our own only"
    folder: Path = tmp_path_factory.mktemp("builder")
    made = Builder(folder)
    made.make_bases(cluster.own.where)
    yield made
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def built(cluster: ClusterUp, builder: Builder, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The cluster, once its node has every image; and what is mounted into two that have no emberd."""
    own = cluster.own
    assert own is not None
    builder.build("sandbox", SANDBOX)
    builder.build("sandbox-cuda", CUDA)
    builder.build("worker", WORKER)
    builder.build("emberd", EMBERD)
    archive: Path = tmp_path_factory.mktemp("images") / "image.tar"
    for image in (SANDBOX, CUDA, WORKER, EMBERD):
        builder.save(image, archive)
        print(f"\n{image}: {archive.stat().st_size / 1e6:.0f} MB", end="")
        own.containerd.load(archive)
        archive.unlink()
    write_injected_images(own.where, archive)
    own.containerd.load(archive)
    archive.unlink()
    return own


@pytest.mark.parametrize("boundary", [{}, GVISOR], ids=["runc", "gvisor"])
async def test_a_sandbox_is_reset(kubernetes_site: KubernetesSite, built: Cluster, boundary: dict[str, object]) -> None:
    """A command, an attested reset, and the next command finds nothing of it."""
    provider, name = _provider(kubernetes_site, SANDBOX, **boundary), new_name()
    await provider.create(name, "")
    facts = await provider.wait_ready(name, 60)
    assert facts.phase is Phase.READY, facts
    assert "it runs" in await kubernetes_site.job(name, "echo it runs; touch left-behind", provider)
    assert "left-behind" not in await kubernetes_site.job(name, "ls -A", provider)


async def test_a_base_without_python_gets_one(kubernetes_site: KubernetesSite, built: Cluster) -> None:
    """As NVIDIA's are; a pod without GPUs sees none, whatever the image asks of the node."""
    provider, name = _provider(kubernetes_site, CUDA), new_name()
    await provider.create(name, "")
    facts = await provider.wait_ready(name, 60)
    assert facts.phase is Phase.READY, facts
    said = await kubernetes_site.job(name, 'echo "devices: $CUDA_VISIBLE_DEVICES."', provider)
    assert "devices: ." in said, said
    assert (await kubernetes_site.pod(name))["spec"]["containers"][0]["env"][0]["value"] == "void"


def test_a_base_without_python_is_refused(builder: Builder) -> None:
    """While it is built, not in every pod."""
    with pytest.raises(RuntimeError, match="python3"):
        builder.build("sandbox", "emberpool.invalid/none:1", BASE=CUDA_BASE)


def test_a_base_without_a_shell_will_do(builder: Builder) -> None:
    """As those that are called distroless: nothing but its Python is run."""
    builder.build("sandbox", "emberpool.invalid/no-shell:1", BASE=NO_SHELL_BASE)


async def test_what_emberd_brings_costs_little(kubernetes_site: KubernetesSite, built: Cluster) -> None:
    """emberd's own image, into images that have none: with glibc and with musl, and beside one that has it inside."""
    kinds = {
        "emberd in the image": _provider(kubernetes_site, SANDBOX),
        "mounted, glibc": _provider(kubernetes_site, GLIBC_IMAGE, emberd_image=EMBERD),
        "mounted, musl": _provider(kubernetes_site, MUSL_IMAGE, emberd_image=EMBERD),
        "gVisor, emberd in the image": _provider(kubernetes_site, SANDBOX, **GVISOR),
        "gVisor, mounted, musl": _provider(kubernetes_site, MUSL_IMAGE, emberd_image=EMBERD, **GVISOR),
    }
    print()
    for kind, provider in kinds.items():
        times: list[float] = []
        for _ in range(STARTS):
            name, began = new_name(), time.monotonic()
            await provider.create(name, "")
            facts = await provider.wait_ready(name, 60)
            times.append(time.monotonic() - began)
            assert facts.phase is Phase.READY, facts
            assert "it runs" in await kubernetes_site.job(name, "echo it runs", provider)
            await provider.delete(name)
        print(
            f"{kind}: ready after {sorted(times)[STARTS // 2]:.2f} s (median of {STARTS}; longest {max(times):.2f} s)"
        )


async def test_workers_are_ready(built: Cluster, stack: EmbeddedStack, tmp_path: Path) -> None:
    """`emberpool worker` as the Deployment of deploy/ runs it: as nobody, its root file system read-only, and ready by
    its own word."""
    async with deployed(built, stack, tmp_path, WORKER):
        run = kubectl_of(built)
        words = ("deployment/emberpool-worker", "--namespace", "emberpool", "-o")
        said = await run("get", *words, "jsonpath={.spec.template.spec.containers[0].image} {.status.readyReplicas}")
        assert said.split()[0] == WORKER and int(said.split()[1]) >= 1, said


def _provider(site: KubernetesSite, image: str, **kubernetes: object) -> KubernetesProvider:
    return site.make(images={"base": image}, kubernetes=NODE | kubernetes)
