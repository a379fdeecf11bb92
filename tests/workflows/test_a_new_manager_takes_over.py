"""Whatever became of a pool's manager before, the one that runs now is obeyed, and nothing of the pool is left over."""

from fixtures.pods import request
from fixtures.stack import PROFILE, Site
from fixtures.waiting import wait_until
from pytest import MonkeyPatch
from scenarios.flows import Commands

from emberpool.activities import names, tend
from emberpool.pool.index.contract import PoolCounts
from emberpool.pool.model.claim import Swap
from emberpool.pool.model.ids import RequestId
from emberpool.pool.model.state import PodState
from emberpool.worker.companions import start_pool_manager
from emberpool.workflows.pool_manager import Budget, PoolManager


async def holds(site: Site, ceiling: int, warm: int) -> None:
    """Wait until the index has these targets."""

    async def written() -> bool:
        counts: PoolCounts = await site.index.counts()
        return (counts.ceiling, counts.min_warm) == (ceiling, warm)

    await wait_until(written, 20)


async def test_a_manager_started_anew_is_obeyed(site: Site) -> None:
    """After a terminated manager the next one starts at version 1: its targets and budgets count all the same."""
    name = names.pool_manager_id(site.settings.deployment, "py")
    handle = site.client.get_workflow_handle(name)
    for _ in range(3):
        await handle.signal(PoolManager.set_budget, Budget(max_pods=3, min_warm=0))
    await holds(site, 3, 0)
    await handle.terminate("test")
    await start_pool_manager(site.client, site.settings, PROFILE.model_copy(update={"max_pods": 2, "min_warm": 1}))
    await holds(site, 2, 1)
    await handle.signal(PoolManager.set_budget, Budget(max_pods=1, min_warm=0))
    await holds(site, 1, 0)


async def test_a_manager_started_anew_at_the_same_version_is_obeyed(site: Site) -> None:
    """The same if its predecessor never changed its targets."""
    name = names.pool_manager_id(site.settings.deployment, "py")
    await site.client.get_workflow_handle(name).terminate("test")
    await start_pool_manager(site.client, site.settings, PROFILE.model_copy(update={"max_pods": 2}))
    await holds(site, 2, PROFILE.min_warm)


async def test_a_swap_that_nobody_carries_out_leaves_no_pod(site: Site, monkeypatch: MonkeyPatch) -> None:
    """A request that was told to swap a pod's image ends before it does: the pod goes, and its place is free again."""
    monkeypatch.setattr(tend, "ORPHAN_S", 0.5)
    seen = await site.client.execute_workflow(
        Commands.run, site.plan(commands=("true",)), id=f"swap-{site.queue}", task_queue=site.queue
    )
    assert seen.lease is not None
    pod = await site.index.pod(seen.lease.pod)
    assert pod is not None and pod.state is PodState.IDLE
    assert isinstance(await site.index.claim(request("swap", tag=pod.tag, image="other")), Swap)
    await site.index.release(RequestId("swap"))

    async def gone() -> bool:
        return await site.index.pod(pod.name) is None

    await wait_until(gone, 20)
