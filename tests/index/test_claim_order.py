"""A claim takes what costs its caller least: the order of docs/concepts.md."""

from fixtures.pods import PROVED, age, claimed, ready, recycle, recycling, released, request, used, warm

from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Claimed, Promote, Provision, Source, Swap, Wait
from emberpool.pool.model.ids import PodName, RequestId
from emberpool.pool.model.state import PodState


async def test_same_fingerprint_goes_first(index: RedisIndex) -> None:
    """Of two idle pods of the tag, the one with the binding fingerprint is taken, though the other is more recent."""
    await warm(index, "p1", "p2")
    first = await claimed(index, "r1", fingerprint="x")
    second = await claimed(index, "r2", fingerprint="y")
    for name in ("r1", "r2"):
        await released(index, name)
    await recycle(index, first.pod.name)
    await recycle(index, second.pod.name)
    again = await claimed(index, "r3", fingerprint="x")
    assert (again.pod.name, again.source) == (first.pod.name, Source.REUSE)


async def test_most_recently_used_first(index: RedisIndex) -> None:
    """Of idle pods of the tag and image, the one used last is taken."""
    await warm(index, "p1", "p2")
    first = await claimed(index, "r1")
    second = await claimed(index, "r2")
    await released(index, "r1")
    await released(index, "r2")
    await recycle(index, first.pod.name)
    await recycle(index, second.pod.name)
    await age(index, first.pod.name, 5)
    assert (await claimed(index, "r3")).pod.name == second.pod.name


async def test_own_pod_goes_before_a_fresh_one(index: RedisIndex) -> None:
    """A used pod of the tag is taken before a fresh one, and carries the proof of its reset."""
    await warm(index, "p1", "p2")
    pod = await used(index, "r1")
    reply = await claimed(index, "r2")
    assert (reply.pod.name, reply.source, reply.attestation) == (pod, Source.REUSE, PROVED)


async def test_a_pod_being_reset_is_reserved(index: RedisIndex) -> None:
    """A pod of the tag that was released within the last second is reserved, and handed over once it is reset."""
    await warm(index, "p1", "p2")
    pod = (await claimed(index, "r1")).pod.name
    await released(index, "r1")
    assert isinstance(await index.claim(request("r2")), Wait)
    assert (await index.lease(RequestId("r2"))).state == "reserved"  # type: ignore[union-attr]
    reply = await recycle(index, pod)
    assert reply.kind == "handed_to"
    assert await index.next_wakes("worker", 1) == ["r2"]
    again = await claimed(index, "r2")
    assert (again.pod.name, again.new, again.source) == (pod, True, Source.REUSE)


async def test_a_slow_reset_is_not_waited_for(index: RedisIndex) -> None:
    """A pod that has been dirty for over a second is not reserved: the claim goes on to a fresh one."""
    await warm(index, "p1", "p2")
    pod = (await claimed(index, "r1")).pod.name
    await released(index, "r1")
    await age(index, pod, 2)
    assert (await claimed(index, "r2")).source is Source.FRESH


async def test_a_fresh_pod_goes_before_a_starting_one(index: RedisIndex) -> None:
    """An idle fresh pod of the image is taken before one that still starts."""
    await index.reserve_warm(PodName("p1"), "base")
    await warm(index, "p2")
    assert (await claimed(index, "r1")).pod.name == "p2"


async def test_a_starting_pod_is_reserved(index: RedisIndex) -> None:
    """A starting pod that nobody reserved is reserved, and leased to the request as it becomes ready."""
    await index.reserve_warm(PodName("p1"), "base")
    assert isinstance(await index.claim(request("r1")), Wait)
    assert (await ready(index, "p1")).kind == "handed_to"
    reply = await claimed(index, "r1")
    assert (reply.pod.name, reply.source) == ("p1", Source.COLD)


async def test_a_standby_pod_is_promoted(index: RedisIndex) -> None:
    """A standby pod of the image is promoted; asked again, the answer is the same until it serves."""
    await index.reserve_warm(PodName("p1"), "base")
    assert (await ready(index, "p1", standby=True)).kind == "idle"
    for _ in range(2):
        assert await index.claim(request("r1")) == Promote(pod=PodName("p1"))
    await ready(index, "p1")
    assert (await claimed(index, "r1")).source is Source.STANDBY


async def test_own_pod_of_another_image_is_swapped(index: RedisIndex) -> None:
    """An idle pod of the tag with another image has its image swapped before a new pod is made."""
    await warm(index, "p1")
    pod = await used(index, "r1")
    for _ in range(2):
        assert await index.claim(request("r2", image="other")) == Swap(pod=pod, image="other")
    await ready(index, pod, "other")
    reply = await claimed(index, "r2", image="other")
    assert (reply.pod.name, reply.source) == (pod, Source.SWAP)


