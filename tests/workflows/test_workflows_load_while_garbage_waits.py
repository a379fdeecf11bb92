"""A workflow loads into the sandbox whatever the garbage collector finds at that moment."""

import gc
import importlib
import sys
from collections.abc import Generator

import pytest
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import _Definition  # pyright: ignore[reportPrivateUsage]

from emberpool.worker.plugin import extended_runner
from emberpool.workflows.tool_call import ToolCall


class Garbage:
    """A cycle whose finalizer imports a module that is not loaded, and leaves the next cycle behind."""

    left = True

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        if Garbage.left:
            Garbage()
        sys.modules.pop("colorsys", None)
        importlib.import_module("colorsys")


@pytest.fixture
def garbage() -> Generator[None]:
    """Garbage at all times, and a collector that runs at nearly every allocation."""
    thresholds = gc.get_threshold()
    Garbage.left = True
    Garbage()
    gc.set_threshold(1, 10_000, 10_000)
    try:
        yield
    finally:
        Garbage.left = False
        gc.set_threshold(*thresholds)
        gc.collect()


@pytest.mark.usefixtures("garbage")
async def test_a_finalizers_import_breaks_no_load() -> None:
    """The module loads (temporalio/sdk-python#585: KeyError), and the collector goes on afterwards."""
    extended = extended_runner(SandboxedWorkflowRunner())
    extended.prepare_workflow(_Definition.must_from_class(ToolCall))
    assert gc.isenabled()
