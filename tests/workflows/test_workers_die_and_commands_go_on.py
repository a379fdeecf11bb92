"""A worker that dies is replaced by one that finds the command again: it ran once (agentarea/agentarea#320)."""

import os
import signal
import sys
import uuid
from pathlib import Path

from fixtures.stack import site_settings
from fixtures.waiting import wait_until
from scenarios.flows import FLOWS, Commands, Plan
from temporalio.client import Client
from temporalio.worker import Worker

from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.settings import Settings
from emberpool.worker.stack.embedded import EmbeddedStack
from emberpool.worker.stack.process import ChildProcess

COUNT = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.7; done"


def worker_process(settings: Settings, stack: EmbeddedStack, folder: Path, name: str) -> ChildProcess:
    """`emberpool worker` as a process of its own, told everything by its environment."""
    profiles = folder / "profiles.yaml"
    profiles.write_text("[" + ",".join(profile.model_dump_json() for profile in settings.profiles) + "]")
    given = settings.model_dump(mode="json", exclude={"profiles", "profiles_file"}, exclude_none=True)
    env = {f"EMBERPOOL_{key.upper()}": str(value) for key, value in given.items()}
    env |= {"TEMPORAL_ADDRESS": stack.temporal_address, "EMBERPOOL_PROFILES_FILE": str(profiles)}
    env |= {"PATH": os.environ["PATH"], "PYTHONSAFEPATH": "1", "HOME": os.environ.get("HOME", "/")}
    argv = [sys.executable, "-m", "emberpool.worker.cli", "worker"]
    return ChildProcess(argv, env=env, log=folder / f"{name}.log", name=name)


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
