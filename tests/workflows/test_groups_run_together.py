"""Several pods for one job: all at once or none, told who they are, on real pods."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import pytest_asyncio
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.gangs import GroupSeen, OneOfAnImage, SaveAll, Together
from temporalio.client import WorkflowHandle

from emberpool.pool.model.profile import Profile
from emberpool.pool.model.state import PodState
from emberpool.worker.stack.embedded import EmbeddedStack

FOUR = Profile(name="four", min_warm=0, max_pods=4)
TWO = Profile(name="two", min_warm=0, max_pods=2)
WHO = "echo $EMBERPOOL_RANK of $EMBERPOOL_WORLD_SIZE, $RANK of $WORLD_SIZE, $EXTRA"


@pytest_asyncio.fixture
async def four(stack: EmbeddedStack) -> AsyncGenerator[Site]:
    """A deployment with at most four pods."""
    async with running_site(stack, site_settings(stack, FOUR)) as site:
        yield site


async def start(site: Site, size: int = 0, **fields: object) -> WorkflowHandle[Any, GroupSeen]:
    """Start a group, or a single sandbox."""
    plan, id_ = site.group_plan(size=size, **fields), uuid.uuid4().hex
    if size:
        return await site.client.start_workflow(Together.run, plan, id=id_, task_queue=site.queue)
    return await site.client.start_workflow(OneOfAnImage.run, plan, id=id_, task_queue=site.queue)


async def test_every_member_knows_its_rank(four: Site) -> None:
    """Three members on three pods, each with its rank and the size of the group; leaving recycles all three."""
    seen = await (await start(four, 3, command=WHO)).result()
    assert seen.texts == [f"{rank} of 3, {rank} of 3, more\n" for rank in range(3)], seen
    assert len(set(seen.pods)) == 3 and seen.recycled == ("idle",) * 3
    await four.settled()
    again = await (await start(four, 3, command=WHO)).result()
    assert set(again.pods) == set(seen.pods) and set(again.sources) == {"reuse"}


async def test_a_local_group_without_a_network_is_refused_as_peers(four: Site) -> None:
    """Its profile does not promise it: a group that needs peers fails once, naming the argument, and holds nothing."""
    seen = await (await start(four, 2, peers=True)).result()
    assert seen.error.startswith("InvalidInput: peers") and "gang_peers" in seen.error, seen
    assert sum((await four.index.counts()).by_state.values()) == 0


async def test_a_group_is_saved_and_starts_from_there(four: Site) -> None:
    """Each rank from its own state, or all from one; another number of states is InvalidInput."""
    plan = four.group_plan(size=2)
    seen = await four.client.execute_workflow(SaveAll.run, plan, id=uuid.uuid4().hex, task_queue=four.queue)
    assert seen.texts == ["0\n0\n", "1\n1\n", "1\n0\n", "1\n1\n"], seen
    assert seen.error.startswith("InvalidInput: from_: there are 2 checkpoints for 3 members"), seen
    await four.settled()


async def test_a_group_over_the_ceiling_is_told_so(four: Site) -> None:
    """A group that the pool can never hold fails at once, and says why."""
    seen = await (await start(four, 5)).result()
    assert seen.error.startswith("NoCapacity") and "larger than the pool's ceiling" in seen.error, seen
    await four.settled()


async def test_groups_and_a_stream_of_singles_share_a_pool(four: Site) -> None:
    """Two groups of three on four pods, against singles of three callers that come all the time: all are served."""
    groups = [await start(four, 3, caller=f"gang{n}", command="sleep 0.1", wait_timeout_s=120) for n in range(2)]
    done, served = asyncio.Event(), [0, 0, 0]

    async def stream(caller: int) -> None:
        while not done.is_set():
            single = await start(four, caller=f"single{caller}", command="sleep 0.05", wait_timeout_s=120)
            assert (await single.result()).results[0].ok
            served[caller] += 1

    async with asyncio.TaskGroup() as tasks:
        for caller in range(3):
            tasks.create_task(stream(caller))
        seen = await asyncio.gather(*(group.result() for group in groups))
        done.set()
    assert [len(set(one.pods)) for one in seen] == [3, 3], seen
    assert min(served) > 0, served
    await four.settled()


async def test_a_group_that_is_cancelled_while_it_gathers_holds_nothing(stack: EmbeddedStack) -> None:
    """One pod is somebody's, so the group has one of two: cancelled, it gives that one back and leaves the line."""
    async with running_site(stack, site_settings(stack, TWO)) as site:
        single = await start(site, command="true", pause_s=600, caller="other")

        async def held() -> bool:
            return bool(await site.index.pods(PodState.LEASED, 10))

        await wait_until(held)
        group = await start(site, 2)

        async def gathered() -> bool:
            counts = await site.index.counts()
            return counts.by_state.get(PodState.LEASED, 0) == 2 and counts.waiting == 1

        await wait_until(gathered)
        await group.cancel()

        async def only_the_single_is_left() -> bool:
            counts = await site.index.counts()
            busy = sum(counts.by_state.get(state, 0) for state in PodState if state is not PodState.IDLE)
            return counts.leases == 1 and counts.waiting == 0 and busy == 1

        await wait_until(only_the_single_is_left)
        await single.terminate("the test is over")
        await site.settled()


async def test_a_group_replays_without_a_cache(stack: EmbeddedStack) -> None:
    """With no workflow cached every task replays from the start, and the group is opened and left once."""
    async with running_site(stack, site_settings(stack, FOUR), cached_workflows=0) as site:
        seen = await (await start(site, 2, command=WHO, pause_s=0.1)).result()
        assert len(seen.results) == 2 and seen.recycled == ("idle", "idle"), seen
        await site.settled()
