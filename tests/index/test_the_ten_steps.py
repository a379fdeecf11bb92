"""The ten steps of the claim order, offered all at once and taken one after the other, each with its source."""

from fixtures.pods import age, ready, recycle, released, request, used, warm
from fixtures.pods import claimed as claim

from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Claimed, Promote, Provision, Source, Swap, Wait
from emberpool.pool.model.ids import PodName, RequestId


async def pool_of_everything(index: RedisIndex) -> None:
    """One pod for each of the steps 1 to 7, one place for the eighth, an idle pod of another caller for the ninth."""
    await index.set_targets(2, 9, 0)
    await warm(index, "foreign")
    await used(index, "b", "b")
    await age(index, "foreign", 2)
    await warm(index, "other", image="other")
    await used(index, "a-other", image="other")
    for name in ("exact", "same", "soon"):
        await warm(index, name)
        await claim(index, f"a-{name}", fingerprint="x" if name == "exact" else "y")
    for name in ("exact", "same"):
        await released(index, f"a-{name}")
        await recycle(index, name)
    await warm(index, "fresh")
    await index.reserve_warm(PodName("standby"), "base")
    await ready(index, "standby", standby=True)
    await index.reserve_warm(PodName("starting"), "base")
    await released(index, "a-soon")


async def test_ten_claims_take_the_ten_steps(index: RedisIndex) -> None:
    """Ten claims of one caller, alike: each takes the first step that is left, and says where its pod comes from."""
    await pool_of_everything(index)
    replies = [await index.claim(request(f"r{number}", fingerprint="x")) for number in range(1, 11)]
    held = {n: (r.pod.name, r.source) for n, r in enumerate(replies, 1) if isinstance(r, Claimed)}
    assert held == {1: ("exact", Source.REUSE), 2: ("same", Source.REUSE), 4: ("fresh", Source.FRESH)}
    assert replies[4] == Promote(pod=PodName("standby"))
    assert replies[6:8] == [Swap(pod=PodName("other"), image="base"), Provision(pod=PodName("pod-r8"), image="base")]
    reserved = {3: ("soon", Source.REUSE), 5: ("standby", Source.STANDBY), 6: ("starting", Source.COLD)}
    reserved |= {7: ("other", Source.SWAP), 8: ("pod-r8", Source.COLD)}
    for number, (pod, source) in reserved.items():
        lease = await index.lease(RequestId(f"r{number}"))
        assert lease and (lease.state, lease.pod, lease.source) == ("reserved", pod, source)
    ninth, tenth = replies[8:]
    assert isinstance(ninth, Wait) and ninth.drain == "foreign", "room is made of the pod of another caller"
    assert isinstance(tenth, Wait) and tenth.drain is None
    assert (await index.counts()).waiting == 2


async def test_reservations_become_leases_of_their_source(index: RedisIndex) -> None:
    """What was reserved is handed over as it becomes ready, and keeps the source that it was taken from."""
    await pool_of_everything(index)
    for number in range(1, 9):
        await index.claim(request(f"r{number}", fingerprint="x"))
    assert (await recycle(index, "soon")).kind == "handed_to"
    for name in ("starting", "standby", "other", "pod-r8"):
        assert (await ready(index, name)).kind == "handed_to"
    sources = {n: (await claim(index, f"r{n}", fingerprint="x")).source for n in (3, 5, 6, 7, 8)}
    assert sources == {3: Source.REUSE, 5: Source.STANDBY, 6: Source.COLD, 7: Source.SWAP, 8: Source.COLD}


async def test_a_reservation_falls_back_when_its_request_dies(index: RedisIndex) -> None:
    """Released before it was ready, each reserved pod ends idle and serves somebody else: nothing is lost with it."""
    await pool_of_everything(index)
    for number in range(1, 9):
        await index.claim(request(f"r{number}", fingerprint="x"))
    for number in (3, 5, 6, 7, 8):
        assert (await index.release(RequestId(f"r{number}"))).kind == "nothing_held"
    assert (await recycle(index, "soon")).kind == "idle"
    for name in ("starting", "standby", "other", "pod-r8"):
        assert (await ready(index, name)).kind == "idle"
    fresh = [await claim(index, f"c{number}", "c") for number in range(3)]
    assert {reply.pod.name for reply in fresh} == {"starting", "standby", "pod-r8"}
    own = [await claim(index, f"again{number}") for number in range(2)]
    assert {reply.pod.name for reply in own} == {"soon", "other"}


async def test_a_swap_has_an_epoch_of_its_own(index: RedisIndex) -> None:
    """The pod's epoch rises as it is set aside for a swap, so that its emberd can tell a late one."""
    await warm(index, "p1")
    pod = await used(index, "r1")
    before = await index.pod(pod)
    await index.claim(request("r2", image="other"))
    after = await index.pod(pod)
    assert before and after and after.epoch == before.epoch + 1


async def test_standby_pods_make_room_for_an_image_that_they_have_not(index: RedisIndex) -> None:
    """At the ceiling, with nothing else idle, a standby pod of another image drains for who waits."""
    await index.set_targets(2, 1, 0)
    await index.reserve_warm(PodName("p1"), "base")
    await ready(index, "p1", standby=True)
    await age(index, "p1", 2)
    reply = await index.claim(request("r1", image="other"))
    assert isinstance(reply, Wait) and reply.drain == "p1"
