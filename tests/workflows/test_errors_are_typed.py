"""Every way to lose or not to get a sandbox has a type of its own and says what to do next
(OpenHands/OpenHands#13665)."""

import os
import signal
import uuid
from collections.abc import AsyncGenerator

import pytest_asyncio
from fixtures.processes import runs
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.flows import Commands, Typed, TypedTwice

from emberpool.pool.model.profile import Limits, Profile
from emberpool.pool.model.state import PodState
from emberpool.pool.providers.local.provider import LocalProvider
from emberpool.worker.stack.embedded import EmbeddedStack

SMALL = Profile(name="small", min_warm=1, max_pods=1, limits=Limits(memory_mb=64))


@pytest_asyncio.fixture
async def small(stack: EmbeddedStack) -> AsyncGenerator[Site]:
    """A pool of one pod with little memory."""
    async with running_site(stack, site_settings(stack, SMALL)) as site:
        yield site


async def typed(site: Site, **fields: object) -> str:
    """The text of the error that one command ends with."""
    seen = await site.client.execute_workflow(
        Typed.run, site.plan(**fields), id=f"typed-{uuid.uuid4().hex[:8]}", task_queue=site.queue
    )
    return seen.text


async def test_a_time_out_says_which_limit(small: Site) -> None:
    """The time limit is the command's, and the remedy names it."""
    text = await typed(small, commands=("sleep 60",), time_limit_s=0.5)
    assert text.startswith("CommandTimedOut: command timed out after 0.5 s") and "time_limit_s" in text


async def test_text_about_a_time_out_is_no_time_out(small: Site) -> None:
    """Output is never read to classify an end (verl-project/uni-agent#206)."""
    text = await typed(small, commands=("echo 'request timed out after 5s' >&2; exit 1",))
    assert text.startswith("CommandFailed: command exited, exit status 1: request timed out")


async def test_memory_says_which_limit(small: Site) -> None:
    """A command over the memory limit ends as out of memory, and the remedy names the limit."""
    text = await typed(small, commands=("python3 -c \"x = b'1' * 300_000_000; import time; time.sleep(20)\"",))
    assert text.startswith("CommandOutOfMemory:") and "limits.memory_mb" in text


async def test_no_capacity_says_what_to_raise(small: Site) -> None:
    """A claim that finds no pod before its deadline ends with NoCapacity, and leaves the line."""
    plan = small.plan(commands=("sleep 30",), caller="first")
    holder = await small.client.start_workflow(
        Commands.run, plan, id=f"holder-{uuid.uuid4().hex[:8]}", task_queue=small.queue
    )

    async def leased() -> bool:
        return bool(await small.index.pods(PodState.LEASED, 1))

    await wait_until(leased)
    text = await typed(small, commands=("true",), caller="second", wait_timeout_s=1.0)
    assert text.startswith("NoCapacity: no pod of profile 'small'") and "wait_timeout" in text
    assert (await small.index.counts()).waiting == 0
    await holder.cancel()


async def test_a_lost_sandbox_says_why(small: Site) -> None:
    """A pod that dies under a command is SandboxLost, and it is unknown whether the command ran."""
    assert small.settings.supervisor_socket is not None
    provider = LocalProvider(SMALL, small.settings.supervisor_socket, small.settings.deployment)
    handle = await small.client.start_workflow(
        Typed.run,
        small.plan(commands=("sleep 6161",)),
        id=f"lost-{uuid.uuid4().hex[:8]}",
        task_queue=small.queue,
    )

    async def running() -> bool:
        return runs("sleep 6161")

    await wait_until(running)
    pod = (await small.index.pods(PodState.LEASED, 1))[0]
    seen = await provider.look_up(pod.name)
    await provider.aclose()
    assert seen is not None
    os.kill(seen.pid, signal.SIGKILL)
    text = (await handle.result()).text
    assert text.startswith("SandboxLost: sandbox lost:") and "executed=unknown" in text and "open a new sandbox" in text


async def test_an_expired_hold_is_lost_and_the_pod_refuses_the_old_lease(small: Site) -> None:
    """After the hold the next call is SandboxLost(hold_expired); the pod was fenced meanwhile (gchq/stroom#5772)."""
    seen = await small.client.execute_workflow(
        TypedTwice.run,
        small.plan(commands=("true",), hold_s=0.5, pause_s=4.0),
        id=f"late-{uuid.uuid4().hex[:8]}",
        task_queue=small.queue,
    )
    assert seen.text.startswith("SandboxLost: sandbox lost: hold_expired")


async def test_an_unknown_profile_is_named(small: Site) -> None:
    """A profile that no worker serves is bad input, and the text lists what is served."""
    text = await typed(small, commands=("true",), profile="missing")
    assert text.startswith("InvalidInput: profile: 'missing' is not served") and "small" in text
