"""What the parts of a sandbox (files, processes, shells, ports) need of their handle, in a workflow or outside."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from temporalio import workflow
from temporalio.workflow import ActivityConfig

from emberpool.activities.models import CallInput, CallOutput
from emberpool.pool.model.claim import SandboxRef

Out = TypeVar("Out", bound=CallOutput)


class Invoker(ABC):
    """A handle whose calls become activities."""

    @property
    @abstractmethod
    def task_queue(self) -> str:
        """Name of emberpool's task queues."""

    @abstractmethod
    async def invoke(
        self,
        name: str,
        argument: Callable[[SandboxRef], CallInput],
        result: type[Out],
        *,
        summary: str,
        queue: str | None = None,
        config: ActivityConfig | None = None,
    ) -> Out:
        """Call one of emberpool's activities on this sandbox; `queue` defaults to that of short work."""


def new_name() -> str:
    """A name for a process or a shell; in a workflow one that replay finds again."""
    return (workflow.uuid4() if workflow.in_workflow() else uuid.uuid4()).hex[:12]
