"""Record one history of every workflow into tests/histories/: `.venv/bin/python tests/record_histories.py`.

Done once per released version; the recorded files stay, and `test_histories_replay.py` replays them all.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from fixtures.stack import PROFILE, running_site, site_settings
from scenarios.flows import Commands, HandOver
from scenarios.policies import POLICY, task, two_tries
from temporalio.client import WorkflowHistory
from temporalio.worker import Worker

from emberpool.activities import names
from emberpool.pool.model.command import Command
from emberpool.pool.model.gang_job import GangJobInput
from emberpool.pool.model.rollout import RolloutBatchInput
from emberpool.worker.stack.embedded import EmbeddedStack, StackOptions
from emberpool.workflows.batch import RolloutBatch
from emberpool.workflows.gang_job import GangJob
from emberpool.workflows.tool_call import ToolCall, ToolCallInput

FOLDER = Path(__file__).parent / "histories"


async def record(version: str) -> None:
    """Run each workflow once on real servers and keep what happened."""
    histories: dict[str, WorkflowHistory] = {}
    with tempfile.TemporaryDirectory() as data:
        options = StackOptions(Path(data), ephemeral=True, profiles=(PROFILE,), workers=0)
        async with EmbeddedStack(options) as stack, running_site(stack, site_settings(stack)) as site:
            client, queue = site.client, site.queue
            call = ToolCallInput(profile="py", caller="c", command=Command(shell="echo hi"), task_queue=queue)
            await client.execute_workflow(ToolCall.run, call, id="tool-call", task_queue=queue)
            plan = site.plan(commands=("echo 1", "exit 2"))
            await client.execute_workflow(Commands.run, plan, id="commands", task_queue=queue)
            await client.execute_workflow(HandOver.run, site.plan(), id="hand-over", task_queue=queue)
            gang = GangJobInput(
                profile="py",
                caller="c",
                size=2,
                commands=(Command(shell="sleep 9"), Command(shell="exit 3")),
                task_queue=queue,
            )
            await client.execute_workflow(GangJob.run, gang, id="gang-job", task_queue=queue)
            batch = RolloutBatchInput(
                batch_id="b",
                profile="py",
                caller="c",
                policy=POLICY,
                policy_task_queue="p",
                tasks=(task(0),),
                task_queue=queue,
            )
            async with Worker(client, task_queue="p", activities=[two_tries]):
                await client.execute_workflow(RolloutBatch.run, batch, id="batch", task_queue=queue)
            manager = names.pool_manager_id(site.settings.deployment, "py")
            ids = (
                "tool-call",
                "commands",
                "hand-over",
                "gang-job",
                "batch",
                "batch/shard-0",
                "batch/shard-0/000000-answer_0",
                manager,
            )
            for workflow_id in ids:
                kept = "pool-manager" if workflow_id == manager else workflow_id.replace("/", "-")
                histories[kept] = await client.get_workflow_handle(workflow_id).fetch_history()
    folder = FOLDER / version
    folder.mkdir(parents=True, exist_ok=True)
    for name, history in histories.items():
        (folder / f"{name}.json").write_text(history.to_json())
        print(folder / f"{name}.json", len(history.events), "events")


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)
