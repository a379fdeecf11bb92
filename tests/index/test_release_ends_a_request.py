"""Release ends a request whatever its state, and what comes too late is told so."""

from fixtures.index_checks import assert_sound, snapshot
from fixtures.pods import age, claimed, ready, recycle, released, request, used, warm

from emberpool.pool.index.contract import NothingHeld, Released
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Claimed, Closed, Expired, Lost, Mismatch, Provision, Source, Wait
from emberpool.pool.model.ids import PodName, RequestId
from emberpool.pool.model.state import PodState


async def test_the_pod_turns_dirty(index: RedisIndex) -> None:
    """Releasing a lease leaves its pod dirty at a higher epoch, to be recycled."""
    await warm(index, "p1")
    lease = await claimed(index, "r1")
    reply = await released(index, "r1")
    assert (reply.pod, reply.epoch, reply.tag) == (PodName("p1"), lease.epoch + 1, lease.tag)
    pod = await index.pod(PodName("p1"))
    assert pod is not None and (pod.state, pod.lease) == (PodState.DIRTY, "")


async def test_release_repeated(index: RedisIndex) -> None:
    """Released again, the same pod is named for as long as it waits for its recycle, then nothing."""
    await warm(index, "p1")
    await claimed(index, "r1")
    assert await released(index, "r1") == await released(index, "r1")
    await recycle(index, "p1")
    assert await index.release(RequestId("r1")) == NothingHeld()


async def test_release_repeated_never_names_the_next_holders_pod(index: RedisIndex) -> None:
    """A pod that is dirty again after another lease is not named to the request that had it before."""
    await warm(index, "p1")
    await claimed(index, "r1")
    await released(index, "r1")
    await recycle(index, "p1")
    await claimed(index, "r2")
    await released(index, "r2")
    assert await index.release(RequestId("r1")) == NothingHeld()


async def test_a_late_claim_is_closed(index: RedisIndex) -> None:
    """A claim that comes after its release is Closed, also if it is the first that the index hears of it."""
    await warm(index, "p1")
    await claimed(index, "r1")
    await released(index, "r1")
    assert await index.claim(request("r1")) == Closed()
    assert await index.release(RequestId("r2")) == NothingHeld()
    assert await index.claim(request("r2")) == Closed()
    assert (await index.counts()).leases == 0


async def test_release_leaves_the_line(index: RedisIndex) -> None:
    """A waiting request that is released is not served any more."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r1")
    await index.claim(request("r2", "b"))
    assert await index.release(RequestId("r2")) == NothingHeld()
    assert (await index.counts()).waiting == 0
    await index.pod_gone(PodName("p1"), "test")
    assert await index.pods(PodState.STARTING, 10) == []


async def test_a_starting_pod_becomes_nobodys(index: RedisIndex) -> None:
    """The pod that a released request was having made becomes idle fresh, for anyone."""
    await index.claim(request("r1"))
    await index.release(RequestId("r1"))
    assert (await ready(index, "pod-r1")).kind == "idle"
    assert (await claimed(index, "r2", "b")).source is Source.FRESH


async def test_who_takes_over_a_half_made_pod_makes_it(index: RedisIndex) -> None:
    """A pod whose maker was released may never have been created: the next request for it is told to provision it."""
    await index.set_targets(2, 1, 0)
    await index.claim(request("r1"))
    assert isinstance(await index.claim(request("r2", "b")), Wait)
    await index.release(RequestId("r1"))
    assert await index.next_wakes("worker", 1) == ["r2"]
    assert await index.claim(request("r2", "b")) == Provision(pod=PodName("pod-r1"), image="base")


async def test_a_reserved_reset_becomes_nobodys(index: RedisIndex) -> None:
    """A pod being reset for a request that is released becomes idle."""
    await warm(index, "p1")
    await claimed(index, "r1")
    await released(index, "r1")
    await index.claim(request("r2"))
    await index.release(RequestId("r2"))
    assert (await recycle(index, "p1")).kind == "idle"


async def test_a_promotion_for_nobody_ends_idle(index: RedisIndex) -> None:
    """A standby pod that was promoted for a request that is released becomes idle fresh."""
    await index.reserve_warm(PodName("p1"), "base")
    await ready(index, "p1", standby=True)
    await index.claim(request("r1"))
    await index.release(RequestId("r1"))
    assert (await ready(index, "p1")).kind == "idle"
    assert (await index.counts()).idle_fresh == 1


async def test_a_swap_for_nobody_keeps_its_tag(index: RedisIndex) -> None:
    """A pod that was swapped for a request that is released stays its last caller's."""
    await warm(index, "p1")
    await used(index, "r1")
    await index.claim(request("r2", image="other"))
    await index.release(RequestId("r2"))
    assert (await ready(index, "p1", "other")).kind == "idle"
    assert isinstance(await index.claim(request("r3", "b", image="other")), Provision)
    assert (await claimed(index, "r4", image="other")).source is Source.REUSE


