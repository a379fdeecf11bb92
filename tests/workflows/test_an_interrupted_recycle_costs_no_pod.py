"""A recycle that starts its pod anew may end halfway, with its worker: the next one goes on with the pod as it is."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from fixtures.local import MakeProvider, SupervisorProcess, new_name
from fixtures.pods import IMAGE, PROVED, age, claimed, recycling, released

from emberpool.activities import recycle as recycles
from emberpool.activities.line import WaitingLine
from emberpool.activities.metrics import Metrics
from emberpool.activities.pools import Pool
from emberpool.activities.recycle import recycle
from emberpool.activities.start import start_pod
from emberpool.pool.client.emberd_client import EmberdClient, LeaseProof
from emberpool.pool.index.contract import Stale
from emberpool.pool.index.limits import IndexLimits
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Claimed, PodAddress, Source
from emberpool.pool.model.command import Command
from emberpool.pool.model.ids import ExecutionId, PodName
from emberpool.pool.model.recycle import RecycleOutcome, RecycleTier
from emberpool.pool.providers.kubernetes.changes import RESTART_S
from emberpool.pool.providers.local.pods import RESTART_LIMIT_S
from emberpool.pool.providers.local.provider import LocalProvider


@dataclass(frozen=True)
class Used:
    """A pod that a request has used and left dirty."""

    pool: Pool
    index: RedisIndex
    supervisor: SupervisorProcess
    address: PodAddress

    @property
    def name(self) -> PodName:
        return self.address.name

    async def cut_after_restart(self) -> int:
        """Begin its recycle, have it started anew, and do nothing more: its worker died. The recycle's epoch."""
        epoch = (await recycling(self.index, self.name)).epoch
        await self.pool.client.fence(self.address, epoch)
        assert await self.pool.provider.restart(self.name, epoch) == ""
        await age(self.index, self.name, 31)
        return epoch

    async def cut_after_reset(self) -> int:
        """The same, but its worker died when the new emberd was reset already, before the index heard of it."""
        epoch = await self.cut_after_restart()
        anew = await self.now()
        await self.pool.client.fence(anew, epoch)
        assert (await self.pool.client.recycle(anew, epoch)).holds
        return epoch

    async def now(self) -> PodAddress:
        """Where its emberd is, by the boot that it has now."""
        state = await self.pool.client.state(self.name, self.address.endpoint)
        return self.address.model_copy(update={"boot_id": state.boot_id})

    def spoil_rooms(self) -> None:
        """Put a file in the place of its folder of rooms: none can be made there."""
        scratch = self.supervisor.data / "pods" / self.name / "scratch"
        (scratch / "rooms").rename(scratch / "away")
        (scratch / "rooms").touch()


async def run(pool: Pool, claim: Claimed, request: str, shell: str) -> str:
    """What a command prints under the request's lease."""
    proof, command = LeaseProof(request, claim.epoch, claim.tag, 60.0), Command(shell=shell, time_limit_s=20)
    return (await pool.client.run(claim.pod, proof, ExecutionId(uuid.uuid4().hex), command)).check().text


@pytest.fixture
async def used(
    request: pytest.FixtureRequest, index: RedisIndex, local_provider: MakeProvider, supervisor: SupervisorProcess
) -> AsyncIterator[Used]:
    """A pod of a profile that has pods started anew, or of one with the test's own `least_tier`."""
    provider, name = local_provider(least_tier=getattr(request, "param", "restart")), new_name()
    async with EmberdClient(supervisor.key) as client:
        metrics = Metrics().of(provider.profile.name)
        line = WaitingLine(index)
        pool = Pool(provider.profile, index, provider, client, line, "tests", "", supervisor.key, metrics)
        await index.reserve_warm(name, IMAGE)
        assert await start_pod(pool, name, IMAGE) == ""
        claim = await claimed(index, "r1")
        await run(pool, claim, "r1", "echo left > f")
        await released(index, "r1")
        yield Used(pool, index, supervisor, claim.pod)


async def test_the_next_recycle_goes_on_after_the_restart(used: Used) -> None:
    """The same pod, by the boot that it has now, goes back to its caller; whoever was taken for dead comes too late."""
    epoch = await used.cut_after_restart()
    anew = await used.now()
    assert anew.boot_id != used.address.boot_id
    result = await recycle(used.pool, used.name)
    proof = result.attestation
    assert result.outcome is RecycleOutcome.IDLE and proof is not None and proof.holds, result
    assert proof.restarted and proof.tier is RecycleTier.ROOM
    assert await used.index.finish_recycle(used.name, epoch, PROVED, 60, 100) == Stale()
    following = await claimed(used.index, "r2")
    assert following.source is Source.REUSE and following.pod == anew
    assert await run(used.pool, following, "r2", "ls") == ""


