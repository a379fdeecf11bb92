"""emberpool's typed errors on the far side of a Temporal client."""

from temporalio.client import ActivityFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from emberpool.activities.errors import typed
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.session import CommandFault


def typed_failure(error: ActivityFailureError | WorkflowUpdateFailedError) -> EmberpoolError | None:
    """The typed error that a call ended with, or None if it is none of ours."""
    return typed(error.cause)


def typed_fault(fault: CommandFault) -> Exception:
    """The error that a session's command ended with."""
    crossed = ApplicationError(fault.message, *fault.details, type=fault.type, non_retryable=True)
    return typed(crossed) or crossed
