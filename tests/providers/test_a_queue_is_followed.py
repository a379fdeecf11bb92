"""The queue observer goes on whatever stands in the queue, and from what the one before it has told."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fixtures.faulty_api import kubeconfig
from fixtures.waiting import wait_until
from temporalio import workflow
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import ActivityEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from emberpool.activities import names, queue_share
from emberpool.activities.line import WaitingLine
from emberpool.activities.metrics import Metrics
from emberpool.activities.models import ShareOfQueue
from emberpool.activities.pools import Pool
from emberpool.activities.queue_share import follow_queue, share_now
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.profile import Profile
from emberpool.pool.providers.kubernetes.access import Access, KubernetesApi
from emberpool.pool.providers.kubernetes.queue import KueueQueue
from emberpool.pool.providers.local.provider import LocalProvider
from emberpool.worker.stack.embedded import EmbeddedStack
from emberpool.workflows.pool_manager import PoolStatus

PROFILE = {"name": "py", "kubernetes": {"cpu": 1, "queue": {"cluster_queue": "shared"}}}
Json = dict[str, Any]


@workflow.defn(name="manager-of-a-followed-pool")
class Manager:
    """What a pool's manager hears of its queue."""

    def __init__(self) -> None:
        self._heard: list[int | None] = []

    @workflow.run
    async def run(self, before: int | None) -> None:
        """Until cancelled. `before`: what the observer before had told."""
        self._heard.insert(0, before)
        await workflow.wait_condition(lambda: False)

    @workflow.signal(name=names.SET_QUEUE_SHARE)
    def set_queue_share(self, share: ShareOfQueue) -> None:
        """As the manager's."""
        self._heard.append(share.max_pods)

    @workflow.query(name=names.POOL_STATUS)
    def status(self) -> PoolStatus:
        """As the manager's."""
        return PoolStatus(max_pods=9, min_warm=0, version=1, queue_share=self._heard[-1])

    @workflow.query
    def heard(self) -> list[int | None]:
        """All of it."""
        return self._heard


@dataclass
class Kueue:
    """Kueue's objects as an API server lists them: a queue of eight cores."""

    folder: Path
    address: str = ""
    quota: str = "8"
    workloads: list[Json] = field(default_factory=list[Json])

    async def answer(self, request: web.Request) -> web.Response:
        """Every request of the API."""
        kind = request.path.split("/")[4]
        if kind == "clusterqueues":
            resources = [{"name": "cpu", "nominalQuota": self.quota}]
            spec = {"resourceGroups": [{"flavors": [{"name": "any", "resources": resources}]}]}
            return web.json_response({"metadata": {"name": "shared"}, "spec": spec})
        local = {"metadata": {"namespace": "default", "name": "line"}, "spec": {"clusterQueue": "shared"}}
        return web.json_response({"metadata": {}, "items": [local] if kind == "localqueues" else self.workloads})

    def wants(self, cpu: Any) -> None:
        """Another workload waits for so many cores."""
        container = {"name": "x", "resources": {"requests": {"cpu": cpu}}}
        sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]
        about = {"name": f"w{len(self.workloads)}", "namespace": "default"}
        self.workloads.append({"metadata": about, "spec": {"queueName": "line", "podSets": sets}})

    def kubeconfig(self) -> Path:
        """Write the file by which it is reached."""
        return kubeconfig(self.folder, self.address)


@pytest.fixture
async def kueue(tmp_path: Path) -> AsyncIterator[Kueue]:
    """On loopback; its kubeconfig is not written yet."""
    kueue, app = Kueue(tmp_path), web.Application()
    app.router.add_get("/{path:.*}", kueue.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kueue.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield kueue
    await runner.cleanup()


@pytest.fixture
async def pool(kueue: Kueue, index: RedisIndex, tmp_path: Path) -> AsyncIterator[Pool]:
    """A pool of no pods that follows the queue."""
    profile = Profile.model_validate(PROFILE)
    api = KubernetesApi(Access(namespace="default", kubeconfig=str(tmp_path / "kubeconfig")))
    async with AsyncExitStack() as opened:
        opened.push_async_callback(api.aclose)
        client = await opened.enter_async_context(EmberdClient(b"k" * 32))
        provider, metrics = LocalProvider(profile, tmp_path / "s"), Metrics().of("py")
        opened.push_async_callback(provider.aclose)
        line, queue = WaitingLine(index), KueueQueue(api, "shared")
        yield Pool(profile, index, provider, client, line, tmp_path.name, "", b"k" * 32, metrics, queue=queue)


async def test_an_odd_workload_does_not_count(kueue: Kueue, pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """It is named in the log; those beside it count."""
    kueue.kubeconfig()
    for cpu in ("1e3m", "lots", "1500000u", {"odd": 1}, "500000000n", "1e0"):
        kueue.wants(cpu)
    del kueue.workloads[0]["spec"]["podSets"]  # nor does one without pods
    assert await share_now(pool) == 5
    assert "3 workloads in queue shared do not count: w0: KeyError 'podSets'" in caplog.text


async def test_an_odd_queue_is_not_followed(kueue: Kueue, pool: Pool) -> None:
    """Nor one that has none of the pool's resource: what was told of it before stays."""
    kueue.kubeconfig()
    kueue.quota = "much"
    with pytest.raises(PoolUnavailable, match=r"queue shared cannot be read: ValueError 'much' is no quantity"):
        await share_now(pool)
    kueue.quota = "0"
    assert await share_now(pool) == 0
    assert pool.queue is not None
    with pytest.raises(PoolUnavailable, match=r"has no memory: .* one of \['cpu'\]"):
        (await pool.queue.look()).standing("memory")


@asynccontextmanager
async def followed(pool: Pool, stack: EmbeddedStack, before: int | None) -> AsyncGenerator[Any]:
    """The pool's manager, while the queue is followed."""
    client = await Client.connect(stack.temporal_address, data_converter=pydantic_data_converter)
    name, queue, runner = names.pool_manager_id(pool.deployment, "py"), pool.deployment, UnsandboxedWorkflowRunner()
    async with Worker(client, task_queue=queue, workflows=[Manager], workflow_runner=runner):
        manager = await client.start_workflow(Manager.run, before, id=name, task_queue=queue)
        following = asyncio.create_task(ActivityEnvironment(client=client).run(follow_queue, pool))
        try:
            yield manager
        finally:
            assert not following.done(), "it goes on until it is cancelled"
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            await manager.terminate()


async def test_trouble_of_any_kind_is_waited_out(
    kueue: Kueue, pool: Pool, stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a login that is not there yet: the share is told once it is."""
    monkeypatch.setattr(queue_share, "LOOK_S", 0.05)
    async with followed(pool, stack, None) as manager:

        async def failed() -> bool:
            return "does not hear of its queue" in caplog.text

        async def heard() -> bool:
            return bool(await manager.query(Manager.heard) == [None, 8])

        await wait_until(failed)
        kueue.kubeconfig()
        await wait_until(heard)


async def test_the_share_rises_by_steps_from_one_stay_to_the_next(
    kueue: Kueue, pool: Pool, stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The observer before had told four; eight are free now."""
    monkeypatch.setattr(queue_share, "LOOK_S", 0.05)
    kueue.kubeconfig()
    async with followed(pool, stack, 4) as manager:

        async def heard() -> bool:
            return bool((await manager.query(Manager.heard))[-1] == 8)

        await wait_until(heard)
        assert await manager.query(Manager.heard) == [4, 5, 6, 7, 8]
