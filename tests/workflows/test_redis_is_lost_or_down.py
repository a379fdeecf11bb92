"""Redis goes away, or comes back empty, under a real worker: sandboxes go on, and no pod has two holders."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from fixtures.servers import Group, Server, group, in_memory
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.flows import Commands, Seen, Typed
from temporalio.client import WorkflowFailureError, WorkflowHandle

from emberpool.activities import ladder
from emberpool.pool.index.contract import ClaimRequest
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import ClaimReply
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.state import PodState
from emberpool.pool.providers.local.provider import LocalProvider
from emberpool.worker.stack.embedded import EmbeddedStack

ALONE = 'test -z "$(ls -A)" && touch mine && sleep 0.5 && ls -A'
"""Fails if anything of another holder is in the sandbox, before or after."""


@dataclass
class Account:
    """What the worker did."""

    created: list[str] = field(default_factory=list[str])
    """Pods that it asked the provider for."""
    answers: list[str] = field(default_factory=list[str])
    """What its claims were answered."""


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    """Written while the real calls go on. Take it before the worker."""
    kept, create, claim = Account(), LocalProvider.create, RedisIndex.claim

    async def creates(self: LocalProvider, name: PodName, image: str, standby: bool = False) -> None:
        kept.created.append(name)
        await create(self, name, image, standby)

    async def claims(self: RedisIndex, request: ClaimRequest) -> ClaimReply:
        reply = await claim(self, request)
        kept.answers.append(reply.kind)
        return reply

    monkeypatch.setattr(LocalProvider, "create", creates)
    monkeypatch.setattr(RedisIndex, "claim", claims)
    return kept


async def listed(site: Site) -> set[str]:
    """Every pod that exists, by the provider."""
    socket = site.settings.supervisor_socket
    assert socket is not None
    provider = LocalProvider(site.settings.all_profiles()[0], Path(socket), site.settings.deployment)
    try:
        return {facts.name for facts in await provider.list()}
    finally:
        await provider.aclose()


async def accounted_for(site: Site) -> None:
    """Wait until index and provider have the same pods, no more than the ceiling."""

    async def same() -> bool:
        known = {pod.name for state in PodState for pod in await site.index.pods(state, 100)}
        return known == await listed(site) and len(known) <= (await site.index.counts()).ceiling

    await wait_until(same)


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


async def test_no_pod_has_two_holders_through_flushes(account: Account, frail: Site, redis_server: Server) -> None:
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
    await accounted_for(frail)
    # The ceiling's after the start and after each flush, and one for each sandbox that found only others' pods.
    assert len(account.created) <= 3 * 3 + 12, account.created


async def test_a_flush_starts_no_pods(
    account: Account, frail: Site, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pods are held, and others stand in line: however often Redis is flushed, the provider is asked for none."""
    monkeypatch.setattr(ladder, "ASK_AGAIN_S", 0.5)
    holders = [await started(frail, "touch mine", "ls", pause_s=600.0, caller=f"h{n}") for n in range(3)]
    for handle in holders:
        await between_commands(handle)
    pods = await listed(frail)
    assert len(pods) == 3 and set(account.created) >= pods
    before = list(account.created)
    waiters = [await started(frail, ALONE, caller=f"w{number}") for number in range(6)]

    async def as_before() -> bool:
        counts = await frail.index.counts()
        return (counts.ceiling, counts.leases, counts.waiting) == (3, 3, 6)

    for _ in range(2):
        await wait_until(as_before)
        await redis_server.ask("FLUSHALL")
        await wait_until(as_before)
    assert (account.created, await listed(frail)) == (before, pods)
    for handle in holders:
        await handle.cancel()
    for seen in await asyncio.gather(*(handle.result() for handle in waiters)):
        assert (seen.results[0].exit_code, seen.results[0].stdout) == (0, b"mine\n")
    for handle in holders:
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    await frail.settled()
    await accounted_for(frail)


@dataclass(frozen=True)
class Grouped:
    """A deployment whose Redis is a master with a replica, behind Sentinels."""

    site: Site
    group: Group


@pytest_asyncio.fixture
async def grouped(stack: EmbeddedStack, account: Account, tmp_path: Path) -> AsyncGenerator[Grouped]:
    """One of the test's own."""
    async with group(tmp_path / "group") as servers:
        async with running_site(stack, site_settings(stack, redis_url=servers.url)) as site:
            yield Grouped(site, servers)


async def test_a_failover_between_two_commands_is_not_noticed(grouped: Grouped, account: Account) -> None:
    """The master is killed while a workflow thinks: its next command runs in the same sandbox."""
    site, master = grouped.site, await grouped.group.master()
    handle = await started(site, "echo kept > f", "cat f", pause_s=2.0)
    await between_commands(handle)
    (held,) = await site.index.pods(PodState.LEASED, 10)
    await master.kill()
    await grouped.group.failed_over(master)
    seen = await handle.result()
    assert seen.results[1].stdout == b"kept\n"
    assert "rebuilding" in account.answers
    await site.settled()
    await accounted_for(site)
    assert held.name in await listed(site)
    assert len(account.created) <= 3 * 2, account.created


async def test_an_empty_replica_takes_over(grouped: Grouped, account: Account) -> None:
    """What takes over has nothing at all: claims are told so, who holds a pod keeps it, and nobody else gets it."""
    site, master = grouped.site, await grouped.group.master()
    (replica,) = [server for server in grouped.group.servers if server is not master]
    holder = await started(site, "echo kept > f", "cat f; ls", pause_s=6.0)
    await between_commands(holder)
    await master.kill()
    await replica.kill()
    await replica.start()
    assert await replica.ask("DBSIZE") == 0
    others = [await started(site, ALONE, caller=f"c{number}") for number in range(4)]
    assert await grouped.group.failed_over(master) is replica
    for seen in await asyncio.gather(*(handle.result() for handle in others)):
        assert (seen.results[0].exit_code, seen.results[0].stdout) == (0, b"mine\n")
    assert (await holder.result()).results[1].stdout == b"kept\nf\n"
    assert "rebuilding" in account.answers
    await site.settled()
    await accounted_for(site)
    assert len(account.created) <= 3 * 2 + len(others), account.created


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
