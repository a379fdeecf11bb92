"""The options by which commands reach Temporal and one of emberpool's deployments on it."""

from typing import TYPE_CHECKING, Annotated

import typer

from emberpool.activities.names import DEFAULT_TASK_QUEUE
from emberpool.pool.model.errors import InvalidInput

if TYPE_CHECKING:
    from temporalio.client import Client

PANEL = "Where"

Address = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Temporal; TEMPORAL_ADDRESS by default.", rich_help_panel=PANEL),
]
Namespace = Annotated[str | None, typer.Option(help="TEMPORAL_NAMESPACE by default.", rich_help_panel=PANEL)]
TemporalProfile = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Profile in Temporal's configuration file.", rich_help_panel=PANEL),
]
TaskQueue = Annotated[
    str,
    typer.Option(metavar="NAME", envvar="EMBERPOOL_TASK_QUEUE", help="emberpool's queues.", rich_help_panel=PANEL),
]
Deployment = Annotated[
    str,
    typer.Option(metavar="NAME", envvar="EMBERPOOL_DEPLOYMENT", help="Whose pools.", rich_help_panel=PANEL),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]

QUEUE = DEFAULT_TASK_QUEUE


async def require_worker(client: "Client", task_queue: str) -> None:
    """See that a worker polls the queue: without one a workflow would start and hang.

    Raises:
        InvalidInput: none does.
    """
    from temporalio.api.enums.v1 import TaskQueueType
    from temporalio.api.taskqueue.v1 import TaskQueue as Queue
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

    kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=Queue(name=task_queue), task_queue_type=kind
    )
    answer = await client.workflow_service.describe_task_queue(request)
    if not answer.pollers:
        raise InvalidInput(
            "--task-queue",
            f"no worker polls {task_queue!r} in namespace {client.namespace!r}; `emberpool dev` runs one, and prints "
            "its queue",
        )
