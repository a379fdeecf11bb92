"""A workflow's module may import our clients as they are, and any library the documented way."""

import asyncio
import sys
import uuid
from asyncio.subprocess import PIPE
from datetime import timedelta

import pytest
from fixtures.stack import Site
from scenarios.importing import Importing
from scenarios.refused import Refused
from temporalio.worker import Worker


async def test_clients_and_passed_through_libraries_do_no_harm(site: Site) -> None:
    """Our clients need nothing; the library for Kubernetes, and one that reads files as it is imported, are passed
    through (temporalio/sdk-python#638). Without that it is refused as the worker is made, not in a workflow's task."""
    queue = f"imports-{uuid.uuid4().hex[:8]}"
    async with Worker(site.client, task_queue=queue, workflows=[Importing]):
        text = await site.client.execute_workflow(
            Importing.run, site.plan(), id=queue, task_queue=queue, execution_timeout=timedelta(seconds=15)
        )
    assert text == '"""\n'
    with pytest.raises(RuntimeError, match="Refused"):
        Worker(site.client, task_queue=queue, workflows=[Refused])


_LOADING = """
import asyncio, sys
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import _Definition
from emberpool.worker.plugin import WORKFLOWS, extended_runner

ran = []

def note(event, arguments):
    if event == "exec" and getattr(arguments[0], "co_name", "") == "<module>":
        ran.append(arguments[0].co_filename)

async def load_all():
    runner = extended_runner(SandboxedWorkflowRunner())
    sys.addaudithook(note)
    for workflow in WORKFLOWS:
        runner.prepare_workflow(_Definition.must_from_class(workflow))

asyncio.run(load_all())
print(len(WORKFLOWS), sorted({name for name in ran if name != "<string>" and "_in_sandbox" not in name}))
"""


async def test_a_run_begins_without_an_import() -> None:
    """What workflows need is loaded as the worker is made. No run imports anything but one file of the SDK, so that the
    first ones on a starved worker do not spend their two seconds on it (temporalio/sdk-python#1834)."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-P", "-c", _LOADING, stdout=PIPE)
    told, _ = await process.communicate()
    count, modules = told.decode().split(maxsplit=1)
    assert (int(count) > 5, modules.strip()) == (True, "[]")
