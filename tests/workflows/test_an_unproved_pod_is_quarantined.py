"""A pod that does not prove its reset is let to nobody: it is deleted, and the recycle says why; so does the one of a
pod that is too old."""

import os
import sys
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio
from fixtures.emberd import POOL_KEY, Starter
from fixtures.leftovers import planted
from fixtures.nvml import DRIVERS_OWN, HELD, FakeNvml
from fixtures.pods import PROVED, claimed, recycle, released, request, warm
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from temporalio.testing import ActivityEnvironment

from emberpool.activities.line import WaitingLine
from emberpool.activities.manage import Managing
from emberpool.activities.metrics import Metrics
from emberpool.activities.models import LookInput
from emberpool.activities.pools import Pool, Pools
from emberpool.activities.recycle import release_request
from emberpool.pool.client.emberd_client import EmberdClient, LeaseProof
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Claimed, Source
from emberpool.pool.model.command import Command
from emberpool.pool.model.ids import ExecutionId, RequestId
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.recycle import Attestation, RecycleOutcome, RecycleTier
from emberpool.pool.model.state import PodState
from emberpool.pool.providers.local.provider import LocalProvider
from emberpool.worker.connections import open_pools
from emberpool.worker.stack.embedded import EmbeddedStack

LISTEN = "import socket,sys; s = socket.create_server(('', 8123)); print('up', flush=True); sys.stdin.read()"
NETWORK = Command(argv=("readlink", "/proc/self/ns/net"))


@pytest_asyncio.fixture
async def site(stack: EmbeddedStack, profile: Profile) -> AsyncGenerator[Site]:
    """A deployment of the test's profile."""
    async with running_site(stack, site_settings(stack, profile, sweep_quiet_s=60)) as running:
        yield running


@pytest_asyncio.fixture
async def pool(site: Site) -> AsyncGenerator[Pool]:
    """Its pool, as its worker reaches it."""
    async with AsyncExitStack() as opened:
        yield (await open_pools(site.settings, opened))[0]


@dataclass(frozen=True)
class Held:
    """A pod that a request has used."""

    request: RequestId
    claimed: Claimed
    network: str
    """Its network namespace, as the kernel calls it."""


async def used(pool: Pool, caller: str = "ann") -> Held:
    """Claim a warm pod and run a command in it."""

    async def warm() -> bool:
        return (await pool.index.counts()).by_state[PodState.IDLE] > 0

    await wait_until(warm)
    asked = request(uuid.uuid4().hex, caller, image=pool.profile.base_image)
    reply = await pool.index.claim(asked)
    assert isinstance(reply, Claimed), reply
    proof = LeaseProof(asked.request_id, reply.epoch, reply.tag, 60.0)
    result = await pool.client.run(reply.pod, proof, ExecutionId(uuid.uuid4().hex), NETWORK)
    return Held(asked.request_id, reply, result.check().text.strip())


def spoil_rooms(stack: EmbeddedStack, held: Held) -> None:
    """Put a file in the place of the pod's folder of rooms: no room can be made there, nor the used one set aside."""
    scratch = stack.data_dir / "pods" / held.claimed.pod.name / "scratch"
    (scratch / "rooms").rename(scratch / "away")
    (scratch / "rooms").touch()


def someone_in(network: str) -> int:
    """PID of a process in that network namespace, as the host counts."""
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and os.readlink(folder / "ns/net") == network:
                return int(folder.name)
    raise AssertionError(f"nobody is in {network}")


