"""Workflows of several Temporal namespaces may share a pool, and nobody speaks for another's namespace."""

import uuid
from types import SimpleNamespace
from typing import cast

from fixtures.stack import Site
from fixtures.waiting import wait_until
from google.protobuf.duration_pb2 import Duration
from scenarios.flows import Commands
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.testing import ActivityEnvironment

from emberpool.activities.pools import Pool
from emberpool.activities.sweep import is_open
from emberpool.pool.model.claim import ClaimSpec, Holder, SandboxRef
from emberpool.pool.model.ids import RequestId
from emberpool.worker.plugin import EmberpoolPlugin


async def test_the_sweep_asks_in_the_holders_own_namespace(site: Site) -> None:
    """A workflow that runs in another namespace than the sweeping worker's is no closed holder."""
    other = f"ns-{uuid.uuid4().hex[:8]}"
    kept = Duration(seconds=86400)
    await site.client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=other, workflow_execution_retention_period=kept)
    )
    there = await Client.connect(
        site.client.service_client.config.target_host, namespace=other, plugins=[EmberpoolPlugin()]
    )
    holders: list[Holder] = []

    async def started() -> bool:
        try:
            handle = await there.start_workflow(Commands.run, site.plan(), id=uuid.uuid4().hex, task_queue="nobody")
        except RPCError:
            return False  # a new namespace is known everywhere only after some seconds
        run = handle.first_execution_run_id or ""
        holders.append(Holder(namespace=other, workflow_id=handle.id, run_id=run))
        return True

    await wait_until(started, 30)
    assert await is_open(site.client, holders[0])
    await there.get_workflow_handle(holders[0].workflow_id or "").terminate("test")
    assert not await is_open(site.client, holders[0])


def test_a_tag_is_of_the_namespace_that_calls() -> None:
    """A ref that names another namespace as its holder's gets no pod that was used there."""
    pool = cast(Pool, SimpleNamespace(pool_key=b"k" * 32, tenant="t"))
    tags = [
        ActivityEnvironment().run(
            Pool.tag,
            pool,
            SandboxRef(
                request_id=RequestId("r"),
                spec=ClaimSpec(profile="py", caller="c"),
                holder=Holder(namespace=namespace, workflow_id="w", run_id="r"),
            ),
        )
        for namespace in ("default", "elsewhere")
    ]
    assert tags[0] == tags[1]
