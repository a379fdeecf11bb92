"""Standby pods are promoted and used ones get another image where they are, on real pods."""

import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from fixtures.images import make_image
from fixtures.pods import age, request
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.gangs import GroupSeen, OneOfAnImage, Together
from temporalio.client import WorkflowFailureError

from emberpool.pool.model.claim import Holder, Promote, Provision, Source
from emberpool.pool.model.errors import NoCapacity
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.state import PodState
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.stack.embedded import EmbeddedStack
from emberpool.workflows.ladder import MAX_FAILURES


@pytest.fixture(scope="session")
def red(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image of its own."""
    return make_image(tmp_path_factory.mktemp("images") / "red", "red")


@pytest_asyncio.fixture
async def site(stack: EmbeddedStack, red: Path) -> AsyncGenerator[Site]:
    """A deployment that keeps one pod standing by, and none warm, of at most three."""
    profile = Profile(name="ladder", min_warm=0, standby=1, max_pods=3, images={"red": str(red)})
    async with running_site(stack, site_settings(stack, profile)) as running:
        yield running


async def stands_by(site: Site) -> None:
    """Wait for the standby pod."""

    async def one() -> bool:
        return (await site.index.counts()).by_state.get(PodState.STANDBY, 0) == 1

    await wait_until(one)


async def ran(site: Site, caller: str, image: str = "", command: str = "cat /marker || true") -> GroupSeen:
    """Run in one sandbox."""
    plan = site.group_plan(caller=caller, image=image, command=command)
    return await site.client.execute_workflow(OneOfAnImage.run, plan, id=uuid.uuid4().hex, task_queue=site.queue)


async def test_each_step_has_its_source(site: Site) -> None:
    """Standby, own pod, own pod with another image swapped in, standby, and a new one in a drained one's place."""
    await stands_by(site)
    first = await ran(site, "ann")
    assert first.sources == (Source.STANDBY,)
    again = await ran(site, "ann")
    assert (again.sources, again.pods) == ((Source.REUSE,), first.pods)
    await stands_by(site)
    swapped = await ran(site, "ann", "red")
    assert (swapped.sources, swapped.pods, swapped.texts) == ((Source.SWAP,), first.pods, ["red\n"])
    other = await ran(site, "bob")
    assert other.sources == (Source.STANDBY,) and other.pods != first.pods
    await stands_by(site)
    made = await ran(site, "carl", "red")
    assert (made.sources, made.texts) == ((Source.COLD,), ["red\n"]), "the ceiling is reached: room was made"


async def test_standby_pods_are_kept_and_replaced(site: Site) -> None:
    """The pool manager keeps one pod standing by: the promoted one is followed by another."""
    await stands_by(site)
    first = (await site.index.pods(PodState.STANDBY, 10))[0].name
    seen = await ran(site, "ann")
    assert seen.pods == (first,)
    await stands_by(site)
    assert (await site.index.pods(PodState.STANDBY, 10))[0].name != first


async def test_an_image_that_the_pod_has_not_got_is_had_from_another_pod(stack: EmbeddedStack, tmp_path: Path) -> None:
    """The image came to this machine after the pod was started: the swap is refused, and a new pod takes its place."""
    late = tmp_path / "late"
    profile = Profile(name="late", min_warm=0, max_pods=2, images={"late": str(late)})
    async with running_site(stack, site_settings(stack, profile)) as site:
        first = await ran(site, "ann")
        make_image(late, "late")
        seen = await ran(site, "ann", "late")
        assert (seen.sources, seen.texts) == ((Source.COLD,), ["late\n"])
        assert seen.pods != first.pods
        await site.settled()


@pytest.mark.parametrize("outside", [False, True], ids=["in a workflow", "called from outside"])
async def test_an_image_that_cannot_be_had_does_not_cost_every_idle_pod(
    stack: EmbeddedStack, tmp_path: Path, outside: bool
) -> None:
    """Pods that fail to take an image count as those that fail to start do: the claim ends after three, typed."""
    size = MAX_FAILURES + 2
    profile = Profile(name="never", min_warm=0, max_pods=size, images={"never": str(tmp_path / "never")})
    async with running_site(stack, site_settings(stack, profile)) as site:
        plan = site.group_plan(caller="ann", size=size)
        had = await site.client.execute_workflow(Together.run, plan, id=uuid.uuid4().hex, task_queue=site.queue)
        await site.settled()
        assert len(had.pods) == size, had
        tools = ToolClient(site.client, profile=profile.name, caller="ann", task_queue=site.queue)
        with pytest.raises((WorkflowFailureError, NoCapacity)) as raised:
            await (tools.run("only", "true", image="never") if outside else ran(site, "ann", "never"))
        said = str(raised.value if outside else raised.value.__cause__)
        assert f"{MAX_FAILURES} pods in a row failed: " in said and "never" in said, said
        await site.settled()
        left = {pod.name for pod in await site.index.pods(PodState.IDLE, 10)}
        assert len(left) == 1 and left < set(had.pods), "three are lost, and the one that was promised next"


async def pool_manager(site: Site) -> Holder:
    """A holder that goes on running: the sweep takes back what others hold."""
    id_ = f"emberpool-pool/{site.settings.deployment}/{site.index.name}"
    about = await site.client.get_workflow_handle(id_).describe()
    first = about.raw_description.workflow_execution_info.first_run_id
    return Holder(namespace=site.client.namespace, workflow_id=id_, run_id=first)


async def test_a_step_whose_worker_died_is_given_up(site: Site) -> None:
    """A pod that has been promoting for minutes is deleted, and its request stands in line for another one."""
    await stands_by(site)
    asked = request("stuck", wait_timeout_s=600, holder=await pool_manager(site))
    promote = await site.index.claim(asked)
    assert isinstance(promote, Promote)
    await age(site.index, promote.pod, 130)

    async def another_pod_is_promised() -> bool:
        reply = await site.index.claim(asked)
        gone = await site.index.pod(promote.pod) is None
        return gone and isinstance(reply, Promote | Provision) and reply.pod != promote.pod

    await wait_until(another_pod_is_promised)
    await site.index.release(asked.request_id)
