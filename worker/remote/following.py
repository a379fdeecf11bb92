"""Following a running command from outside Temporal.

Each read is a standalone activity that long-polls emberd from a cursor: the output goes through no workflow's history,
and a reader that is slow or gone holds nobody up. When the pod is gone, the command's result has the rest.
"""

import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta

from temporalio.client import ActivityFailureError, Client

from emberpool.activities import names
from emberpool.activities.process_models import FollowOutputInput, FollowOutputOutput
from emberpool.pool.model.command import CommandResult
from emberpool.pool.model.ids import ExecutionId
from emberpool.pool.model.session import SessionWhere
from emberpool.pool.model.stream import Cursor, OutputRead, rest_of
from emberpool.workflows.dispatch import HEARTBEAT_TIMEOUT, RETRY

READ_WAIT_S = 10.0
MARGIN = timedelta(seconds=60)


async def follow(
    client: Client,
    where: SessionWhere,
    task_queue: str,
    ended: Callable[[], Awaitable[CommandResult | None]],
    cursor: Cursor | None = None,
    prefix: str = "",
) -> AsyncGenerator[OutputRead]:
    """Every piece of output from the cursor on; the last one is `complete`.

    Args:
        ended: the command's result once there is one; asked while its output cannot be read, and it may wait a little.
        prefix: beginning of the execution's id, if `where` names none.
    """
    at, execution = cursor or Cursor(), ExecutionId(where.execution)
    while True:
        seen = await _read(client, where, task_queue, execution, at, prefix)
        execution = execution or seen.execution_id
        if seen.held and seen.known:
            at = seen.output.cursor
            yield seen.output
            if seen.output.complete:
                return
            continue
        result = await ended()
        if result is not None:
            break
    while not (rest := rest_of(result, at)).complete:  # of a long output the head comes first, then the tail
        at = rest.cursor
        yield rest
    yield rest


async def _read(
    client: Client, where: SessionWhere, task_queue: str, execution: ExecutionId, at: Cursor, prefix: str
) -> FollowOutputOutput:
    """One read; if it fails, the command's own end will tell why."""
    if where.ref is None:
        return FollowOutputOutput()
    given = FollowOutputInput(ref=where.ref, execution_id=execution, cursor=at, wait_s=READ_WAIT_S, prefix=prefix)
    try:
        answer: FollowOutputOutput = await client.execute_activity(
            names.FOLLOW_OUTPUT,
            given,
            id=f"emberpool-follow/{uuid.uuid4().hex}",
            task_queue=names.wait_queue(task_queue),
            result_type=FollowOutputOutput,
            start_to_close_timeout=timedelta(seconds=READ_WAIT_S) + MARGIN,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=RETRY,
            summary="follow output",
        )
    except ActivityFailureError:
        return FollowOutputOutput()
    return answer
