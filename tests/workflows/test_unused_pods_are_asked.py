"""Pods that nobody uses are asked whether they still serve: who claims next need not find out."""

import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest
from fixtures.pods import claimed, released, tag_of, warm
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until

from emberpool.activities import probe, tend
from emberpool.activities.pools import Pool
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.state import PodState
from emberpool.pool.providers.local.provider import LocalProvider
from emberpool.worker.stack.embedded import EmbeddedStack


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask every half second, and wait as long for an answer."""
    monkeypatch.setattr(tend, "PROBE_S", 0.5)
    for name, value in (("PAUSE_S", 0.0), ("ANSWER_S", 0.5), ("AGAIN_S", 0.1)):
        monkeypatch.setattr(probe, name, value)


async def _warm(site: Site) -> PodName:
    """The pool's one warm pod."""

    async def there() -> bool:
        return len(await site.index.pods(PodState.IDLE, 10)) == 1

    await wait_until(there, 30)
    (pod,) = await site.index.pods(PodState.IDLE, 10)
    return pod.name


async def test_a_pod_that_hangs_is_replaced_before_anybody_wants_it(stack: EmbeddedStack) -> None:
    """Its process is there, so the provider has nothing to tell; but as it does not answer, another takes its place."""
    settings = site_settings(stack)
    socket = settings.supervisor_socket
    assert socket is not None
    provider = LocalProvider(settings.all_profiles()[0], Path(socket), settings.deployment)
    async with running_site(stack, settings) as site:
        hung = await _warm(site)
        seen = await provider.look_up(hung)
        assert seen is not None
        os.kill(seen.pid, signal.SIGSTOP)

        async def replaced() -> bool:
            idle = await site.index.pods(PodState.IDLE, 10)
            return bool(idle) and hung not in {pod.name for pod in idle}

        await wait_until(replaced, 30)
        assert await provider.look_up(hung) is None
    await provider.aclose()


def _pool(index: RedisIndex, key: bytes = b"k" * 32) -> Pool:
    """A pool as the probe needs it: nothing is created, claimed or measured."""
    nothing = cast(Any, None)
    return Pool(Profile(name="p"), index, nothing, EmberdClient(key), nothing, "d", "t", key, nothing)


async def test_a_pod_that_was_let_and_never_called_is_sound(stack: EmbeddedStack) -> None:
    """The index knows it by the tag of who had it, its emberd by none."""
    settings = site_settings(stack, Profile(name="py", min_warm=1, max_pods=1))
    async with running_site(stack, settings) as site:
        name = await _warm(site)
        await claimed(site.index, "r1")
        await released(site.index, "r1")
        assert await _warm(site) == name
        async with (pool := _pool(site.index, settings.pool_key())).client:
            assert await probe.probe_idle(pool, 0.0) == 0
        (pod,) = await site.index.pods(PodState.IDLE, 10)
        assert (pod.name, pod.tag) == (name, tag_of("a"))


async def test_a_worker_that_is_cut_off_empties_no_pool(index: RedisIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """If most of many pods are silent, none is given up, however they lie on pages; of a few, each is."""
    monkeypatch.setattr(probe, "PAGE", 3)
    names = [f"p{number}" for number in range(8)]
    await warm(index, *names)
    async with (pool := _pool(index)).client:
        assert await probe.probe_idle(pool, 0.0) == 0
        assert len(await index.pods(PodState.IDLE, 10)) == 8
        for name in names[3:]:
            await index.pod_gone(PodName(name), "test")
        assert await probe.probe_idle(pool, 0.0) == 3
    assert {(pod.name, pod.reason) for pod in await index.pods(PodState.DRAINING, 10)} == {
        (name, "silent") for name in names[:3]
    }
