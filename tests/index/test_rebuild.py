"""A lost index is rebuilt from the pods' own accounts, once, and nothing is given away meanwhile."""

from collections.abc import Sequence
from typing import Literal

import pytest
from fixtures.pods import claimed, recycle, released, request, tag_of, warm
from fixtures.redis import build, keys_of

from emberpool.pool.index.caller import Argument, ScriptCaller
from emberpool.pool.index.contract import RebuiltPod
from emberpool.pool.index.limits import IndexLimits
from emberpool.pool.index.rebuild import rebuild_index
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.index.scripts import Script
from emberpool.pool.model.claim import Claimed, Closed, Lost, Promote, Provision, Rebuilding, Wait
from emberpool.pool.model.errors import IndexRebuilding
from emberpool.pool.model.ids import BootId, PodName, PodUid, RequestId
from emberpool.pool.model.state import PodState


def told(
    name: str,
    state: Literal["clean", "held", "dirty"],
    tag: str = "",
    epoch: int = 0,
    lease: str = "",
    hold_s: float = 60,
) -> RebuiltPod:
    """What a pod says of itself."""
    return RebuiltPod(
        name=PodName(name),
        uid=PodUid("u"),
        boot_id=BootId("b"),
        endpoint=f"unix:/{name}",
        image="base",
        state=state,
        tag=tag,
        epoch=epoch,
        lease=lease,
        hold_s=hold_s,
    )


async def lose(index: RedisIndex) -> None:
    """What a flush of this pool does."""
    await index.redis.commands.delete(*await keys_of(index.redis, index))


async def rebuilt(index: RedisIndex, *pods: RebuiltPod) -> None:
    """Rebuild from these accounts, with targets."""
    assert await index.try_rebuild_lock("w", 30)
    assert await index.rebuild("w", list(pods))
    assert await index.set_targets(1, 8, 0)


async def test_without_generation_nothing_happens(index: RedisIndex) -> None:
    """Every transition answers Rebuilding; no pod is started, no record written."""
    await lose(index)
    assert await index.claim(request("r1")) == Rebuilding()
    for call in (
        index.release(RequestId("r1")),
        index.end_call(RequestId("r1"), 1),
        index.begin_recycle(PodName("p")),
        index.pod_gone(PodName("p"), "x"),
        index.reserve_warm(PodName("p"), "base"),
        index.set_targets(9, 9, 0),
        index.expire(1),
        index.counts(),
        index.lease(RequestId("r1")),
    ):
        with pytest.raises(IndexRebuilding):
            await call
    assert await keys_of(index.redis, index) == []


async def test_clean_held_and_dirty(index: RedisIndex) -> None:
    """clean becomes idle, held becomes leased under its lease id and epoch, dirty stays dirty."""
    await lose(index)
    await rebuilt(
        index,
        told("fresh", "clean"),
        told("mine", "clean", tag_of("a"), 7),
        told("held", "held", tag_of("b"), 5, "r1"),
        told("bad", "dirty", tag_of("c"), 9),
    )
    counts = await index.counts()
    assert (counts.by_state[PodState.IDLE], counts.idle_fresh, counts.leases) == (2, 1, 1)
    lease = await claimed(index, "r1", "b", epoch=5)
    assert (lease.pod.name, lease.epoch, lease.new) == (PodName("held"), 5, False)
    reuse = await claimed(index, "r2")
    assert reuse.pod.name == PodName("mine") and reuse.epoch > 7
    started = await index.begin_recycle(PodName("bad"))
    assert started.kind == "recycle_started" and started.epoch == 10


async def test_a_restored_lease_is_not_swept_before_its_holder_is_known(index: RedisIndex) -> None:
    """emberd does not know the holder: until its next call, the lease ends by its hold only."""
    await lose(index)
    await rebuilt(index, told("held", "held", tag_of("a"), 5, "r1"))
    assert await index.quiet_leases(0, 10) == []
    await claimed(index, "r1", epoch=5)
    lease = await index.lease(RequestId("r1"))
    assert lease is not None and lease.holder == request("r1").holder and not lease.detached
    assert len(await index.quiet_leases(0, 10)) == 1


async def test_a_restored_lease_expires_with_the_hold_that_emberd_knew(index: RedisIndex) -> None:
    """A holder that never comes back loses its pod after the hold."""
    await lose(index)
    await rebuilt(index, told("held", "held", tag_of("a"), 5, "r1", hold_s=0))
    assert await index.expire(10) == 1
    assert await index.claim(request("r1", epoch=5)) == Lost(reason="hold_expired")


