"""Long commands never take the slots that short calls need."""

import asyncio
import uuid

from fixtures.stack import PROFILE, running_site, site_settings
from scenarios.flows import Unblocked

from emberpool.worker.stack.embedded import EmbeddedStack


async def test_commands_that_wait_for_a_file_get_it(stack: EmbeddedStack) -> None:
    """With every command slot taken by a command that waits for a file, the files are written all the same.

    Seen in UKGovernmentBEIS/inspect_k8s_sandbox#126: long commands held every slot, and what they waited for never ran.
    """
    profile = PROFILE.model_copy(update={"max_pods": 2, "min_warm": 0})
    async with running_site(stack, site_settings(stack, profile, max_concurrent_commands=2)) as site:
        names = [f"unblocked-{uuid.uuid4().hex[:8]}" for _ in range(2)]
        plans = [site.plan(caller=name, pause_s=1.0, time_limit_s=50.0) for name in names]
        flows = (
            site.client.execute_workflow(Unblocked.run, plan, id=name, task_queue=site.queue)
            for plan, name in zip(plans, names, strict=True)
        )
        async with asyncio.timeout(60):
            for seen in await asyncio.gather(*flows):
                assert seen.results[0].stdout == b"went"
        await site.settled()
