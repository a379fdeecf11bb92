"""The identity of one scheduled activity, over all its attempts."""

from temporalio import activity

from emberpool.pool.model.ids import ExecutionId


def execution_id() -> ExecutionId:
    """One per scheduled activity, the same in every attempt, unique after continue-as-new too."""
    info = activity.info()
    owner = f"{info.workflow_id}/{info.workflow_run_id}" if info.workflow_id else f"-/{info.activity_run_id}"
    return ExecutionId(f"{info.namespace}/{owner}/{info.activity_id}")
