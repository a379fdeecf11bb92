"""deploy/base's NetworkPolicies on the real node, enforced by nftables rules that are generated from them."""

import asyncio
import json
import socket
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from fixtures.cluster import ClusterUp, KubernetesSite, audit_lines
from fixtures.forwarder import forwarded
from fixtures.kubernetes_pool import CALLER, PROFILE, cluster_profile, kubernetes_pool
from fixtures.local import new_name
from fixtures.metadata import metadata_server
from fixtures.stack import Site
from fixtures.waiting import wait_until
from scenarios.gangs import Together
from testcluster.cluster import Cluster
from testcluster.image import POD_IMAGES
from testcluster.network import NODE_ADDRESS
from testcluster.policies import Unsupported, ruleset

from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import PodRefused, PodUnreachable
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.tool import RunToolInput
from emberpool.pool.providers.kubernetes import gangs
from emberpool.pool.providers.kubernetes.access import Access, KubernetesApi
from emberpool.pool.providers.kubernetes.provider import KubernetesProvider
from emberpool.pool.providers.kubernetes.view import PORT
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.stack.embedded import EmbeddedStack

BASE = Path(__file__).parents[2] / "deploy" / "base"
SANDBOXES, WORKERS = "emberpool-sandboxes", "emberpool"
KNOCK = """
import socket
for host, port in PLACES:
    try:
        socket.create_connection((host, port), 0.7).close()
        print(host, port, "open")
    except OSError as error:
        print(host, port, "shut")
"""


@pytest.fixture(scope="module")
def policed(cluster: ClusterUp) -> Iterator[Cluster]:
    """The namespaces and policies of the base, and a pod that is labelled as a worker; all goes with the module."""
    own = cluster.own
    if own is None:
        pytest.skip("rules are set on a node of our own only")
    texts = [(BASE / f"{name}.yaml").read_text() for name in ("namespaces", "network")]
    own.fresh(WORKERS, SANDBOXES)
    own.apply([*(one for text in texts for one in yaml.safe_load_all(text)), _worker()])
    own.kubectl("wait", "--for=condition=Ready", "pod/worker", "--namespace", WORKERS, "--timeout=60s")
    yield own
    own.rules.remove()
    own.kubectl("delete", "namespace", SANDBOXES, WORKERS, "--wait=false")


@pytest.fixture
async def site(policed: Cluster) -> AsyncIterator[KubernetesSite]:
    """Sandboxes in the namespace of the policies."""
    access = Access(kubeconfig=str(policed.api.kubeconfig), namespace=SANDBOXES)
    made = KubernetesSite(ClusterUp(access, policed))
    yield made
    policed.rules.remove()
    await made.aclose()


@pytest.mark.cluster
async def test_a_sandbox_reaches_nobody(site: KubernetesSite, policed: Cluster, stack: EmbeddedStack) -> None:
    """UKGovernmentBEIS/inspect_k8s_sandbox#214: a job that shares its pod's network reaches neither the API server, nor
    Redis, nor Temporal, nor the metadata address, nor the kubelet, nor another sandbox; all of them were open before
    the policies were enforced. Workers reach emberd all the time, and nothing else of the pod; and there is no token
    to be found."""
    provider = site.make(network="open")
    first, second = await _ready(provider), await _ready(provider)
    kubelet = json.loads(policed.kubectl("get", "node", "real", "-o", "json"))["status"]["daemonEndpoints"]
    api = json.loads(policed.api.kubeconfig.read_text())["clusters"][0]["cluster"]["server"].removeprefix("https://")
    servers = (api, urlsplit(stack.settings.redis_url).path, stack.temporal_address)
    async with forwarded(*servers) as addresses, metadata_server() as metadata:
        ports = [int(one.rpartition(":")[2]) for one in addresses]
        inside = [
            *((NODE_ADDRESS, port) for port in ports),
            (NODE_ADDRESS, kubelet["kubeletEndpoint"]["Port"]),
            (second[1], PORT),
            metadata,
        ]
        knock = f"PLACES = {inside!r}\n{KNOCK}"
        job = f"python3 - <<'END'\n{knock}END\nls /var/run/secrets 2>&1; env"
        before = await site.job(first[0], job)
        assert [line.split()[2] for line in before.splitlines()[:6]] == ["open"] * 6, before
        policed.rules.apply()
        after = await site.job(first[0], job)
        assert [line.split()[2] for line in after.splitlines()[:6]] == ["shut"] * 6, after
        assert "token" not in after.lower() and "KUBERNETES" not in after
        from_worker = f"PLACES = {[(first[1], PORT), (first[1], 22), (NODE_ADDRESS, ports[0])]!r}\n{KNOCK}"
        said = await asyncio.to_thread(
            policed.kubectl, "exec", "--namespace", WORKERS, "worker", "--", "python3", "-c", from_worker
        )
        assert [line.split()[2] for line in said.splitlines()] == ["open", "shut", "open"], said


