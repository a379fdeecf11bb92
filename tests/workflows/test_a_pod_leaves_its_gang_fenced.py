"""A pod that is recycled leaves its gang when it is fenced: who connects it late is refused, at any moment."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fixtures.faulty_api import kubeconfig
from fixtures.local import MakeProvider, SupervisorProcess, new_name
from fixtures.pods import IMAGE, age, claimed, released

from emberpool.activities import recycle as recycles
from emberpool.activities.line import WaitingLine
from emberpool.activities.metrics import Metrics
from emberpool.activities.pools import Pool
from emberpool.activities.recycle import recycle
from emberpool.activities.start import start_pod
from emberpool.pool.client.emberd_client import EmberdClient, LeaseProof
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Claimed
from emberpool.pool.model.errors import InvalidInput, PodRefused, PoolUnavailable
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.state import PodState
from emberpool.pool.providers.kubernetes.access import Access, KubernetesApi
from emberpool.pool.providers.kubernetes.gangs import GANG_LABEL, Gangs

Json = dict[str, Any]
LABEL = "a" * 32


@dataclass
class OnePod:
    """An API server that has one pod, which changes only for those who have read it as it is."""

    labels: Json = field(default_factory=dict[str, Any])
    version: int = 1
    forbids: str = ""
    """Why it refuses to make policies."""
    left: Callable[[], Awaitable[object]] | None = None
    """Done when the pod has left its gang, before whoever asked for it hears so."""

    async def answer(self, request: web.Request) -> web.Response:
        """Every request of the API."""
        if request.method == "POST":
            status = 403 if self.forbids else 201
            return web.json_response({"reason": "Forbidden", "message": self.forbids}, status=status)
        if request.method == "PATCH":
            about = json.loads(await request.text())["metadata"]
            if about.get("resourceVersion", str(self.version)) != str(self.version):
                return web.json_response({"reason": "Conflict", "message": "it has changed"}, status=409)
            self.version += 1
            self.labels = {key: value for key, value in {**self.labels, **about["labels"]}.items() if value}
            if GANG_LABEL not in self.labels and self.left is not None:
                await self.left()
        return web.json_response({"metadata": {"resourceVersion": str(self.version), "labels": self.labels}})


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[tuple[OnePod, Gangs]]:
    """The stand-in on loopback, and a pool's gangs in it."""
    fake, app = OnePod(), web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = kubeconfig(tmp_path, f"http://127.0.0.1:{runner.addresses[0][1]}")
    client = KubernetesApi(Access(namespace="default", kubeconfig=str(config)))
    yield fake, Gangs(client, "py", "tests")
    await client.aclose()
    await runner.cleanup()


@dataclass(frozen=True)
class Used:
    """A pod that a gang's member has used and left dirty."""

    pool: Pool
    claim: Claimed

    async def holds(self) -> None:
        """Ask its emberd whether the member's lease holds."""
        proof = LeaseProof("r1", self.claim.epoch, self.claim.tag, 60.0)
        await self.pool.client.bind(self.claim.pod, proof, {}, ())


@pytest.fixture
async def used(
    api: tuple[OnePod, Gangs], index: RedisIndex, local_provider: MakeProvider, supervisor: SupervisorProcess
) -> AsyncIterator[Used]:
    """It has joined its gang by then."""
    provider, name = local_provider(), new_name()
    async with EmberdClient(supervisor.key) as client:
        metrics, line = Metrics().of(provider.profile.name), WaitingLine(index)
        pool = Pool(provider.profile, index, provider, client, line, "tests", "", supervisor.key, metrics)
        await index.reserve_warm(name, IMAGE)
        assert await start_pod(pool, name, IMAGE) == ""
        used = Used(replace(pool, gangs=api[1]), await claimed(index, "r1"))
        await api[1].join(name, LABEL, used.holds)
        assert api[0].labels == {GANG_LABEL: LABEL}
        await released(index, "r1")
        yield used


async def test_who_connects_it_late_is_refused(api: tuple[OnePod, Gangs], used: Used) -> None:
    """Though it reads the pod when that has left its gang: by then the pod knows that the lease is over."""
    (fake, gangs), seen = api, list[BaseException | None]()

    async def connects_late() -> None:
        fake.left = None
        seen.extend(await asyncio.gather(gangs.join(used.claim.pod.name, LABEL, used.holds), return_exceptions=True))

    fake.left = connects_late
    result = await recycle(used.pool, used.claim.pod.name)
    assert result.outcome is RecycleOutcome.IDLE, result
    assert [type(one) for one in seen] == [PodRefused] and fake.labels == {}


async def test_a_pod_that_does_not_leave_is_taken_again(
    api: tuple[OnePod, Gangs], used: Used, index: RedisIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server does not answer: the pod is not handed on, and the next recycle has it leave."""
    monkeypatch.setattr(recycles, "LEAVE_S", 0.2)
    (fake, _), name, never = api, used.claim.pod.name, asyncio.Event()
    fake.left = never.wait
    with pytest.raises(PoolUnavailable, match="did not leave its gang"):
        await recycle(used.pool, name)
    pod = await index.pod(name)
    assert pod is not None and pod.state is PodState.RECYCLING
    never.set()
    await age(index, name, 31)
    assert (await recycle(used.pool, name)).outcome is RecycleOutcome.IDLE


async def test_only_a_lacking_right_is_for_a_person_to_mend(api: tuple[OnePod, Gangs], used: Used) -> None:
    """A quota that is used up, or a webhook that says no, may be over at the next attempt."""
    fake, gangs = api
    no_right = 'User "w" cannot create resource "networkpolicies" in API group "networking.k8s.io"'
    fake.forbids = f"networkpolicies.networking.k8s.io is forbidden: {no_right} in the namespace"
    with pytest.raises(InvalidInput, match="apply deploy/components/gangs"):
        await gangs.join(used.claim.pod.name, LABEL, used.holds)
    fake.forbids = "networkpolicies is forbidden: exceeded quota: policies, used: 9, limited: 9"
    with pytest.raises(PoolUnavailable, match="exceeded quota"):
        await gangs.join(used.claim.pod.name, LABEL, used.holds)
