"""Loading workflows into Temporal's sandbox on Python 3.11, where the garbage collector may not run meanwhile.

The sandbox imports a workflow's module anew for each run. Before Python 3.12 an import that a finalizer makes within
another import breaks the outer one's lock, as `KeyError: <thread id>` (python/cpython#91351): so a never awaited
coroutine, collected at the wrong moment, failed a worker's start or a workflow task (temporalio/sdk-python#585).
"""

import gc
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

IMPORTS_NEST = sys.version_info >= (3, 12)
"""Whether an import within an import is safe."""


class _Pause:
    """Counts who wants no collection; the last to leave lets the collector go on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._was_enabled = False

    @contextmanager
    def held(self) -> Generator[None]:
        with self._lock:
            if self._users == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0 and self._was_enabled:
                    gc.enable()


_pause = _Pause()


@dataclass(frozen=True)
class SteadyWorkflowRunner(SandboxedWorkflowRunner):
    """The SDK's sandbox, with no garbage collected while it loads a workflow's module."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Load the workflow's module and make its instance."""
        with _pause.held():
            return super().create_instance(det)


def steady(runner: SandboxedWorkflowRunner) -> SandboxedWorkflowRunner:
    """The runner with steady loading, where this Python needs it; a subclass of the user's own stays as it is."""
    if IMPORTS_NEST or type(runner) is not SandboxedWorkflowRunner:
        return runner
    return SteadyWorkflowRunner(runner.restrictions, runner.runner_class)