SERVE = """
import socket, threading
seen = []
def datagrams():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard:
        heard.bind(("", 29500))
        while True:
            data, peer = heard.recvfrom(64)
            heard.sendto(data, peer)
            seen.append("udp:" + peer[0])
threading.Thread(target=datagrams).start()
with socket.create_server(("", 29500)) as server:
    while True:
        link, peer = server.accept()
        link.sendall((" ".join(seen) + "\\n").encode())
        link.close()
        seen.append(peer[0])
"""
DATAGRAM = """
import socket
def answers(host, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.settimeout(0.7)
        try:
            asked.sendto(b"x", (host, port))
            return asked.recv(64) == b"x"
        except OSError:
            return False
"""
MEET = f"""
import os, socket, time
{DATAGRAM}
host = os.environ["MASTER_ADDR"]
while True:
    try:
        socket.create_connection((host, 29500), 0.7).close()
        break
    except OSError:
        time.sleep(0.1)
while not answers(host, 29500):
    time.sleep(0.1)
"""
RANKS = f"""
if [ $RANK = 0 ]; then (setsid python3 -c '{SERVE}' >/dev/null 2>&1 &); else python3 - <<'END'
{MEET}END
fi
"""
"""Rank 0 serves for as long as its gang lives, and tells who was there; the other ends once it was."""