async def test_a_fresh_pod_of_another_image_is_not_used(index: RedisIndex) -> None:
    """A fresh pod of another image is left alone while there is a place for a new pod."""
    await warm(index, "p1")
    assert await index.claim(request("r1", image="other")) == Provision(pod=PodName("pod-r1"), image="other")


async def test_a_new_pod_is_made_under_the_ceiling(index: RedisIndex) -> None:
    """With nothing warm, a place is taken for a new pod; asked again, the answer is the same until it serves."""
    for _ in range(2):
        assert await index.claim(request("r1")) == Provision(pod=PodName("pod-r1"), image="base")
    await ready(index, "pod-r1")
    reply = await claimed(index, "r1")
    assert (reply.pod.name, reply.source, reply.new) == ("pod-r1", Source.COLD, True)


async def test_room_is_made(index: RedisIndex) -> None:
    """At the ceiling, the idle pod of another caller worth least drains, and its place becomes the request's."""
    await index.set_targets(2, 2, 0)
    await warm(index, "p1", "p2")
    pods = [(await claimed(index, f"a{n}")).pod.name for n in range(2)]
    for n, keep_alive_s in ((0, 50), (1, 10)):
        await released(index, f"a{n}")
        await recycle(index, pods[n], keep_alive_s=keep_alive_s)
        await age(index, pods[n], 5)
    reply = await index.claim(request("r1", "b"))
    assert isinstance(reply, Wait) and reply.drain == pods[1]
    await index.pod_gone(pods[1], "place_needed")
    assert await index.next_wakes("worker", 1) == ["r1"]
    assert await index.claim(request("r1", "b")) == Provision(pod=PodName("pod-r1"), image="base")


async def test_a_pod_just_used_is_not_drained(index: RedisIndex) -> None:
    """A pod that has been idle for less than a second is not drained for another caller."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await used(index, "r1")
    reply = await index.claim(request("r2", "b"))
    assert isinstance(reply, Wait) and reply.drain is None
    await age(index, "p1", 2)
    again = await index.claim(request("r2", "b"))
    assert isinstance(again, Wait) and again.drain == "p1"


async def test_one_drain_per_waiter(index: RedisIndex) -> None:
    """A request that asks again while its place is on the way drains nothing more."""
    await index.set_targets(2, 2, 0)
    await warm(index, "p1", "p2")
    await age(index, "p1", 2)
    await age(index, "p2", 2)
    replies = [await index.claim(request("r1", "b", image="other")) for _ in range(3)]
    assert [isinstance(r, Wait) and bool(r.drain) for r in replies] == [True, False, False]


async def test_nothing_to_be_had_means_waiting(index: RedisIndex) -> None:
    """With every pod in use the request stands in line, with its deadline."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r1")
    reply = await index.claim(request("r2", "b", wait_timeout_s=30))
    assert isinstance(reply, Wait) and 29 < reply.left_s <= 30
    assert (await index.counts()).waiting == 1


async def test_a_lease_is_extended_not_repeated(index: RedisIndex) -> None:
    """The same request gets the same pod and epoch, not as new, and its expiry moves."""
    await warm(index, "p1", "p2")
    first = await claimed(index, "r1")
    again = await claimed(index, "r1", call_limit_s=100)
    assert (again.pod, again.epoch, again.new) == (first.pod, first.epoch, False)
    assert (await index.counts()).by_state[PodState.LEASED] == 1


async def test_asking_is_no_first_contact(index: RedisIndex) -> None:
    """A wait in line that finds the lease there begins no call: the next call is the new one, and may move on."""
    await warm(index, "p1", "p2")
    assert not (await claimed(index, "r1", call_limit_s=0)).new
    lease = await claimed(index, "r1")
    assert lease.new
    assert not (await claimed(index, "r1", call_limit_s=0)).new
    assert await index.first_contact_failed(RequestId("r1"), lease.epoch, "silent") == "moved"


async def test_reserved_for_one_is_not_for_another(index: RedisIndex) -> None:
    """A pod being reset that was reserved for one request is not reserved for the next."""
    await index.set_targets(2, 1, 0)
    await warm(index, "p1")
    await claimed(index, "r1")
    await released(index, "r1")
    await index.claim(request("r2"))
    await index.claim(request("r3"))
    started = await recycling(index, "p1")
    await index.finish_recycle(PodName("p1"), started.epoch, PROVED, 60, 100)
    assert isinstance(await index.claim(request("r3")), Wait)
    assert isinstance(await index.claim(request("r2")), Claimed)