async def test_the_next_recycle_goes_on_after_the_reset(used: Used) -> None:
    """A pod that is clean already, in a life that nobody has used, is reset once more and goes back to its caller."""
    await used.cut_after_reset()
    anew = await used.now()
    result = await recycle(used.pool, used.name)
    proof = result.attestation
    assert result.outcome is RecycleOutcome.IDLE and proof is not None and proof.holds, result
    assert proof.restarted and proof.tier is RecycleTier.ROOM
    following = await claimed(used.index, "r2")
    assert following.source is Source.REUSE and following.pod == anew
    assert await run(used.pool, following, "r2", "ls") == ""


@pytest.mark.parametrize("lost", ["used", "account"])
async def test_a_clean_pod_that_a_recycle_did_not_leave_is_given_up(used: Used, lost: str) -> None:
    """Somebody has used it since, or it does not know any more whose it was: neither is what a recycle leaves."""
    if lost == "account":
        epoch = (await recycling(used.index, used.name)).epoch
        await used.pool.client.fence(used.address, epoch)
        (account,) = (used.supervisor.data / "pods" / used.name).glob("**/state.json")
        account.unlink()
        assert await used.pool.provider.restart(used.name, epoch) == ""
        await age(used.index, used.name, 31)
    else:
        epoch = await used.cut_after_reset()
        anew = await used.now()
        tag = (await used.pool.client.state(used.name, anew.endpoint)).tag
        proof, command = LeaseProof("r9", epoch + 1, tag, 60.0), Command(shell="echo left > f")
        assert (await used.pool.client.run(anew, proof, ExecutionId("r9"), command)).ok
        await used.pool.client.fence(anew, epoch + 1)
        assert (await used.pool.client.recycle(anew, epoch + 1)).holds
    result = await recycle(used.pool, used.name)
    assert result.outcome is RecycleOutcome.DRAINED and "other_boot" in result.reason and "clean" in result.reason


async def test_it_is_started_anew_once(used: Used, caplog: pytest.LogCaptureFixture) -> None:
    """If it has no room to give then either, it goes, and nobody asks for another restart."""
    await used.cut_after_restart()
    used.spoil_rooms()
    result = await recycle(used.pool, used.name)
    assert (result.outcome, result.reason) == (RecycleOutcome.DRAINED, "not attested: tier")
    assert "is not started anew" not in caplog.text


async def test_a_pod_that_went_on_with_another_is_given_up(used: Used) -> None:
    """What it is now is not what the recycle that was cut left behind."""
    epoch = await used.cut_after_restart()
    await used.pool.client.fence(await used.now(), epoch + 100)
    result = await recycle(used.pool, used.name)
    assert result.outcome is RecycleOutcome.DRAINED
    assert "other_boot" in result.reason and f"dirty at epoch {epoch + 100}" in result.reason


@pytest.mark.parametrize("used", ["room"], indirect=True)
async def test_where_no_pod_is_started_anew_another_boot_is_a_lost_pod(used: Used) -> None:
    """Its emberd was ended by something that nobody had asked for."""
    await used.cut_after_restart()
    result = await recycle(used.pool, used.name)
    assert result.outcome is RecycleOutcome.DRAINED and "other_boot" in result.reason


class _Endless(LocalProvider):
    """Its restarts do not end."""

    async def restart(self, name: PodName, epoch: int) -> str:
        await asyncio.Event().wait()
        raise AssertionError("never")


async def test_a_restart_that_takes_too_long_is_given_up(used: Used, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the index has another recycle begin, which would find nobody there; what is waited for fits in."""
    assert max(RESTART_S, RESTART_LIMIT_S) < recycles.ANEW_S < IndexLimits().stuck_ms / 1000
    monkeypatch.setattr(recycles, "ANEW_S", 0.2)
    used.spoil_rooms()
    provider = _Endless(used.pool.profile, used.supervisor.socket)
    result = await recycle(replace(used.pool, provider=provider), used.name)
    await provider.aclose()
    assert (result.outcome, result.reason) == (RecycleOutcome.DRAINED, "not attested: tier")
    assert await used.index.pod(used.name) is None
