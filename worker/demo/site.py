"""Where a demo runs: an embedded stack with a deployment and task queues of its own.

Of its own, because the data folder outlives a run: what an earlier run left in Temporal or Redis must not meddle with
this one. Its workflows and results stay to be looked at; its pool manager ends with it.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from temporalio.client import Client
from temporalio.service import RPCError

from emberpool.activities import names
from emberpool.pool.index.connection import connect
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.errors import IndexRebuilding, PoolUnavailable
from emberpool.pool.model.profile import Profile
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.run import connect_client
from emberpool.worker.stack.embedded import EmbeddedStack, StackOptions

WARM_S = 60.0
"""Within this many seconds all pods must be warm; a few take one or two."""

T = TypeVar("T")


@dataclass(frozen=True)
class DemoSite:
    """A running stack with a client."""

    stack: EmbeddedStack
    client: Client
    name: str
    """Of the deployment, of the task queues and of the run."""
    profile: Profile

    @property
    def folder(self) -> Path:
        """Where this run's tasks and results lie."""
        return self.stack.data_dir / "demo" / self.name

    @property
    def policy_queue(self) -> str:
        """Task queue of the policy's activity."""
        return f"{self.name}-policy"

    def ui_address(self, workflow_id: str) -> str:
        """Where a person sees a workflow."""
        if self.stack.ui_url is None:
            return f"that of {self.stack.temporal_address}, workflow {workflow_id}"
        return f"{self.stack.ui_url}/namespaces/{self.stack.temporal_namespace}/workflows/{workflow_id}"

    async def warm(self) -> float:
        """Wait until every pod is warm; seconds that it took.

        Raises:
            PoolUnavailable: they are not within WARM_S.
        """
        begun = time.monotonic()
        while (warm := await self.unused_pods()) < self.profile.min_warm:
            if time.monotonic() - begun > WARM_S:
                raise PoolUnavailable(f"only {warm} of {self.profile.min_warm} pods are warm after {WARM_S:.0f} s")
            await asyncio.sleep(0.1)
        return time.monotonic() - begun

    async def unused_pods(self) -> int:
        """Warm pods that nobody has used yet; 0 while there is no index."""
        redis = await connect(self.stack.settings.redis_url)
        try:
            return (await RedisIndex(redis, self.name, self.profile.name).counts()).idle_fresh
        except IndexRebuilding:
            return 0
        finally:
            await redis.aclose()

    async def while_up(self, work: Awaitable[T]) -> T:
        """The work's value.

        Raises:
            StackError: a part of the stack ended first.
        """
        task, end = asyncio.ensure_future(work), asyncio.ensure_future(self.stack.wait())
        try:
            await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else end.result()
        finally:
            task.cancel()
            end.cancel()
            await asyncio.gather(task, end, return_exceptions=True)


@asynccontextmanager
async def demo_site(data_dir: Path, profile: Profile) -> AsyncGenerator[DemoSite]:
    """Start everything; everything is down again at the end.

    Raises:
        StackError: a part cannot start.
    """
    name = f"demo-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    options = StackOptions(data_dir=data_dir, profiles=(profile,), deployment=name, task_queue=name)
    async with EmbeddedStack(options) as stack:
        client = await _client(stack)
        try:
            yield DemoSite(stack, client, name, profile)
        finally:
            manager = client.get_workflow_handle(names.pool_manager_id(name, profile.name))
            with contextlib.suppress(RPCError):
                await manager.terminate("the demo is over")


async def _client(stack: EmbeddedStack) -> Client:
    # Somebody else's server may need TLS or a key: then Temporal's own configuration says how to reach it.
    if stack.ui_url is None:
        return await connect_client()
    plugin = EmberpoolPlugin()
    return await Client.connect(stack.temporal_address, namespace=stack.temporal_namespace, plugins=[plugin])
