"""A worker that dies is replaced by one that finds the command again: it ran once (agentarea/agentarea#320)."""

import os
import signal
import uuid
from pathlib import Path

from fixtures.stack import site_settings
from fixtures.waiting import wait_until
from fixtures.worker import worker_process
from scenarios.flows import FLOWS, Commands, Plan
from temporalio.client import Client
from temporalio.worker import Worker

from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.stack.embedded import EmbeddedStack

COUNT = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.7; done"


async def test_a_killed_workers_command_ran_once(stack: EmbeddedStack, tmp_path: Path) -> None:
    """SIGKILL in the middle of a command that counts: a second worker re-attaches, each number comes once."""
    settings = site_settings(stack)
    client = await Client.connect(stack.temporal_address, plugins=[EmberpoolPlugin()])
    plan = Plan(
        profile="py",
        task_queue=settings.task_queue,
        commands=(f"date +%N >> starts; {COUNT}", "cat starts"),
        heartbeat_s=2.0,
    )
    flows = f"flows-{uuid.uuid4().hex[:8]}"
    async with Worker(client, task_queue=flows, workflows=FLOWS):
        async with worker_process(settings, stack, tmp_path, "first") as first:
            handle = await client.start_workflow(Commands.run, plan, id=f"count-{flows}", task_queue=flows)

            async def counting() -> bool:
                described = await handle.describe()
                pending = described.raw_description.pending_activities
                return any(b'"tail":"1' in p.data for one in pending for p in one.heartbeat_details.payloads)

            await wait_until(counting, 60)
            async with worker_process(settings, stack, tmp_path, "second"):
                os.kill(first.pid, signal.SIGKILL)
                seen = await handle.result()
    assert seen.results[0].stdout == b"".join(b"%d\n" % i for i in range(1, 9))
    assert seen.results[0].exit_code == 0
    assert len(seen.results[1].stdout.splitlines()) == 1, "the command was started more than once"
    await client.get_workflow_handle(f"emberpool-pool/{settings.deployment}/py").terminate("the test is over")
