"""`/healthz` and `/readyz`, as a cluster's kubelet asks them, with a real Redis and an API server with faults."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
from fixtures.faulty_api import FaultyApi, faulty_api, kubeconfig
from fixtures.redis import build
from fixtures.servers import Server, in_memory
from fixtures.waiting import wait_until

from emberpool.activities.pools import Pools
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.profile import Profile
from emberpool.worker.connections import open_pools
from emberpool.worker.metrics_server import MetricsServer
from emberpool.worker.settings import Settings

PROFILE = Profile.model_validate({"name": "py", "provider": "kubernetes", "images": {"base": "registry.example/py:1"}})


@asynccontextmanager
async def worker(folder: Path, redis: Server, fake: FaultyApi) -> AsyncGenerator[str]:
    """The endpoint of a worker with one pool."""
    key = folder / "key"
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    config = kubeconfig(folder, fake.address)
    settings = Settings(profiles=(PROFILE,), redis_url=redis.url, pool_key_file=key, kubernetes_config=config)
    async with AsyncExitStack() as stack:
        pools = Pools(1.0, 30.0)
        opened = await open_pools(settings, stack)
        pools.fill(opened)
        index = opened[0].index
        assert isinstance(index, RedisIndex)
        await build(index)
        try:
            await opened[0].provider.list()
        except PoolUnavailable:
            assert fake.unauthorized, "only an API that refuses us is the test's own doing"
        server = await stack.enter_async_context(MetricsServer("127.0.0.1:0", pools))
        yield server.url.removesuffix("/metrics")


async def ask(url: str) -> tuple[int, str]:
    """Status and text."""
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return answer.status, await answer.text()


async def test_ready_means_that_the_index_answers(tmp_path: Path) -> None:
    """Alive all the time; ready while Redis answers, and again once it is back."""
    async with Server(tmp_path / "redis", *in_memory()) as redis, faulty_api(tmp_path) as (fake, _):
        async with worker(tmp_path, redis, fake) as url:
            assert await ask(f"{url}/readyz") == (200, "py: ok\n")
            await redis.kill()
            status, text = await ask(f"{url}/readyz")
            assert status == 503 and text.startswith("py: index: "), text
            assert await ask(f"{url}/healthz") == (200, "ok\n")


async def test_an_api_that_refuses_us_is_told(tmp_path: Path) -> None:
    """aron-muon/KubeCodeRun#72: a token that is refused for good shows where an operator looks. The worker stays ready:
    warm pods are claimed without the API."""
    async with Server(tmp_path / "redis", *in_memory()) as redis, faulty_api(tmp_path) as (fake, _):
        fake.unauthorized = True
        async with worker(tmp_path, redis, fake) as url:

            async def told() -> bool:
                status, text = await ask(f"{url}/readyz")
                assert status == 200
                return "py: ok, provider: the Kubernetes API refuses the watch: 401" in text

            await wait_until(told)