async def test_one_lease_has_one_pod(index: RedisIndex) -> None:
    """If two pods name the same lease, the one opened last has it, the other is dirty."""
    await lose(index)
    await rebuilt(index, told("old", "held", tag_of("a"), 3, "r1"), told("new", "held", tag_of("a"), 4, "r1"))
    assert (await claimed(index, "r1")).pod.name == "new"
    assert [pod.name for pod in await index.pods(PodState.DIRTY, 10)] == ["old"]


async def test_no_pods_for_anyone_before_the_targets(index: RedisIndex) -> None:
    """The ceiling is zero until targets are set again: nothing is created, and nothing is thrown away."""
    await lose(index)
    assert await index.try_rebuild_lock("w", 30)
    assert await index.rebuild("w", [told("p1", "clean", tag_of("a"), 2)])
    assert isinstance(await index.claim(request("r1", "b")), Wait)
    assert await index.retire_idle(10) == []
    assert isinstance(await index.claim(request("r2")), Claimed)
    await released(index, "r2")
    assert (await recycle(index, "p1")).kind == "idle"
    assert await index.set_targets(1, 2, 0)
    assert isinstance(await index.claim(request("r1", "b")), Provision)


async def test_one_rebuilder(index: RedisIndex) -> None:
    """The lock has one owner; who has it not, or lost it, writes nothing."""
    await lose(index)
    assert await index.try_rebuild_lock("w1", 30)
    assert not await index.try_rebuild_lock("w2", 30)
    assert not await index.try_rebuild_lock("w1", 30)
    assert not await index.rebuild("w2", [told("p1", "clean")])
    assert await index.claim(request("r1")) == Rebuilding()
    assert await index.rebuild("w1", [])


async def test_no_rebuild_of_what_is_built(index: RedisIndex) -> None:
    """With a generation there is nothing to rebuild: a second rebuilder does no harm."""
    await warm(index, "p1")
    assert not await index.try_rebuild_lock("w", 30)
    assert not await index.rebuild("w", [])
    assert isinstance(await index.claim(request("r1")), Claimed)


async def test_leftovers_are_dropped(index: RedisIndex) -> None:
    """What remains of an index that lost only its generation counts for nothing, but tombstones still answer."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r0")
    await index.release(RequestId("r0"))
    await recycle(index, "p1")
    await claimed(index, "r1")
    await index.claim(request("r2", "b"))
    await index.redis.commands.delete(f"{index.base}generation")
    await rebuilt(index, told("p9", "clean"))
    counts = await index.counts()
    assert (counts.waiting, counts.leases, sum(counts.by_state.values())) == (0, 0, 1)
    assert await index.claim(request("r0")) == Closed()
    assert isinstance(await index.claim(request("r2", "b")), Claimed)


async def test_no_epoch_comes_again_when_index_and_pod_are_lost(index: RedisIndex) -> None:
    """An older word of the same request, on a pod that nobody remembers, is never taken for one of its pod of today."""
    epochs: list[int] = []
    for number in range(3):
        await lose(index)
        await rebuilt(index, told(f"p{number}", "clean"))
        lease = await claimed(index, "r1")
        assert lease.epoch > max(epochs, default=0)
        for older in epochs:
            assert await index.claim(request("r1", epoch=older)) == Lost(reason="fenced")
        epochs.append(lease.epoch)


async def test_many_pods(index: RedisIndex) -> None:
    """More pods than one page holds are all there afterwards."""
    await lose(index)
    await rebuilt(index, *(told(f"p{number}", "clean") for number in range(1_203)))
    assert (await index.counts()).idle_fresh == 1_203


class _Twice(ScriptCaller):
    """Sends every page a second time, as a client does that lost the connection before the first answer."""

    async def __call__(self, script: Script, *arguments: Argument) -> Sequence[str]:
        """Run it, and a page that is not the last again."""
        reply = await super().__call__(script, *arguments)
        if script is Script.REBUILD_PAGE and arguments[1] == "":
            return await super().__call__(script, *arguments)
        return reply


async def test_a_page_that_comes_twice_counts_once(index: RedisIndex) -> None:
    """Held pods stay their holders', though the page that tells of them was sent again."""
    await lose(index)
    pods = [told(f"p{number}", "held", tag_of("a"), 1000 + number, f"r{number}") for number in range(600)]
    assert await index.try_rebuild_lock("w", 30)
    twice = _Twice(index.redis, index.base, IndexLimits())
    assert await rebuild_index(index.redis, twice, index.base, "w", pods)
    counts = await index.counts()
    assert ({state: many for state, many in counts.by_state.items() if many}, counts.leases) == (
        {PodState.LEASED: 600},
        600,
    )
    assert (await claimed(index, "r599", epoch=1599)).pod.name == "p599"


