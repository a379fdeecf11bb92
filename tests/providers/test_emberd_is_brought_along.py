"""Images that have neither emberd nor Python: both are mounted into their pods, whatever their C library."""

import asyncio
import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.cluster import ClusterUp, KubernetesSite
from fixtures.local import new_name
from testcluster.injected_image import EMBERD_IMAGE, GLIBC_IMAGE, LOADER, MUSL_IMAGE, write_injected_images

from emberpool.pool.model.pod import Phase
from emberpool.pool.providers.kubernetes.injection import EMBERD, HOME, OWN_PYTHON
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider

pytestmark = pytest.mark.cluster
IMAGES = {"base": GLIBC_IMAGE, "musl": MUSL_IMAGE}
WRITE = f"""
import json
def refused(path):
    try:
        open(path, "ab").close()
    except OSError as error:
        return error.errno
    return 0
places = {{"emberd": {EMBERD!r}, "new": "{HOME}/new", "beside": "/beside"}}
print(json.dumps({{name: refused(path) for name, path in places.items()}}))
"""
"""Opens files for writing in the mount, and beside it; the errors' numbers, 0 for none."""
GVISOR = {"runtime_class": "gvisor", "boundary": "gvisor", "scratch_mb": 64}


@pytest.fixture(scope="module")
def images(cluster: ClusterUp, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """On the node, for this module."""
    if cluster.own is None:
        pytest.skip("images are brought to a node of our own only")
    archive: Path = tmp_path_factory.mktemp("images") / "images.tar"
    write_injected_images(cluster.own.where, archive)
    cluster.own.containerd.load(archive)
    archive.unlink()
    yield


def provider_of(site: KubernetesSite, **kubernetes: object) -> KubernetesProvider:
    """Pods with emberd from its own image."""
    about = {"cpu": 0.1, "node_selector": {"kubernetes.io/hostname": "real"}, "emberd_image": EMBERD_IMAGE}
    return site.make(images=IMAGES, kubernetes=about | kubernetes)


@pytest.mark.parametrize("boundary", [{}, GVISOR], ids=["runc", "gvisor"])
@pytest.mark.parametrize("image", ["base", "musl"])
async def test_a_job_runs_in_an_image_without_emberd(
    kubernetes_site: KubernetesSite, images: None, image: str, boundary: dict[str, object]
) -> None:
    """Attested resets and all: the room is the image's own, and shows neither emberd nor its Python. musl's has no file
    of glibc's, and its own programs find their own C library."""
    provider, name = provider_of(kubernetes_site, **boundary), new_name()
    await provider.create(name, image)
    facts = await provider.wait_ready(name, 30)
    assert facts.phase is Phase.READY, facts
    looks = f"ls -A {HOME}; ls /lib/{LOADER}; which-libc; env"
    for _ in range(2):
        said = await kubernetes_site.job(name, looks, provider)
        assert ("musl" in said.splitlines()) is (image == "musl"), said
        assert "emberd" not in said and "LD_LIBRARY_PATH" not in said, said


async def test_what_is_mounted_cannot_be_written(kubernetes_site: KubernetesSite, images: None) -> None:
    """By emberd itself or by anybody; and the image of a pod can be changed in place as it can without."""
    provider, name = provider_of(kubernetes_site), new_name()
    await provider.create(name, "musl")
    assert (await provider.wait_ready(name, 30)).phase is Phase.READY
    (mount,) = [one for one in _mounts(await kubernetes_site.pod(name)) if one["mountPath"] == HOME]
    assert mount["readOnly"] is True
    own = kubernetes_site.cluster.own
    assert own is not None
    tried = ("exec", name, "--", *OWN_PYTHON, "-I", "-c", WRITE)
    said = await asyncio.to_thread(own.kubectl, *tried)
    assert json.loads(said) == {"emberd": errno.EROFS, "new": errno.EROFS, "beside": 0}, "as the container's own root"
    _, epoch = await kubernetes_site.address(name, provider)
    assert await provider.swap(name, "base", epoch) == ""
    facts = await provider.wait_ready(name, 30)
    assert facts.phase is Phase.READY and facts.image == "base", facts


def _mounts(pod: dict[str, Any]) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = pod["spec"]["containers"][0]["volumeMounts"]
    return mounts
