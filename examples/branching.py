"""A rollout that branches: one sandbox is set up, and three go on from its checkpoint, each its own way.

    emberpool dev                          # in one terminal; prints the address
    python examples/branching.py           # in another; TEMPORAL_ADDRESS names it, if it is not 127.0.0.1:7233

The setting up, which may take minutes, is paid for once. What one branch does to its files no other one sees.
"""

import asyncio
import os
import sys
import uuid

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from emberpool import EmberpoolPlugin
from emberpool.activities.names import DEFAULT_TASK_QUEUE
from emberpool.pool.model.checkpoint import Checkpoint
from emberpool.pool.model.frozen import Frozen
from emberpool.workflows.sandbox import Sandbox

SET_UP = """
mkdir -p repo && cd repo && printf 'def area(w, h):\\n    return w + h\\n' > shapes.py
printf 'from shapes import area\\nassert area(3, 4) == 12\\nprint("passed")\\n' > check.py
"""
FIXES = ("s/w + h/w - h/", "s/w + h/w * h/", "s/w + h/w ** h/")
"""What a model might try next, each as an edit."""


class Branching(Frozen):
    """Where it runs."""

    profile: str
    task_queue: str
    """Of emberpool."""


class Branched(Frozen):
    """What came of it."""

    checkpoint: Checkpoint
    passed: tuple[bool, ...]
    """By branch."""


@workflow.defn
class Branches:
    """Sets up once, then tries every fix from the same state."""

    @workflow.run
    async def run(self, given: Branching) -> Branched:
        async with Sandbox.open(profile=given.profile, caller="branching", task_queue=given.task_queue) as trunk:
            (await trunk.run(SET_UP)).check()
            state = await trunk.checkpoint()
        passed = await asyncio.gather(*(self._try(given, state, fix) for fix in FIXES))
        return Branched(checkpoint=state, passed=tuple(passed))

    async def _try(self, given: Branching, state: Checkpoint, fix: str) -> bool:
        branch = Sandbox.open(profile=given.profile, caller="branching", from_=state, task_queue=given.task_queue)
        async with branch:
            (await branch.run(["sed", "-i", fix, "repo/shapes.py"])).check()
            return (await branch.run(["python3", "check.py"], cwd="/work/repo")).ok


async def main() -> int:
    """Run it once; exit status 0 if just the right fix passed."""
    address = os.environ.get("TEMPORAL_ADDRESS", "127.0.0.1:7233")
    client = await Client.connect(address, plugins=[EmberpoolPlugin()])
    queue = f"branching-{uuid.uuid4().hex[:8]}"
    given = Branching(
        profile=os.environ.get("EXAMPLE_PROFILE", "default"),
        task_queue=os.environ.get("EMBERPOOL_TASK_QUEUE", DEFAULT_TASK_QUEUE),
    )
    async with Worker(client, task_queue=queue, workflows=[Branches]):
        done: Branched = await client.execute_workflow(Branches.run, given, id=queue, task_queue=queue)
    print(f"checkpoint {done.checkpoint.sha256[:12]}: {done.checkpoint.bytes} bytes of image {done.checkpoint.image}")
    for fix, passed in zip(FIXES, done.passed, strict=True):
        print(f"{fix}: {'passed' if passed else 'failed'}")
    return 0 if done.passed == (False, True, False) else 1


if __name__ == "__main__":
    status = asyncio.run(main())
    sys.stdout.flush()
    os._exit(status)  # a process that used Temporal's client may crash as it exits: temporalio/sdk-python#300