@pytest.mark.cluster
async def test_a_gang_reaches_its_own_and_nobody_else_does(
    policed: Cluster, stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pods with peers meet at their rendezvous, by TCP and by UDP, by a policy of their own beside the base's;
    neither another gang of the same caller nor a sandbox without one gets in, to their emberds neither. Once it has
    ended no pod has its label, and its policy is swept. Single calls cost no write of the API."""
    access = Access(kubeconfig=str(policed.api.kubeconfig), namespace=SANDBOXES)
    of = cluster_profile(min_warm=0, max_pods=5, network="open", gang_peers=True, kubernetes={"cpu": 0.1})
    async with kubernetes_pool(stack, access, of) as site, enforced(policed):
        plan = site.group_plan(size=2, peers=True, command=RANKS, pause_s=300)
        gang = await site.client.start_workflow(Together.run, plan, id=uuid.uuid4().hex, task_queue=site.queue)

        async def met() -> str:
            """Address of rank 0, once the other was there; "" before."""
            members = [one["status"]["podIP"] for one in await _labelled(policed)]
            seen = {one: await _told(one) for one in members}
            return next((one for one, told in seen.items() if _was_met(told, set(members) - {one})), "")

        async def have_met() -> bool:
            return bool(await met())

        await wait_until(have_met, 60)
        host, members = await met(), [one["status"]["podIP"] for one in await _labelled(policed)]
        await wait_until(lambda: _is_heard(host), 10)
        places = [(host, 29500), *((one, PORT) for one in members)]
        datagram = f"{DATAGRAM}\nprint(PLACES[0], 'open' if answers(*PLACES[0]) else 'shut')\n"
        knock = f"python3 - <<'END'\nPLACES = {places!r}\n{KNOCK}{datagram}END\n"
        other = site.group_plan(size=2, peers=True, command=knock)
        seen = await site.client.execute_workflow(Together.run, other, id=uuid.uuid4().hex, task_queue=site.queue)
        assert [[line.split()[2] for line in text.splitlines()] for text in seen.texts] == [["shut"] * 4] * 2, seen
        writes = list[int]()
        for _ in range(3):
            alone = await _call(site, knock)
            assert [line.split()[2] for line in alone.splitlines()] == ["shut"] * 4, alone
            writes.append(len(_writes(policed)))
        assert writes[0] == writes[-1], "but for its pod, a single call writes nothing"
        came = {one.removeprefix("udp:") for one in await _told(host)}
        assert came <= {*members, NODE_ADDRESS}, "nobody else was ever there"
        await gang.cancel()

        async def over() -> bool:
            return not await _labelled(policed) and not (await site.index.counts()).leases

        await wait_until(over, 60)
        monkeypatch.setattr(gangs, "YOUNG_S", -60.0)
        api = KubernetesApi(access)
        await gangs.Gangs(api, of.name, site.settings.deployment).sweep()
        await api.aclose()
        left = await asyncio.to_thread(
            policed.kubectl, "get", "networkpolicies", "--namespace", SANDBOXES, "-l", gangs.GANG_LABEL, "-o", "name"
        )
        assert left == ""


@pytest.mark.cluster
async def test_a_late_label_is_refused(site: KubernetesSite) -> None:
    """A worker that wrote a label slowly, while its lease ended and the pod left its gang: what it writes comes too
    late, and it hears from emberd that the lease is over."""
    name, _ = await _ready(site.make(network="open"))
    api = KubernetesApi(site.access)
    joined = gangs.Gangs(api, "p", "d")

    async def holds() -> None:
        """It does."""

    async def labels() -> dict[str, str]:
        pod = await api.call("GET", f"/api/v1/namespaces/{SANDBOXES}/pods/{name}")
        return dict(pod["metadata"]["labels"])

    epochs = count(1)

    async def ends_meanwhile() -> None:
        if next(epochs) > 1:
            raise PodRefused("stale_epoch", "the lease is over")
        await joined.leave(name, 7)

    try:
        for _ in range(2):
            await joined.join(name, "a" * 32, holds)
            assert (await labels())[gangs.GANG_LABEL] == "a" * 32
        await joined.leave(name, 5)
        assert gangs.GANG_LABEL not in await labels()
        with pytest.raises(PodRefused):
            await joined.join(name, "b" * 32, ends_meanwhile)
        assert gangs.GANG_LABEL not in await labels()
        with pytest.raises(PodUnreachable, match="gone"):
            await joined.join(PodName("none"), "a" * 32, holds)
        await joined.leave(PodName("none"), 5)
    finally:
        await api.aclose()


@asynccontextmanager
async def enforced(policed: Cluster) -> AsyncGenerator[None]:
    """Policies follow what the API says, about once a second, for as long as the block lasts."""

    async def follow() -> None:
        while True:
            await asyncio.to_thread(policed.rules.apply)
            await asyncio.sleep(0.5)

    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _labelled(policed: Cluster) -> list[Any]:
    """Pods that are in a gang."""
    words = ("get", "pods", "--namespace", SANDBOXES, "-l", gangs.GANG_LABEL, "-o", "json")
    return list(json.loads(await asyncio.to_thread(policed.kubectl, *words))["items"])


async def _told(host: str) -> list[str]:
    """Who was there before, as the server of rank 0 tells its host, which no policy keeps out."""
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, 29500), 1)
    except (OSError, TimeoutError):
        return []
    line = await reader.readline()
    writer.close()
    return line.decode().split()


def _was_met(told: list[str], others: set[str]) -> bool:
    """Whether one of the others was there by TCP, and by UDP."""
    return any({one, f"udp:{one}"} <= set(told) for one in others)


async def _is_heard(host: str) -> bool:
    """Whether the server of rank 0 hears a datagram of this machine's, which no policy keeps out; its answer is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.sendto(b"x", (host, 29500))
    return f"udp:{NODE_ADDRESS}" in await _told(host)


def _writes(policed: Cluster) -> list[str]:
    """Changes of pods and policies by workers, as the API server's audit log has them."""
    lines = [line for line in audit_lines(policed) if "python" in str(line.get("userAgent", "")).lower()]
    return [
        f"{line['verb']} {line['requestURI']}"
        for line in lines
        if line["verb"] in ("patch", "create", "update", "delete")
    ]


async def _call(site: Site, shell: str) -> str:
    """One tool call, without a workflow."""
    tools = ToolClient(site.client, profile=PROFILE, caller=CALLER, task_queue=site.queue)
    given = RunToolInput(profile=PROFILE, caller=CALLER, command=Command(shell=shell))
    return (await tools.call(f"call-{uuid.uuid4().hex[:8]}", given)).result.text


async def _ready(provider: KubernetesProvider) -> tuple[PodName, str]:
    """Name and address of a new pod."""
    name = new_name()
    await provider.create(name, "")
    facts = await provider.wait_ready(name, 60)
    assert facts.phase is Phase.READY, facts
    return name, facts.endpoint.removeprefix("http://").rpartition(":")[0]


def _worker() -> dict[str, object]:
    spec = {
        "containers": [{"name": "worker", "image": POD_IMAGES[0], "command": ["sleep", "600"]}],
        "nodeSelector": {"kubernetes.io/hostname": "real"},
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
    }
    labels = {"app.kubernetes.io/name": "emberpool-worker"}
    about = {"name": "worker", "namespace": WORKERS, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}


def test_a_policy_that_is_not_understood_is_refused() -> None:
    """Rather than enforced as something else: an address range, an expression, a rule for anybody."""
    to_all = [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]
    policy: dict[str, Any] = {
        "metadata": {"namespace": "a"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": to_all},
    }
    with pytest.raises(Unsupported, match="ipBlock"):
        ruleset([policy], [], {"a": {"metadata": {}}})
    policy["spec"] = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}
    with pytest.raises(Unsupported, match="anybody"):
        ruleset([policy], [], {"a": {"metadata": {}}})
    policy["spec"] = {"podSelector": {"matchExpressions": []}, "policyTypes": ["Ingress"]}
    with pytest.raises(Unsupported, match="matchExpressions"):
        ruleset([policy], [{"metadata": {"namespace": "a"}, "spec": {}, "status": {"podIP": "10.0.0.1"}}], {})
