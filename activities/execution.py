"""The identity of one scheduled activity, over all its attempts."""

from temporalio import activity

from emberpool.pool.model.ids import ExecutionId, activity_execution


def execution_id() -> ExecutionId:
    """One per scheduled activity, the same in every attempt, unique after continue-as-new too."""
    info = activity.info()
    if info.workflow_id:
        return activity_execution(info.namespace, info.workflow_id, info.workflow_run_id or "", info.activity_id)
    return activity_execution(info.namespace, "-", info.activity_run_id or "", info.activity_id)