async def test_a_lost_lease_stays_lost(index: RedisIndex) -> None:
    """A claim of a lease whose pod vanished is Lost with the reason, not a new pod."""
    await warm(index, "p1", "p2")
    lease = await claimed(index, "r1")
    await index.pod_gone(lease.pod.name, "evicted")
    assert await index.claim(request("r1")) == Lost(reason="evicted")
    assert await index.claim(request("r1", epoch=lease.epoch)) == Lost(reason="evicted")


async def test_an_epoch_without_a_record_is_lost(index: RedisIndex) -> None:
    """A ref that has seen a pod never gets a new one from an index that knows nothing of it."""
    await warm(index, "p1")
    assert await index.claim(request("r1", epoch=4)) == Lost(reason="unknown")
    assert await index.lease(RequestId("r1")) is None


async def test_an_old_epoch_is_lost(index: RedisIndex) -> None:
    """A ref with the epoch of another pod than its lease has now is Lost, and the lease is untouched."""
    await warm(index, "p1")
    lease = await claimed(index, "r1")
    assert await index.claim(request("r1", epoch=lease.epoch + 7)) == Lost(reason="fenced")
    assert isinstance(await index.claim(request("r1", epoch=lease.epoch)), Claimed)


async def test_another_tag_is_a_mismatch(index: RedisIndex) -> None:
    """A request id that comes back with another tag is refused, in every state."""
    await warm(index, "p1")
    await claimed(index, "r1")
    assert await index.claim(request("r1", "b")) == Mismatch()
    await released(index, "r1")
    assert await index.claim(request("r1", "b")) == Mismatch()


async def test_a_used_pod_never_goes_to_another_tag(index: RedisIndex) -> None:
    """With a used pod idle, fit and aged, another caller still gets a new one."""
    await warm(index, "p1")
    await used(index, "r1")
    await age(index, "p1", 100)
    assert isinstance(await index.claim(request("r2", "b")), Provision)


async def test_first_contact_failed_moves_on(index: RedisIndex) -> None:
    """A new claim whose pod does not answer gets another; the silent one drains at a higher epoch."""
    await warm(index, "p1", "p2")
    lease = await claimed(index, "r1")
    assert await index.first_contact_failed(RequestId("r1"), lease.epoch, "silent") == "moved"
    bad = await index.pod(lease.pod.name)
    assert bad is not None and (bad.state, bad.epoch, bad.reason) == (PodState.DRAINING, lease.epoch + 1, "silent")
    again = await claimed(index, "r1")
    assert again.pod.name != lease.pod.name and again.new


async def test_first_contact_failed_told_twice_costs_one_pod(index: RedisIndex) -> None:
    """Told once more, as after a connection that broke, it leaves the pod alone that the request has by then."""
    await warm(index, "p1", "p2", "p3")
    lease = await claimed(index, "r1")
    assert await index.first_contact_failed(RequestId("r1"), lease.epoch, "silent") == "moved"
    again = await claimed(index, "r1")
    assert again.pod.name != lease.pod.name and again.epoch > lease.epoch
    assert await index.first_contact_failed(RequestId("r1"), lease.epoch, "silent") == "moved"
    await index.end_call(RequestId("r1"), lease.epoch)
    assert (await claimed(index, "r1", epoch=again.epoch)).pod == again.pod
    assert isinstance(await index.claim(request("r1", epoch=lease.epoch)), Lost)


