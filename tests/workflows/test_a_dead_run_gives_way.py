"""A run that is interrupted, killed or fails in part holds nothing: the next one gets the whole pool at once."""

import asyncio
import signal
import uuid

import pytest
from fixtures.command_line import EMBERPOOL, clean_env
from fixtures.processes import runs
from fixtures.stack import Site
from fixtures.waiting import wait_until
from scenarios.ends import Run, Several
from temporalio.client import WorkflowFailureError

from emberpool.pool.model.state import PodState

COUNT = 3
"""As many sandboxes as the pool may have pods."""


async def all_run(site: Site, number: int) -> None:
    """Wait until every pod of the pool is held and the commands run."""

    async def held() -> bool:
        return len(await site.index.pods(PodState.LEASED, 10)) == COUNT and runs(f"sleep {number}")

    await wait_until(held)


async def nothing_left(site: Site, *numbers: int) -> None:
    """Wait until no lease is left, and no process of the commands."""
    await site.settled()
    assert not any(runs(f"sleep {number}") for number in numbers)


@pytest.mark.parametrize("how", ["cancelled", "terminated", "failed in one task"])
async def test_a_relaunch_gets_what_the_dead_run_held(site: Site, how: str) -> None:
    """A run that fills the pool is cancelled, terminated (as by a kill: none of its own code runs), or fails in one
    task; the same, started again at once for another caller, gets every pod, and no command of the first one is left.

    Seen in NovaSky-AI/SkyRL#1194 (a relaunch had no budget left) and PrimeIntellect-ai/verifiers#399 (live sandboxes
    were not cleaned up after an interrupt or an exception in one task).
    """
    plan = site.plan(commands=("sleep 5252",), time_limit_s=900, caller="first")
    given = Run(plan=plan, count=COUNT, fails=how == "failed in one task")
    handle = await site.client.start_workflow(Several.run, given, id=uuid.uuid4().hex, task_queue=site.queue)
    await all_run(site, 5252)
    match how:
        case "cancelled":
            await handle.cancel()
        case "terminated":
            await handle.terminate("test")
        case _:
            await handle.signal(Several.fail)
    again = Run(plan=site.plan(commands=("echo again",), caller="second", wait_timeout_s=30), count=COUNT)
    seen = await site.client.execute_workflow(Several.run, again, id=uuid.uuid4().hex, task_queue=site.queue)
    assert seen.texts == ("again\n",) * COUNT
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    await nothing_left(site, 5252)


async def started(site: Site, number: int, time_limit_s: float) -> asyncio.subprocess.Process:
    """`emberpool run -- sleep NUMBER` in a process of its own."""
    address = site.client.service_client.config.target_host
    argv = [*EMBERPOOL, "run", "--profile", "py", "--time-limit", f"{time_limit_s}", "--", "sleep", f"{number}"]
    env = clean_env({"EMBERPOOL_TASK_QUEUE": site.queue, "TEMPORAL_ADDRESS": address})
    quiet = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(*argv, env=env, stdout=quiet, stderr=quiet, start_new_session=True)


async def test_an_interrupted_command_line_leaves_nothing(site: Site) -> None:
    """`emberpool run` that gets Ctrl-C, Ctrl-C again and again, or SIGTERM has cancelled its command as it ends; after
    SIGKILL the command ends by its own limit (PrimeIntellect-ai/verifiers#399)."""
    ways = {5301: signal.SIGINT, 5302: signal.SIGINT, 5303: signal.SIGTERM}
    processes = {number: await started(site, number, 900) for number in ways}

    async def all_started() -> bool:
        return all(runs(f"sleep {number}") for number in ways)

    await wait_until(all_started, 60)
    for number, one in ways.items():
        processes[number].send_signal(one)
    while processes[5302].returncode is None:
        processes[5302].send_signal(signal.SIGINT)
        await asyncio.sleep(0.01)  # the pace of an impatient hand
    codes = {number: await asyncio.wait_for(process.wait(), 20) for number, process in processes.items()}
    assert codes[5303] == 143 and all(code != 0 for code in codes.values()), codes
    await nothing_left(site, *ways)

    killed = await started(site, 5304, 2)

    async def runs_too() -> bool:
        return runs("sleep 5304")

    await wait_until(runs_too, 60)
    killed.kill()
    await killed.wait()
    await nothing_left(site, 5304)
