"""The reset of a pod that has no room to give: its emberd ends when told, with all below it, and is started anew."""

import asyncio
import os
from typing import Any

import pytest
from fixtures.emberd import EmberdProcess, Lease, Starter, open_lease, recycled, reset
from fixtures.processes import descendants, gone

from emberpool.pool.client.emberd_client import EmberdClient, EmberdState
from emberpool.pool.model.errors import PodRefused
from emberpool.pool.model.recycle import RecycleTier

ANEW = 5
"""emberd's exit status."""


async def told_to_end(lease: Lease) -> None:
    """Fence the pod and have its emberd end, as it must then at once."""
    pod = lease.emberd
    pod.epoch += 1
    below = descendants(pod.process.pid)
    await lease.client.fence(pod.address, pod.epoch)
    await lease.client.restart(pod.address, pod.epoch)
    assert await asyncio.to_thread(pod.process.wait, 5) == ANEW
    assert all(gone(pid) for pid in below)


async def started_anew(
    emberds: Starter, client: EmberdClient, pod: EmberdProcess, **changes: Any
) -> tuple[EmberdProcess, EmberdState]:
    """The next emberd in the same volumes, under the same epoch, and what it says of itself."""
    anew = emberds.start(pod.mode, pod.folder, container=pod.container, **changes)
    anew.epoch = pod.epoch
    return anew, await client.state(anew.address.name, anew.address.endpoint)


@pytest.mark.parametrize("mode", ["plain", "namespaces"])
async def test_only_a_fenced_pod_starts_anew(emberds: Starter, emberd_client: EmberdClient, mode: str) -> None:
    """Clean or held, or at another epoch, it goes on: a late call ends nobody's job."""
    pod = emberds.start(mode)
    with pytest.raises(PodRefused, match="not_fenced"):
        await emberd_client.restart(pod.address, 1)
    lease = open_lease(pod, emberd_client)
    assert (await lease.sh("true")).ok
    with pytest.raises(PodRefused, match="not_fenced"):
        await emberd_client.restart(pod.address, pod.epoch)
    assert (await lease.sh("echo on")).text == "on\n"
    await emberd_client.fence(pod.address, pod.epoch + 1)
    with pytest.raises(PodRefused, match="not_fenced"):
        await emberd_client.restart(pod.address, pod.epoch)
    pod.epoch += 1
    await reset(lease)
    pod.stop()


async def test_it_comes_back_fenced_and_with_its_tag(emberds: Starter, emberd_client: EmberdClient) -> None:
    """Another boot, the same account: nobody gets it before its reset is proved, and then its caller alone."""
    pod = emberds.start("namespaces")
    lease = open_lease(pod, emberd_client)
    assert (await lease.sh("echo left > f; (setsid sleep 60 &)")).ok
    await told_to_end(lease)
    anew, state = await started_anew(emberds, emberd_client, pod)
    assert state.boot_id != pod.address.boot_id
    assert (state.state, state.tag, state.epoch, state.uses) == ("dirty", "a" * 32, pod.epoch, 0)
    with pytest.raises(PodRefused, match="not_clean"):
        await open_lease(anew, emberd_client).sh("true")
    proof = await recycled(anew, emberd_client)
    assert proof.holds and proof.restarted and proof.tier is RecycleTier.ROOM
    with pytest.raises(PodRefused, match="other_tag"):
        await open_lease(anew, emberd_client, tag="b" * 32).sh("true")
    following = open_lease(anew, emberd_client)
    assert (await following.sh("ls")).text == ""
    assert not (await recycled(anew, emberd_client)).restarted
    anew.stop()


async def test_a_standby_pod_that_was_used_stands_by_no_more(emberds: Starter, emberd_client: EmberdClient) -> None:
    """It was promoted before its first lease, and what it was started with says otherwise."""
    pod = emberds.start("namespaces", standby={"memory_mb": 16})
    await emberd_client.promote(pod.address)
    lease = open_lease(pod, emberd_client)
    assert (await lease.sh("true")).ok
    await told_to_end(lease)
    anew, state = await started_anew(emberds, emberd_client, pod, standby={"memory_mb": 16})
    assert not state.standby
    assert (await recycled(anew, emberd_client)).holds
    allocate = ("python3", "-c", "print(len(bytearray(60_000_000)))")
    assert (await open_lease(anew, emberd_client).run(*allocate)).text == "60000000\n"
    anew.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a pod several users takes root")
async def test_what_outlives_a_container_is_removed_at_its_start(emberds: Starter, emberd_client: EmberdClient) -> None:
    """In volumes of the pod there is what jobs left: it is removed before the pod's own files are looked at, so that it
    is not taken for one of them. Then the tier is `restart`."""
    folder = emberds.folder()
    volume = folder / "emberd" / "volume"
    (volume / "own").mkdir(parents=True)
    (volume / "own" / "file").touch()
    for path in (volume, volume / "own"):
        path.chmod(0o777)
    pod = emberds.start("auto", folder, container="swept")
    lease = open_lease(pod, emberd_client)
    left = "cd /emberd/volume; mkdir -p a/b own/c; touch a/b/f own/c/f own/left; chmod 0 a/b; ln -s /etc link; mkfifo p"
    assert (await lease.sh(left)).ok
    await emberd_client.fence(pod.address, pod.epoch + 1)
    pod.epoch += 1
    pod.process.kill()  # nobody was asked: the container just ended
    await asyncio.to_thread(pod.process.wait, 5)
    assert len(os.listdir(volume)) == 4
    anew, _ = await started_anew(emberds, emberd_client, pod)
    assert sorted(os.listdir(volume)) == ["own"] and os.listdir(volume / "own") == ["file"]
    proof = await recycled(anew, emberd_client)
    assert proof.holds and proof.restarted and proof.tier is RecycleTier.RESTART
    assert (await open_lease(anew, emberd_client).sh("ls /emberd/volume")).text == "own\n"
    later = await recycled(anew, emberd_client)
    assert later.holds and not later.restarted and later.tier is RecycleTier.SWEEP
    anew.stop()
