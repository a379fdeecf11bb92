"""Pods whose profile names a certificate speak TLS with workers, their whole life long; what is wrong with it is told
by name and soon. The API is simulated, emberd real."""

import shutil
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from fixtures.cluster import ClusterUp, KubernetesSite
from fixtures.kubernetes_pool import CALLER, PROFILE, kubernetes_pool, pool_profile
from fixtures.local import new_name
from fixtures.simulated_kubernetes import IMAGES, SimulatedKubernetes, SimulatedSite, simulated_kubernetes
from fixtures.tls import Certificates, expired, make_certificates
from temporalio.client import Client
from temporalio.worker import Worker

from emberpool.activities.pools import Pool
from emberpool.activities.probe import probe_idle
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.trust import trust_in
from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import InvalidInput, PodUnreachable
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.state import PodState
from emberpool.pool.model.tool import RunToolInput
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider
from emberpool.worker.connections import open_provider
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.settings import Settings
from emberpool.worker.stack.embedded import EmbeddedStack

SECRET, NAME = "emberd-tls", "emberd"
PATIENCE_S = 1.0
SECURE = {"tls_secret": SECRET, "patience_s": PATIENCE_S}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, and what it signed for emberds."""
    return make_certificates(tmp_path_factory.mktemp("authority"), f"DNS:{NAME}")


def put(api: SimulatedKubernetes, pair: tuple[Path, Path], folder: Path) -> None:
    """Make the Secret that pods mount."""
    folder.mkdir(exist_ok=True)
    for source, name in zip(pair, ("tls.crt", "tls.key"), strict=True):
        shutil.copy(source, folder / name)
    api.secrets[SECRET] = folder


@pytest.fixture
async def site(
    simulated_site: SimulatedSite, certificates: Certificates, tmp_path: Path
) -> AsyncIterator[SimulatedSite]:
    """With the Secret, and trust in its authority."""
    put(simulated_site.api, certificates.server, tmp_path / "secret")
    simulated_site.trust = trust_in(certificates.authority, NAME)
    simulated_site.kubernetes = simulated_site.make(kubernetes=SECURE)
    yield simulated_site


async def test_a_pods_whole_life(site: SimulatedSite) -> None:
    """Created on standby, promoted, used, given another image, reset and deleted, all by https; a pod of a profile
    without a certificate beside it goes on in the clear."""
    provider, name = site.kubernetes, new_name()
    await provider.create(name, "", standby=True)
    facts = await provider.wait_ready(name, 30)
    assert facts.phase is Phase.READY and facts.endpoint.startswith("https://"), facts
    assert await provider.promote(name) == ""
    assert await site.job(name, "echo served") == "served\n"
    assert await provider.swap(name, "second", (await site.emberd_state(name)).epoch + 1) == ""
    assert await site.job(name, "echo again") == "again\n"
    plain, other = site.make(), new_name()
    await plain.create(other, "")
    facts = await plain.wait_ready(other, 30)
    assert facts.phase is Phase.READY and facts.endpoint.startswith("http://"), facts


@pytest.mark.cluster
async def test_a_real_pods_whole_life(
    kubernetes_site: KubernetesSite, certificates: Certificates, cluster: ClusterUp
) -> None:
    """The same on the test cluster, the certificate mounted from a Secret by its kubelet. A job finds none of it, nor
    is it served in the clear; a Secret that is not there is told by the pod's own emberd."""
    own = cluster.own
    if own is None:
        pytest.skip("secrets are made in a cluster of our own only")
    texts = {name: path.read_text() for name, path in zip(("tls.crt", "tls.key"), certificates.server, strict=True)}
    about = {"name": SECRET, "namespace": "default"}
    own.apply(
        [{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": about, "stringData": texts}]
    )
    site, name = kubernetes_site, new_name()
    site.trust = trust_in(certificates.authority, NAME)
    node = {"cpu": 0.1, "node_selector": {"kubernetes.io/hostname": "real"}, "patience_s": 10.0}
    try:
        site.kubernetes = provider = site.make(kubernetes=node | {"tls_secret": SECRET})
        await provider.create(name, "", standby=True)
        facts = await provider.wait_ready(name, 60)
        assert facts.phase is Phase.READY and facts.endpoint.startswith("https://"), facts
        assert await provider.promote(name) == ""
        said = await site.job(name, "ls -A /run/emberd/tls /run/emberd/told 2>&1; echo served")
        assert said.endswith("served\n") and "tls.key" not in said and "config" not in said, said
        assert await provider.swap(name, "second", (await site.emberd_state(name)).epoch + 1) == ""
        assert await site.job(name, "echo again") == "again\n"
        async with EmberdClient(site.key) as plain:
            with pytest.raises(PodUnreachable):
                await plain.state(name, facts.endpoint.replace("https:", "http:"))
    finally:
        own.kubectl("delete", "secret", SECRET)
    site.kubernetes = lacking = site.make(kubernetes=node | {"tls_secret": SECRET})
    await lacking.create(other := new_name(), "")
    facts = await lacking.wait_ready(other, 60)
    assert facts.phase is Phase.FAILED and facts.reason.startswith("exited: status 2: tls: "), facts


async def test_a_certificate_that_is_refused_fails_the_pod(
    site: SimulatedSite, certificates: Certificates, tmp_path: Path
) -> None:
    """An expired one, one of another authority: after the profile's patience, with what to do about it."""
    for pair, problem in (
        (expired(certificates, tmp_path / "old"), "certificate has expired: renew the Secret"),
        (make_certificates(tmp_path / "others", f"DNS:{NAME}").server, "have tls_ca_file hold the authority"),
    ):
        put(site.api, pair, tmp_path / "secret")
        name = new_name()
        await site.kubernetes.create(name, "")
        facts = await site.kubernetes.wait_ready(name, 20)
        assert facts.phase is Phase.FAILED and facts.reason.startswith("tls: its certificate is refused"), facts
        assert problem in facts.reason


async def test_a_worker_that_trusts_another_authority_fails_no_pod_of_others(
    site: SimulatedSite, tmp_path: Path
) -> None:
    """Whose settings are wrong cannot speak with pods that serve everyone else, and must not have them deleted."""
    name, others = new_name(), make_certificates(tmp_path / "others", f"DNS:{NAME}")
    await site.kubernetes.create(name, "")
    assert (await site.kubernetes.wait_ready(name, 30)).phase is Phase.READY
    trust = trust_in(others.authority, NAME)
    wrong = KubernetesProvider(site.kubernetes.profile, site.access, site.key, site.deployment, trust=trust)
    assert (await wrong.wait_ready(name, 2 * PATIENCE_S)).phase is Phase.PENDING
    assert [facts.phase for facts in await wrong.list()] == [Phase.PENDING]
    await wrong.aclose()
    assert (await site.kubernetes.wait_ready(name, 0)).phase is Phase.READY


async def test_a_secret_that_is_not_there_is_said_so(site: SimulatedSite) -> None:
    """Its emberd does not serve, and the pod's status holds its word on why."""
    del site.api.secrets[SECRET]
    name = new_name()
    await site.kubernetes.create(name, "")
    facts = await site.kubernetes.wait_ready(name, 20)
    assert facts.phase is Phase.FAILED and facts.reason.startswith("exited: status 2: tls: "), facts
    assert "No such file" in facts.reason and "tls.crt" in facts.reason


def test_a_worker_without_an_authority_says_so(tmp_path: Path) -> None:
    """At its start, naming the setting, not when the first pod is called."""
    profile = pool_profile(images=IMAGES, kubernetes=SECURE)
    with pytest.raises(InvalidInput, match="kubernetes.tls_secret") as caught:
        open_provider(profile, Settings(profiles=(profile,)))
    assert caught.value.field == "tls_ca_file"
    with pytest.raises(ValueError, match="tls_only needs tls_ca_file"):
        Settings(profiles=(profile,), tls_only=True)


async def test_a_tool_call_runs_through_tls(stack: EmbeddedStack, certificates: Certificates, tmp_path: Path) -> None:
    """The whole way, by a worker whose settings let it speak by TLS only: served, reset, attested."""
    about = {"images": IMAGES, "least_tier": "sweep", "network": "open", "kubernetes": SECURE}
    async with simulated_kubernetes(tmp_path) as (api, access):
        put(api, certificates.server, tmp_path / "secret")
        trusted = {"tls_ca_file": certificates.authority, "tls_only": True}
        async with kubernetes_pool(stack, access, pool_profile(**about), **trusted) as site:
            tools = ToolClient(site.client, profile=PROFILE, caller=CALLER, task_queue=site.queue)
            given = RunToolInput(profile=PROFILE, caller=CALLER, command=Command(shell="cat; echo $A", env={"A": "a"}))
            done = await tools.call(f"call-{uuid.uuid4().hex[:8]}", given)
            assert done.result.text == "a\n", done.result.error_text
            assert done.recycled is RecycleOutcome.IDLE


async def test_a_worker_with_the_wrong_authority_costs_no_pod(
    stack: EmbeddedStack, certificates: Certificates, tmp_path: Path
) -> None:
    """Beside one that is right: calls that reach it are tried again elsewhere, and idle pods that it asks stay."""
    others = make_certificates(tmp_path / "others", f"DNS:{NAME}")
    about = {"max_pods": 1, "images": IMAGES, "least_tier": "sweep", "network": "open", "kubernetes": SECURE}
    async with simulated_kubernetes(tmp_path) as (api, access):
        put(api, certificates.server, tmp_path / "secret")
        right = {"tls_ca_file": certificates.authority, "tls_only": True}
        async with kubernetes_pool(stack, access, pool_profile(**about), **right) as site:
            (before,) = await site.index.pods(PodState.IDLE, 10)
            wrong = Settings.model_validate({**site.settings.model_dump(), "tls_ca_file": others.authority})
            client = await Client.connect(stack.temporal_address, plugins=[EmberpoolPlugin(wrong)])
            async with Worker(client, task_queue=site.queue):
                tools = ToolClient(site.client, profile=PROFILE, caller=CALLER, task_queue=site.queue)
                given = RunToolInput(profile=PROFILE, caller=CALLER, command=Command(shell="echo a"))
                for number in range(8):
                    done = await tools.call(f"call-{number}-{uuid.uuid4().hex[:8]}", given)
                    assert done.result.text == "a\n", done.result.error_text
            nothing = cast(Any, None)
            key = site.settings.pool_key()
            async with EmberdClient(key, trust_in(others.authority, NAME)) as distrusts:
                pool = Pool(pool_profile(**about), site.index, nothing, distrusts, nothing, "d", "t", key, nothing)
                assert await probe_idle(pool, 0.0) == 0
            (after,) = await site.index.pods(PodState.IDLE, 10)
            assert after.name == before.name