async def test_a_name_is_used_once(index: RedisIndex) -> None:
    """A request whose pod was made for it, served and failed at first contact has its next pod made by another name."""
    await index.set_targets(2, 1, 0)
    for expected in ("pod-r1", "pod-r1-1", "pod-r1-2"):
        assert await index.claim(request("r1")) == Provision(pod=PodName(expected), image="base")
        await ready(index, expected)
        lease = await claimed(index, "r1")
        assert await index.first_contact_failed(RequestId("r1"), lease.epoch, "silent") == "moved"
        await index.pod_gone(PodName(expected), "silent")


async def test_a_claim_that_would_not_wait_moves_on_too(index: RedisIndex) -> None:
    """With no time to wait, silent pods are passed over for as long as another is idle; then it expires."""
    await warm(index, "p1", "p2", "p3")
    await index.set_targets(2, 3, 0)
    tried: set[str] = set()
    for _ in range(3):
        lease = await claimed(index, "r1", wait_timeout_s=0)
        assert lease.new
        tried.add(lease.pod.name)
        assert await index.first_contact_failed(RequestId("r1"), lease.epoch, "silent") == "moved"
    assert tried == {"p1", "p2", "p3"}
    assert await index.claim(request("r1", wait_timeout_s=0)) == Expired()
    assert_sound(await snapshot(index))


async def test_first_contact_failed_keeps_the_rank(index: RedisIndex) -> None:
    """Who moves stands before those of its caller that came later."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    lease = await claimed(index, "r1")
    await index.claim(request("r2"))
    await index.first_contact_failed(RequestId("r1"), lease.epoch, "silent")
    await index.pod_gone(lease.pod.name, "silent")
    assert isinstance(await index.claim(request("r1")), Provision)


async def test_first_contact_failed_of_a_shared_lease_is_lost(index: RedisIndex) -> None:
    """If another call was answered with the same pod, something may have run there: the lease is lost."""
    await warm(index, "p1", "p2")
    lease = await claimed(index, "r1")
    await claimed(index, "r1")
    assert await index.first_contact_failed(RequestId("r1"), lease.epoch, "silent") == "lost"
    assert await index.claim(request("r1")) == Lost(reason="silent")


async def test_first_contact_failed_too_late_is_stale(index: RedisIndex) -> None:
    """A report about a lease that is over, or of another epoch, changes nothing."""
    await warm(index, "p1")
    lease = await claimed(index, "r1")
    assert await index.first_contact_failed(RequestId("r1"), lease.epoch + 1, "silent") == "stale"
    await released(index, "r1")
    assert await index.first_contact_failed(RequestId("r1"), lease.epoch, "silent") == "stale"
    assert isinstance(await index.release(RequestId("r1")), Released)


async def test_a_failed_pod_is_lost_to_its_holder(index: RedisIndex) -> None:
    """A leased pod that broke drains, and its holder is told why."""
    await warm(index, "p1")
    await claimed(index, "r1")
    assert (await index.pod_failed(PodName("p1"), "oom")).kind == "must_drain"
    assert await index.claim(request("r1")) == Lost(reason="oom")
    assert (await index.pod_failed(PodName("nobody"), "oom")).kind == "stale"


async def test_a_failed_start_puts_its_request_in_line(index: RedisIndex) -> None:
    """A request whose pod failed to start waits again, and its next pod has another name."""
    await index.set_targets(2, 1, 0)
    await index.claim(request("r1"))
    await index.pod_failed(PodName("pod-r1"), "image_pull")
    assert isinstance(await index.claim(request("r1")), Wait)
    await index.pod_gone(PodName("pod-r1"), "image_pull")
    assert await index.claim(request("r1")) == Provision(pod=PodName("pod-r1-1"), image="base")


async def test_detach_and_adopt(index: RedisIndex) -> None:
    """A detached lease has a new holder once it is adopted; a request that is over can be neither."""
    await warm(index, "p1")
    await claimed(index, "r1")
    assert await index.detach(RequestId("r1"))
    lease = await index.lease(RequestId("r1"))
    assert lease is not None and lease.detached
    receiver = lease.holder.model_copy(update={"workflow_id": "receiver"})
    assert await index.adopt(RequestId("r1"), receiver)
    lease = await index.lease(RequestId("r1"))
    assert lease is not None and not lease.detached and lease.holder == receiver
    await released(index, "r1")
    assert not await index.detach(RequestId("r1"))
    assert not await index.adopt(RequestId("r1"), receiver)
