"""The example for agent frameworks does what its text says, as a program of its own."""

import asyncio
import os
import sys
from pathlib import Path

from fixtures.stack import Site

from emberpool.worker.stack.embedded import EmbeddedStack

EXAMPLE = Path(__file__).parents[2] / "examples" / "agents_at_work.py"


async def test_both_frameworks_solve_everything(stack: EmbeddedStack, site: Site) -> None:
    """Nine problems are solved, three each way, and the exit status is 0."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "EXAMPLE_PROFILE": "py"}
    env |= {"TEMPORAL_ADDRESS": stack.temporal_address, "EMBERPOOL_TASK_QUEUE": site.queue}
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLE), env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(180):
        out, errors = await process.communicate()
    lines = out.decode().splitlines()
    assert process.returncode == 0, errors.decode()[-2000:]
    assert len(lines) == 9 and all(" solved on py-" in line and "fixed" in line for line in lines)
