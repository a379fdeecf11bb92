"""The interceptor that carries the current sandbox from a workflow to its activities, in a header.

Nothing is sent outside `async with sandbox.current():`, so other activities and other workflows look as before. Our own
activities get a heartbeat time-out where whoever schedules them left it out.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle

from emberpool.activities import names
from emberpool.activities.agent_tools import HERE, AgentCalls, Here
from emberpool.activities.current import CURRENT, from_headers, to_headers
from emberpool.workflows.dispatch import HEARTBEAT_TIMEOUT, RETRY
from emberpool.workflows.plain import refuse_several

TOOL_NAMES = frozenset({names.SANDBOX_BASH, names.SANDBOX_READ, names.SANDBOX_WRITE})
OURS = "emberpool."
"""What the names of our other activities begin with."""
TOOL_TIMEOUT = timedelta(minutes=5)
"""Of a tool's activity that names no time of its own."""


class CurrentSandboxInterceptor(Interceptor):
    """Workflow side: adds the header. Activity side: puts the ref and this worker's calls where tools find them."""

    def __init__(self, agent_calls: Callable[[], AgentCalls | None]) -> None:
        """`agent_calls` is None in a worker that serves no pools: its tools find no sandbox."""
        self._agent_calls = agent_calls

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wraps each activity of the worker."""
        return _Activities(next, self._agent_calls)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        """Wraps each workflow of the worker."""
        return _Workflows


class _Activities(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, agent_calls: Callable[[], AgentCalls | None]) -> None:
        super().__init__(next)
        self._agent_calls = agent_calls

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        ref, calls = from_headers(input.headers), self._agent_calls()
        if ref is None or calls is None:
            return await super().execute_activity(input)
        token = HERE.set(Here(calls, ref))
        try:
            return await super().execute_activity(input)
        finally:
            HERE.reset(token)


class _Workflows(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        refuse_several(workflow.info().workflow_type, input.args)
        return await super().execute_workflow(input)


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:
        if input.heartbeat_timeout is None and (input.activity in TOOL_NAMES or input.activity.startswith(OURS)):
            # Without one a dead worker is noticed at the activity's end only, and a cancellation waits as long.
            input.heartbeat_timeout = HEARTBEAT_TIMEOUT
        current = CURRENT.get()
        if current is not None:
            input.headers = to_headers(input.headers, current.ref)
            if input.activity in TOOL_NAMES:
                _complete(input, current.task_queue)
        return super().start_activity(input)


def _complete(input: StartActivityInput, task_queue: str) -> None:
    """What a framework's `activity_as_tool` was not told: where our activities run, and for how long."""
    input.task_queue = input.task_queue or task_queue
    if input.start_to_close_timeout is None and input.schedule_to_close_timeout is None:
        input.start_to_close_timeout = TOOL_TIMEOUT
    input.retry_policy = input.retry_policy or RETRY
