"""Taking back what closed holders left: the sweep asks Temporal about a quiet lease's holder."""

import logging

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from emberpool.activities.pools import Pool
from emberpool.activities.recycle import release_request
from emberpool.pool.model.claim import Holder, SandboxRef
from emberpool.pool.model.ids import RequestId

log = logging.getLogger(__name__)


async def release_if_closed(pool: Pool, ref: SandboxRef) -> None:
    """Release a sandbox at once if its holder has ended: its activity was told that nobody knows it any more."""
    lease = await pool.index.lease(ref.request_id)
    if lease is None or lease.detached:
        return
    await sweep_lease(pool, ref.request_id, lease.holder)


async def sweep_lease(pool: Pool, request_id: RequestId, holder: Holder) -> bool:
    """Release and recycle if the holder has ended; True if it had."""
    if await is_open(activity.client(), holder):
        return False
    log.warning("request %s: its holder %s has ended; taking the sandbox back", request_id, holder.workflow_id)
    await release_request(pool, request_id)
    return True


async def is_open(client: Client, holder: Holder) -> bool:
    """Whether the holder still runs. Trouble with the server counts as open: a lease also ends by its hold."""
    client = _of_namespace(client, holder.namespace)
    try:
        if holder.workflow_id is not None:
            return await _workflow_open(client, holder.workflow_id, holder.run_id)
        handle = client.get_activity_handle(holder.activity_id or "", run_id=holder.run_id)
        description = await handle.describe()
        return description.close_time is None
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        log.warning("sweep: the server did not say whether %s runs: %s", holder, error)
        return True


def _of_namespace(client: Client, namespace: str) -> Client:
    """The client for another namespace: pools may be shared, and a workflow is known in its own namespace only."""
    if namespace == client.namespace:
        return client
    return Client(client.service_client, namespace=namespace, data_converter=client.data_converter)


async def _workflow_open(client: Client, workflow_id: str, first_run_id: str) -> bool:
    description = await client.get_workflow_handle(workflow_id).describe()
    if description.raw_description.workflow_execution_info.first_run_id != first_run_id:
        return False  # the id runs again, but as another chain
    return description.status is WorkflowExecutionStatus.RUNNING
