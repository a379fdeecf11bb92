"""How workflows call emberpool's activities: by name, with bounded retries, typed errors and a summary for people."""

import asyncio
import dataclasses
from datetime import timedelta
from typing import TypeVar, cast

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityCancellationType, ActivityConfig

from emberpool.activities.errors import NON_RETRYABLE, from_temporal
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.frozen import Frozen

Out = TypeVar("Out", bound=Frozen)

HEARTBEAT_TIMEOUT = timedelta(seconds=15)
"""Without a heartbeat for this long, an activity's worker counts as dead. Workers beat every 3 s."""

RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=10),
    maximum_attempts=12,
    non_retryable_error_types=NON_RETRYABLE,
)
"""About a minute of trying; longer outages reach the workflow as a typed error."""

PATIENT = dataclasses.replace(RETRY, maximum_attempts=40)
"""Some six minutes: for a release, whose failure would fail a workflow that has its result already."""

HASTY = dataclasses.replace(RETRY, maximum_attempts=2)
"""For a release after the index was away for as long as the caller would wait."""


MAX_ARGUMENT = 2 * 1024 * 1024 - 64 * 1024
"""Bytes of an argument as JSON: Temporal's default limit of one payload, less what may come around it."""


async def call(name: str, argument: Frozen, result: type[Out], *, summary: str, config: ActivityConfig) -> Out:
    """Execute one activity by name.

    Raises:
        InvalidInput: the argument is too large for a payload; nothing was scheduled.
        EmberpoolError: the typed error that the activity failed with.
        ActivityError: it was cancelled or timed out, or failed otherwise.
        asyncio.CancelledError: the caller was cancelled meanwhile.
    """
    demand_fits(name, argument)
    options: ActivityConfig = {
        "start_to_close_timeout": timedelta(minutes=5),
        "heartbeat_timeout": HEARTBEAT_TIMEOUT,
        "retry_policy": RETRY,
        "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        "summary": summary,
    }
    options.update(config)
    cancels = _cancels()
    try:
        output = cast(Out, await workflow.execute_activity(name, argument, result_type=result, **options))
    except ActivityError as error:
        typed = from_temporal(error)
        if typed is None:
            raise
        raise typed from error
    if _cancels() > cancels:
        # The activity ended before the cancellation reached it: waiting for its end has swallowed the cancellation.
        raise asyncio.CancelledError(f"cancelled while {name} ended")
    return output


def demand_fits(name: str, argument: Frozen) -> None:
    """Raises InvalidInput for an argument over what a payload takes.

    It would fail the workflow's task, which is tried again without end (pydantic/pydantic-ai#7164).
    """
    size = len(argument.model_dump_json())
    if size > MAX_ARGUMENT:
        raise InvalidInput(
            f"argument of {name}",
            f"{size} bytes of JSON are over the {MAX_ARGUMENT} that one payload takes: upload what is large as files",
        )


def _cancels() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