@pytest.mark.skipif(os.geteuid() != 0, reason="planting something in a pod from outside takes root")
@pytest.mark.parametrize("profile", [Profile(name="py", min_warm=1, max_pods=2)])
async def test_a_pod_with_a_leftover_goes_and_its_reason_is_told(
    site: Site, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """In the activity's result, in the worker's log and in its metrics; the caller's next job gets another pod."""
    held = await used(pool)
    with planted(someone_in(held.network), "--net", sys.executable, "-c", LISTEN):
        result = await release_request(pool, held.request)
    assert (result.outcome, result.reason) == (RecycleOutcome.DRAINED, "not attested: listeners")
    assert result.attestation is not None and not result.attestation.holds
    assert f"{held.claimed.pod.name} did not prove its reset and goes: not attested: listeners" in caplog.text
    labels = {"profile": "py", "check": "listeners"}
    assert pool.metrics.metrics.registry.get_sample_value("emberpool_quarantines_total", labels) == 1
    assert await pool.index.pod(held.claimed.pod.name) is None
    following = await used(pool)
    assert following.claimed.pod.name != held.claimed.pod.name and following.claimed.source is not Source.REUSE
    await release_request(pool, following.request)


async def test_a_look_tells_who_is_in_quarantine(index: RedisIndex, tmp_path: Path) -> None:
    """Pods that did not prove their reset, for as long as they are there, by the checks that failed; no others."""
    unproved = Attestation(tier=RecycleTier.ROOM, checks={"listeners": False, "mounts": False, "scratch": True})
    for number, (proof, retire) in enumerate(
        [(unproved, ""), (Attestation(tier=RecycleTier.NONE), ""), (PROVED, "old")]
    ):
        await warm(index, f"p{number}")
        await claimed(index, f"r{number}")
        await released(index, f"r{number}")
        await recycle(index, f"p{number}", proof=proof, retire=retire)
    profile = Profile(name="py")
    async with EmberdClient(b"k" * 32) as client:
        provider, metrics = LocalProvider(profile, tmp_path / "s"), Metrics().of("py")
        pool = Pool(profile, index, provider, client, WaitingLine(index), "tests", "", b"k" * 32, metrics)
        pools = Pools(1.0, 60.0)
        pools.fill([pool])
        view = await ActivityEnvironment().run(Managing(pools).look_at_pool, LookInput(profile="py"))
    assert view.by_state[PodState.DRAINING] == 3
    assert view.quarantined == {"listeners, mounts": 1, "no proof": 1}


@pytest.mark.parametrize("profile", [Profile(name="py", min_warm=1, max_pods=2, least_tier=RecycleTier.RESTART)])
async def test_a_pod_without_a_room_to_give_is_started_anew(site: Site, pool: Pool, stack: EmbeddedStack) -> None:
    """If its profile says so: the same pod, which its caller gets again, by the boot that it has now. A second time is
    too soon, and it goes."""
    held = await used(pool)
    spoil_rooms(stack, held)
    result = await release_request(pool, held.request)
    proof = result.attestation
    assert result.outcome is RecycleOutcome.IDLE and proof is not None and proof.holds, result
    assert proof.restarted and proof.tier is RecycleTier.ROOM
    following = await used(pool)
    assert following.claimed.source is Source.REUSE
    before, after = held.claimed.pod, following.claimed.pod
    assert (after.name, after.uid) == (before.name, before.uid) and after.boot_id != before.boot_id
    spoil_rooms(stack, following)
    result = await release_request(pool, following.request)
    assert (result.outcome, result.reason) == (RecycleOutcome.DRAINED, "not attested: tier")


@pytest.mark.parametrize("profile", [Profile(name="py", min_warm=1, max_pods=2)])
async def test_a_pod_without_a_room_to_give_goes(site: Site, pool: Pool, stack: EmbeddedStack) -> None:
    """Where the profile says nothing."""
    held = await used(pool)
    spoil_rooms(stack, held)
    assert (await release_request(pool, held.request)).outcome is RecycleOutcome.DRAINED


@pytest.mark.parametrize("profile", [Profile.model_validate({"name": "py", "min_warm": 0, "isolation": "plain"})])
@pytest.mark.parametrize("after", HELD.values(), ids=HELD)
async def test_a_pod_with_a_gpu_that_is_still_held_goes(
    pool: Pool, index: RedisIndex, emberds: Starter, after: dict[str, tuple[int, list[int]]]
) -> None:
    """A leak, a process that outlived its parent, a foreign holder, a device that is gone: the recycle drains the pod
    and says that it is for its GPU."""
    folder = emberds.folder() / "nvml"
    folder.mkdir()
    nvml = FakeNvml(folder)
    nvml.say(GPU_a=(DRIVERS_OWN, [77]), GPU_b=(0, []))
    emberd = emberds.start("plain", gpus={"uuids": ["GPU_a", "GPU_b"], "library": str(nvml.library)})
    pod = emberd.address
    await index.reserve_warm(pod.name, pool.profile.base_image)
    await index.pod_ready(pod.name, pod.uid, pod.boot_id, pod.endpoint, pool.profile.base_image, standby=False)
    async with EmberdClient(POOL_KEY) as client:
        own = replace(pool, index=index, client=client, line=WaitingLine(index), pool_key=POOL_KEY)
        held = await used(own)
        assert held.claimed.pod.name == pod.name
        nvml.say(**after)
        result = await release_request(own, held.request)
    assert (result.outcome, result.reason) == (RecycleOutcome.DRAINED, "not attested: vram")
    assert await index.pod(pod.name) is None
    emberd.stop()


@pytest.mark.parametrize("profile", [Profile(name="py", min_warm=1, max_pods=2)])
async def test_the_proof_goes_from_the_recycle_to_the_next_lease(site: Site, pool: Pool) -> None:
    """Tier, every check, time, uses and age: what the recycle's result says is what the next holder is told."""
    held = await used(pool)
    result = await release_request(pool, held.request)
    proof = result.attestation
    assert result.outcome is RecycleOutcome.IDLE and proof is not None and proof.holds
    assert proof.tier is RecycleTier.ROOM and proof.uses == 1 and proof.duration_ms > 0 < proof.age_s
    assert abs(proof.at - time.time()) < 60
    assert set(proof.checks) == {"processes", "listeners", "scratch", "shared_memory", "mounts"}
    following = await used(pool)
    assert following.claimed.pod == held.claimed.pod and following.claimed.attestation == proof
    await release_request(pool, following.request)


@pytest.mark.parametrize("profile", [Profile(name="py", min_warm=1, max_pods=2, max_age_s=0.001)])
async def test_a_pod_that_is_too_old_is_rotated_out(site: Site, pool: Pool) -> None:
    """Its reset is proved; it goes for its age, by the profile, and the reason says so."""
    held = await used(pool)
    result = await release_request(pool, held.request)
    assert (result.outcome, result.reason) == (RecycleOutcome.DRAINED, "too_old")
    assert result.attestation is not None and result.attestation.holds
    assert await pool.index.pod(held.claimed.pod.name) is None


@pytest.mark.parametrize("profile", [Profile(name="py", min_warm=1, max_pods=2, max_uses=1)])
async def test_a_pod_that_was_used_often_enough_is_rotated_out(site: Site, pool: Pool) -> None:
    """The same of the number of leases."""
    held = await used(pool)
    result = await release_request(pool, held.request)
    assert (result.outcome, result.reason) == (RecycleOutcome.DRAINED, "worn_out")


def test_a_weaker_tier_than_the_profile_demands_does_not_hold() -> None:
    """Whatever its checks say; and what a profile demands follows from its pods where it says nothing."""
    swept = Attestation(tier=RecycleTier.SWEEP, checks={"processes": True})
    assert swept.holds and not swept.demanding(RecycleTier.ROOM).holds
    assert swept.demanding(RecycleTier.ROOM).checks == {"processes": True, "tier": False}
    assert swept.demanding(RecycleTier.SWEEP) == swept
    assert Profile(name="a").demanded_tier is RecycleTier.ROOM
    assert Profile.model_validate({"name": "a", "isolation": "plain"}).demanded_tier is RecycleTier.SWEEP