class _Dies(ScriptCaller):
    """A rebuilder's caller that dies before its second page."""

    pages = 0

    async def __call__(self, script: Script, *arguments: Argument) -> Sequence[str]:
        """Run it, unless it is the second page."""
        self.pages += script is Script.REBUILD_PAGE
        if self.pages == 2:
            raise ConnectionAbortedError
        return await super().__call__(script, *arguments)


async def test_a_crash_between_pages_leaves_nothing(index: RedisIndex) -> None:
    """A rebuilder dies after the first of three pages: nobody is served from that, and the next one begins anew."""
    await lose(index)
    before = [told(f"old{number}", "held", tag_of("a"), 1000 + number, f"r{number}") for number in range(6)]
    assert await index.try_rebuild_lock("dead", 30)
    dies = _Dies(index.redis, index.base, IndexLimits())
    with pytest.raises(ConnectionAbortedError):
        await rebuild_index(index.redis, dies, index.base, "dead", before, page=2)
    assert await index.redis.commands.zcard(f"{index.base}pods:leased") == 2, "the first page was written"
    assert await index.claim(request("r5")) == Rebuilding()
    assert not await index.try_rebuild_lock("w", 30)
    assert await index.keep_rebuild_lock("dead", 0.02)  # as if its half minute were over
    while not await index.try_rebuild_lock("w", 30):
        assert await index.claim(request("r5")) == Rebuilding()
    assert not await index.keep_rebuild_lock("dead", 30), "it lives, and comes too late"
    # Since then old5 was released, old4 is another's, and the rest are gone.
    now = [told("old5", "dirty", tag_of("a"), 1006), told("old4", "held", tag_of("b"), 2000, "r9")]
    later = [told(f"new{number}", "clean") for number in range(3)]
    assert await rebuild_index(index.redis, dies_not(index), index.base, "w", [*now, *later], page=2)
    names = {state: {pod.name for pod in await index.pods(state, 10)} for state in PodState if state != "gone"}
    found = {state: held for state, held in names.items() if held}
    assert found == {
        PodState.DIRTY: {"old5"},
        PodState.LEASED: {"old4"},
        PodState.IDLE: {"new0", "new1", "new2"},
    }
    assert (await index.counts()).leases == 1 and await index.lease(RequestId("r5")) is None
    assert (await claimed(index, "r9", "b", epoch=2000)).pod.name == "old4"
    left = [key.removeprefix(index.base) for key in await keys_of(index.redis, index)]
    assert sorted(key for key in left if "old" in key or key.startswith("lease:")) == [
        "lease:r9",
        "pod:old4",
        "pod:old5",
    ]


def dies_not(index: RedisIndex) -> ScriptCaller:
    """A caller that goes on."""
    return ScriptCaller(index.redis, index.base, IndexLimits())


async def test_pools_do_not_meet(index: RedisIndex) -> None:
    """Another deployment or pool on the same Redis sees nothing of this one (xorbitsai/xagent#1155)."""
    await warm(index, "p1")
    other = RedisIndex(index.redis, "other", index.name)
    await build(other)
    await used_up(other)
    assert (await index.counts()).idle_fresh == 1
    await other.redis.commands.delete(*await keys_of(other.redis, other))
    assert isinstance(await index.claim(request("r1")), Claimed)


async def used_up(index: RedisIndex) -> None:
    """Nothing is there to be taken."""
    assert isinstance(await index.claim(request("r1")), Provision)


async def test_standby_pods_stand_by_again(index: RedisIndex) -> None:
    """A pod whose emberd says that it stands by is promoted before it is let, not let as it is."""
    await lose(index)
    await rebuilt(index, told("p1", "clean").model_copy(update={"standby": True}))
    assert (await index.counts()).by_state[PodState.STANDBY] == 1
    await index.set_targets(1, 1, 0)
    assert await index.claim(request("r1")) == Promote(pod=PodName("p1"))
