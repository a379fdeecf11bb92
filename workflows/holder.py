"""What names a sandbox and who holds it, as workflow code makes them."""

from temporalio import workflow

from emberpool.pool.model.claim import Holder
from emberpool.pool.model.ids import RequestId


def new_request() -> RequestId:
    """A request id that replay finds again."""
    return RequestId(workflow.uuid4().hex)


def this_workflow() -> Holder:
    """The workflow that runs, as a holder of leases."""
    info = workflow.info()
    return Holder(namespace=info.namespace, workflow_id=info.workflow_id, run_id=info.first_execution_run_id)
