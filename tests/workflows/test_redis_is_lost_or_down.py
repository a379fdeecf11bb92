"""Redis goes away, or comes back empty, under a real worker: sandboxes go on, and no pod has two holders."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest_asyncio
from fixtures.servers import Server, in_memory
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.flows import Commands, Seen, Typed
from temporalio.client import WorkflowHandle

from emberpool.pool.model.state import PodState
from emberpool.worker.stack.embedded import EmbeddedStack

ALONE = 'test -z "$(ls -A)" && touch mine && sleep 0.5 && ls -A'
"""Fails if anything of another holder is in the sandbox, before or after."""


@pytest_asyncio.fixture
async def redis_server(tmp_path: Path) -> AsyncGenerator[Server]:
    """A Redis of the test's own, which forgets all when it ends."""
    async with Server(tmp_path / "redis", *in_memory()) as server:
        yield server


@pytest_asyncio.fixture
async def frail(stack: EmbeddedStack, redis_server: Server) -> AsyncGenerator[Site]:
    """A deployment on that Redis, with its first pod warm."""
    async with running_site(stack, site_settings(stack, redis_url=redis_server.url)) as site:

        async def warm() -> bool:
            return (await site.index.counts()).idle_fresh >= 1

        await wait_until(warm)
        yield site


async def started(site: Site, *commands: str, **fields: object) -> WorkflowHandle[Commands, Seen]:
    """A workflow that runs the commands."""
    plan = site.plan(commands=commands, **fields)
    name = f"w-{uuid.uuid4().hex[:8]}"
    return await site.client.start_workflow(Commands.run, plan, id=name, task_queue=site.queue)


async def between_commands(handle: WorkflowHandle[Commands, Seen]) -> None:
    """Wait until its first command has ended."""

    async def paused() -> bool:
        history = await handle.fetch_history()
        return any(event.HasField("timer_started_event_attributes") for event in history.events)

    await wait_until(paused)


async def leased(site: Site) -> None:
    """Wait until a pod is held."""

    async def held() -> bool:
        return bool(await site.index.pods(PodState.LEASED, 10))

    await wait_until(held)


async def test_a_flush_between_two_commands_is_not_noticed(frail: Site, redis_server: Server) -> None:
    """FLUSHALL while a workflow thinks: its next command runs in the same sandbox, and leaving recycles the pod."""
    handle = await started(frail, "echo kept > f", "cat f", pause_s=3.0)
    await between_commands(handle)
    await redis_server.ask("FLUSHALL")
    seen = await handle.result()
    assert seen.results[1].stdout == b"kept\n"
    assert seen.recycled in ("idle", "handed_over")
    await frail.settled()


async def test_a_restart_between_two_commands_is_not_noticed(frail: Site, redis_server: Server) -> None:
    """The same with a server that is killed and comes back empty."""
    handle = await started(frail, "echo kept > f", "cat f", pause_s=3.0)
    await between_commands(handle)
    await redis_server.kill()
    await redis_server.start()
    assert (await handle.result()).results[1].stdout == b"kept\n"
    await frail.settled()


async def test_a_running_command_outlives_redis(frail: Site, redis_server: Server) -> None:
    """A command that ends while Redis is away has its result, and ran once; the lease is there afterwards."""
    handle = await started(frail, "echo once >> f; sleep 2; echo done", "cat f", pause_s=0.1)
    await leased(frail)
    await redis_server.kill()

    async def over() -> bool:
        history = await handle.fetch_history()
        return any(event.HasField("timer_started_event_attributes") for event in history.events)

    await wait_until(over)
    await redis_server.start()
    seen = await handle.result()
    assert [result.stdout for result in seen.results] == [b"done\n", b"once\n"]
    await frail.settled()


async def test_claims_wait_for_redis(frail: Site, redis_server: Server) -> None:
    """Claims made while Redis is down wait, and succeed when it is back; each sandbox is its holder's alone."""
    await redis_server.kill()
    handles = [await started(frail, ALONE, caller=f"c{number}") for number in range(6)]

    async def all_wait() -> bool:
        histories = [await handle.fetch_history() for handle in handles]
        return all("emberpool.wait_for_pod" in str(history.events) for history in histories)

    await wait_until(all_wait)
    await redis_server.start()
    for seen in await asyncio.gather(*(handle.result() for handle in handles)):
        assert (seen.results[0].exit_code, seen.results[0].stdout) == (0, b"mine\n")
    await frail.settled()


async def test_no_pod_has_two_holders_through_flushes(frail: Site, redis_server: Server) -> None:
    """Flushes while sandboxes come and go: whoever gets one is alone in it, and the pool's ceiling holds afterwards."""
    handles = [await started(frail, ALONE, ALONE.replace("-z", "-n"), caller=f"c{n % 3}") for n in range(12)]

    async def ended() -> int:
        described = [await handle.describe() for handle in handles]
        return sum(one.close_time is not None for one in described)

    for least in (2, 5):

        async def enough(least: int = least) -> bool:
            return await ended() >= least

        await wait_until(enough, 60)
        await redis_server.ask("FLUSHALL")
    for done in await asyncio.gather(*(handle.result() for handle in handles), return_exceptions=True):
        if isinstance(done, Seen):
            assert [result.stdout for result in done.results] == [b"mine\n", b"mine\n"]
        else:
            assert "SandboxLost" in str(getattr(done, "cause", done)), done
    await frail.settled()
    counts = await frail.index.counts()
    assert sum(counts.by_state.values()) <= counts.ceiling


async def test_a_claim_ends_at_its_deadline(frail: Site, redis_server: Server) -> None:
    """With Redis down for longer than the claim may wait, the call ends then, with an error that names Redis."""
    await redis_server.kill()
    began = time.monotonic()
    plan = frail.plan(commands=("true",), wait_timeout_s=2.0)
    name = f"late-{uuid.uuid4().hex[:8]}"
    seen = await frail.client.execute_workflow(Typed.run, plan, id=name, task_queue=frail.queue)
    took = time.monotonic() - began
    assert seen.text.startswith("PoolUnavailable: ") and "Redis" in seen.text and "2 s" in seen.text, seen.text
    assert 2 < took < 30, took
    await redis_server.start()
    handle = await started(frail, "echo back")
    assert (await handle.result()).results[0].stdout == b"back\n"
