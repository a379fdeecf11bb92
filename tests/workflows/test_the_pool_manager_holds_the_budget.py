"""The pool manager keeps pods warm within a budget that a signal changes."""

from fixtures.stack import Site
from fixtures.waiting import wait_until
from temporalio.client import WorkflowHandle

from emberpool.activities import names
from emberpool.pool.model.state import PodState
from emberpool.workflows.pool_manager import Budget, PoolManager, PoolStatus


def manager(site: Site) -> WorkflowHandle[PoolManager, None]:
    """The handle of the site's pool manager."""
    return site.client.get_workflow_handle_for(PoolManager.run, names.pool_manager_id(site.settings.deployment, "py"))


async def test_the_warm_target_is_kept(site: Site) -> None:
    """min_warm pods are ready and unused soon after the start, without any claim."""

    async def warm() -> bool:
        return (await site.index.counts()).idle_fresh == 1

    await wait_until(warm)


async def test_a_budget_signal_shrinks_and_grows(site: Site) -> None:
    """A budget of zero drains what nobody holds; a larger one brings the warm target back."""
    handle = manager(site)
    await handle.signal(PoolManager.set_budget, Budget(max_pods=0, min_warm=0))

    async def empty() -> bool:
        counts = await site.index.counts()
        return counts.ceiling == 0 and sum(counts.by_state.values()) == 0

    await wait_until(empty)
    await handle.signal(PoolManager.set_budget, Budget(max_pods=2, min_warm=2))

    async def two() -> bool:
        return len(await site.index.pods(PodState.IDLE, 10)) == 2

    await wait_until(two)
    status: PoolStatus = await handle.query(names.POOL_STATUS, result_type=PoolStatus)
    assert (status.max_pods, status.min_warm) == (2, 2)


async def test_the_manager_shows_its_pool(site: Site) -> None:
    """The workflow's current details are a table of the pool's states, for the Temporal UI."""

    async def shown() -> bool:
        metadata = await manager(site).query("__temporal_workflow_metadata")
        return "| idle |" in str(metadata)

    await wait_until(shown, 90)
