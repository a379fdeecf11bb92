"""A sandbox session is driven from outside by short updates, and lives through everything that a workflow lives through
(temporalio/sdk-python#633)."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
import pytest_asyncio
from fixtures.processes import runs
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from temporalio.client import WorkflowExecutionStatus

from emberpool.pool.model.command import Outcome
from emberpool.pool.model.errors import InvalidInput, SandboxClosed, SandboxFileError
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.session import SessionInput
from emberpool.worker.remote.session import RemoteSandbox
from emberpool.worker.stack.embedded import EmbeddedStack


def opened(site: Site, idle_timeout: timedelta = timedelta(minutes=15)) -> RemoteSandbox:
    return RemoteSandbox.open(site.client, profile="py", caller="ann", task_queue=site.queue, idle_timeout=idle_timeout)


@pytest_asyncio.fixture
async def uncached(stack: EmbeddedStack) -> AsyncGenerator[Site]:
    """A worker that replays each workflow from its start at every task."""
    async with running_site(stack, site_settings(stack), cached_workflows=0) as site:
        yield site


async def test_commands_and_files_share_one_sandbox(uncached: Site) -> None:
    """Files written are there for commands, what commands write can be read, and closing gives the pod back."""
    async with opened(uncached) as sandbox:
        await sandbox.write_file("in/a.txt", "kept")
        result = await sandbox.run(["cat", "in/a.txt"], env={"X": "1"})
        assert (result.ok, result.stdout) == (True, b"kept")
        failed = await sandbox.run("echo out; echo err >&2; exit 7; ")
        assert (failed.exit_code, failed.text, failed.error_text) == (7, "out\n", "err\n")
        await sandbox.run("printf '\\000\\377' > raw")
        assert await sandbox.read_file("raw") == b"\x00\xff"
        with pytest.raises(SandboxFileError, match="not_found"):
            await sandbox.read_file("missing")
        assert (await sandbox.close()).recycled is RecycleOutcome.IDLE
        with pytest.raises(SandboxClosed):
            await sandbox.run("true")
    await uncached.settled()


async def test_a_long_command_is_started_followed_and_ended(site: Site) -> None:
    """Starting returns at once; polls show how far the output is; the result comes by its id from any process."""
    async with opened(site) as sandbox:
        command = await sandbox.start("echo one; sleep 1.5; echo two", execution_id="mine")

        async def printing() -> bool:
            now = await command.poll()
            return now.running and now.stdout_tail == b"one\n" and now.stdout_bytes == 4

        await wait_until(printing)
        again = await sandbox.start("echo one; sleep 1.5; echo two", execution_id="mine")
        elsewhere = RemoteSandbox.attach(site.client, sandbox.session_id)
        results = await asyncio.gather(command.result(), again.result(), elsewhere.command("mine").result())
        assert [result.text for result in results] == ["one\ntwo\n"] * 3
        assert not (await command.poll()).running


async def test_a_command_can_be_killed(site: Site) -> None:
    """A killed command is dead when the answer comes, its children too; the sandbox lives on."""
    async with opened(site) as sandbox:
        command = await sandbox.start("sleep 4551 & wait", time_limit=timedelta(hours=1))

        async def started() -> bool:
            return runs("sleep 4551")

        await wait_until(started)
        assert (await command.kill()).outcome is Outcome.CANCELLED
        assert not runs("sleep 4551")
        assert (await sandbox.run("echo alive")).text == "alive\n"


async def test_more_callers_than_a_workflow_takes_updates(site: Site) -> None:
    """Thirty calls at once all end: the client keeps to eight updates in flight, of the ten that there may be."""
    async with opened(site) as sandbox:
        results = await asyncio.gather(*[sandbox.run(f"sleep 0.2; echo {n}") for n in range(30)])
        assert [result.text for result in results] == [f"{n}\n" for n in range(30)]


async def test_an_idle_session_closes_itself(site: Site) -> None:
    """After its idle time-out the session has ended and its pod is back; a running command is not idleness."""
    sandbox = opened(site, idle_timeout=timedelta(seconds=1))
    await sandbox.begin()
    command = await sandbox.start("sleep 2.5; echo done")
    assert (await command.result()).text == "done\n"
    handle = site.client.get_workflow_handle(sandbox.session_id)

    async def ended() -> bool:
        return (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED

    await wait_until(ended)
    with pytest.raises(SandboxClosed):
        await sandbox.run("true")
    await site.settled()


async def test_a_session_outlives_its_history(site: Site) -> None:
    """The workflow continues as new between commands; the sandbox, its files and late results are the same after it,
    and no call is lost (temporalio/documentation#3969)."""
    given = SessionInput(profile="py", caller="ann", task_queue=site.queue, max_updates=5)
    sandbox = RemoteSandbox(site.client, f"emberpool-session/ann/{site.queue}", given)
    async with sandbox:
        handle = site.client.get_workflow_handle(sandbox.session_id)
        first = (await handle.describe()).run_id
        early = await sandbox.start("echo early", execution_id="early")
        for number in range(12):
            await sandbox.run(f"echo {number} >> log")
        assert await sandbox.read_file("log") == b"".join(b"%d\n" % number for number in range(12))
        assert (await early.result()).text == "early\n"
        assert (await handle.describe()).run_id != first
        counts = await site.index.counts()
        assert counts.leases == 1
    await site.settled()


async def test_a_busy_session_turns_under_load(site: Site) -> None:
    """Four callers at once over several continue-as-news: each command runs once."""
    given = SessionInput(profile="py", caller="ann", task_queue=site.queue, max_updates=8)
    async with RemoteSandbox(site.client, f"emberpool-session/ann/{site.queue}", given) as sandbox:

        async def caller(name: int) -> None:
            for number in range(6):
                assert (await sandbox.run(f"echo {name}-{number} >> log; echo {number}")).text == f"{number}\n"

        await asyncio.gather(*[caller(name) for name in range(4)])
        lines = (await sandbox.read_file("log")).split()
        assert len(lines) == len(set(lines)) == 24


async def test_a_terminated_session_is_swept(site: Site) -> None:
    """After its workflow was terminated nothing of the session is left."""
    sandbox = opened(site)
    await sandbox.begin()
    await sandbox.start("sleep 4552", time_limit=timedelta(hours=1))

    async def started() -> bool:
        return runs("sleep 4552")

    await wait_until(started)
    await site.client.get_workflow_handle(sandbox.session_id).terminate("test")

    async def nothing_left() -> bool:
        return not runs("sleep 4552") and (await site.index.counts()).leases == 0

    await wait_until(nothing_left)
    await site.settled()


async def test_bad_input_is_named_and_the_session_goes_on(site: Site) -> None:
    """What can never work is InvalidInput, on either side of the wire; the next call works."""
    async with opened(site) as sandbox:
        with pytest.raises(InvalidInput):
            await sandbox.run("echo \0")
        with pytest.raises(InvalidInput, match="execution_id"):
            await sandbox.command("unknown").result()
        assert (await sandbox.run("echo fine")).text == "fine\n"


async def test_a_culled_session_is_told_at_once_and_made_anew(site: Site) -> None:
    """After a session of a name was closed for idleness, a call on it fails at once, with a type that says so; the same
    name opens a new one with nothing of the old in it, as often as it is opened, and closing it twice is no error.

    Seen in datalayer/jupyter-mcp-server#260: calls on a culled kernel blocked, and binding anew was refused.
    """

    def named(idle_s: float) -> RemoteSandbox:
        idle = timedelta(seconds=idle_s)
        queue = site.queue
        return RemoteSandbox.open(
            site.client, profile="py", caller="ann", name=queue, task_queue=queue, idle_timeout=idle
        )

    culled = named(0.5)
    await culled.begin()
    assert (await culled.run("echo 1 > state; echo $((1 + 1))")).text == "2\n"
    handle = site.client.get_workflow_handle(culled.session_id)

    async def ended() -> bool:
        return (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED

    await wait_until(ended)
    with pytest.raises(SandboxClosed):
        await asyncio.wait_for(culled.run("echo $((1 + 1))"), 5)
    async with named(900) as anew:
        assert anew.session_id == culled.session_id
        assert (await anew.run("ls -A; echo $((1 + 1))")).text == "2\n"
        await anew.run("echo 2 > state")
        again = named(900)
        await again.begin()
        assert (await again.run("cat state")).text == "2\n"
        await anew.close()
    await site.settled()
