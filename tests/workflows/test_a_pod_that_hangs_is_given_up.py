"""A pod whose emberd stops answering while its provider calls it ready: its caller hears of it soon, and it goes."""

import asyncio
import logging
import os
import signal
import time
import uuid

import pytest
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until

from emberpool.activities import silence
from emberpool.pool.client import emberd_client
from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import SandboxLost
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.state import PodState
from emberpool.pool.model.tool import RunToolInput, RunToolOutput
from emberpool.pool.providers.local.provider import LocalProvider
from emberpool.worker.remote.tool import ToolClient
from emberpool.worker.stack.embedded import EmbeddedStack

SOON_S = 40.0


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds of waiting become one."""
    for name, value in (("ANSWER_S", 1.0), ("AGAIN_S", 0.5), ("SILENT_S", 2.0)):
        monkeypatch.setattr(emberd_client, name, value)
    for name, value in (("ANSWER_S", 1.0), ("AGAIN_S", 0.5), ("SILENT_S", 3.0)):
        monkeypatch.setattr(silence, name, value)


@pytest.mark.parametrize("pods", [1, 2])
async def test_its_caller_hears_of_it_soon(stack: EmbeddedStack, pods: int) -> None:
    """SandboxLost, and that the command may have run, beside a pod that answers; also where there is no other pod. The
    hung pod is deleted, and its place serves the next caller."""
    settings = site_settings(stack, Profile(name="py", min_warm=pods, max_pods=pods))
    socket = settings.supervisor_socket
    assert socket is not None
    provider = LocalProvider(settings.all_profiles()[0], socket, settings.deployment)
    async with running_site(stack, settings) as site:
        hung = await one_leased(site, call := asyncio.create_task(sleeps(site)))
        seen = await provider.look_up(hung)
        assert seen is not None
        os.kill(seen.pid, signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(SandboxLost) as caught:
            await call
        assert time.monotonic() - began < SOON_S
        assert (caught.value.reason, caught.value.executed) == ("silent", "unknown")

        async def gone() -> bool:
            return await provider.look_up(hung) is None and await site.index.pod(hung) is None

        await wait_until(gone, 30)
        assert (await runs(site, "echo on")).result.text == "on\n"
    await provider.aclose()


async def test_one_that_answers_again_in_time_is_kept(
    stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A pod that leaves questions unanswered, beside another that answers them, is asked again for as long as it has;
    then nothing is lost, and its command's end is told."""
    monkeypatch.setattr(silence, "SILENT_S", 60.0)
    caplog.set_level(logging.INFO, silence.__name__)
    settings = site_settings(stack, Profile(name="py", min_warm=2, max_pods=2))
    socket = settings.supervisor_socket
    assert socket is not None
    provider = LocalProvider(settings.all_profiles()[0], socket, settings.deployment)
    async with running_site(stack, settings) as site:
        slow = await one_leased(site, call := asyncio.create_task(runs(site, "sleep 3; echo kept")))
        seen = await provider.look_up(slow)
        assert seen is not None

        async def asked_again() -> bool:
            return call.done() or caplog.text.count(f"pod {slow} does not answer") >= 3

        os.kill(seen.pid, signal.SIGSTOP)
        try:
            await wait_until(asked_again, SOON_S)
        finally:
            os.kill(seen.pid, signal.SIGCONT)
        assert (await call).result.text == "kept\n"
    await provider.aclose()


async def one_leased(site: Site, call: "asyncio.Task[RunToolOutput]") -> PodName:
    """The pod in which the call's command runs."""
    found: list[PodName] = []

    async def there() -> bool:
        assert not call.done(), call.result()
        leased = [pod for pod in await site.index.pods(PodState.LEASED, 10)]
        async with emberd_client.EmberdClient(site.settings.pool_key()) as client:
            held = [pod.name for pod in leased if (await client.state(pod.name, pod.endpoint)).state == "held"]
        found[:] = held
        return bool(held)

    await wait_until(there, 30)
    return found[0]


async def sleeps(site: Site) -> RunToolOutput:
    """A call that takes longer than any test."""
    return await runs(site, "sleep 300")


async def runs(site: Site, shell: str) -> RunToolOutput:
    """One call of one caller."""
    tools = ToolClient(site.client, profile="py", caller="a", task_queue=site.queue)
    given = RunToolInput(profile="py", caller="a", command=Command(shell=shell, time_limit_s=300))
    return await tools.call(f"call-{uuid.uuid4().hex[:8]}", given)
