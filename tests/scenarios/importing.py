"""A workflow in a module that imports our clients and a library that Temporal's sandbox would refuse or load slowly."""

from temporalio import workflow

import emberpool
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.workflows.sandbox import Sandbox
from scenarios.flows import Plan

with workflow.unsafe.imports_passed_through():
    import kubernetes  # pyright: ignore[reportMissingTypeStubs]

    from scenarios.tricks import TEXT

UNUSED = (EmberdClient, RedisIndex, emberpool.ToolClient, emberpool.RemoteSandbox, kubernetes.__name__)
"""What the workflow's module needs elsewhere, and the workflow does not."""


@workflow.defn
class Importing:
    """Runs a command."""

    @workflow.run
    async def run(self, plan: Plan) -> str:
        sandbox = Sandbox.open(profile=plan.profile, caller=plan.caller, task_queue=plan.task_queue)
        async with sandbox:
            return (await sandbox.run(f"echo {TEXT[:3].decode()!r}")).text
