"""A workflow's module may import our clients as they are, and any library the documented way."""

import uuid
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
