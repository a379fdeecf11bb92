"""A gang gets all of its pods or none, from any source, and neither stops the line nor is starved by it."""

from fixtures.index_checks import assert_sound, snapshot
from fixtures.pods import age, ask_gang, claimed, gang_of, ready, recycle, released, request, tag_of, used, warm
from fixtures.waiting import wait_until

from emberpool.pool.index.contract import RebuiltPod, Released
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Claimed, Closed, Expired, Promote, Provision, Source, Swap, Wait
from emberpool.pool.model.ids import BootId, PodName, PodUid, RequestId
from emberpool.pool.model.state import PodState


async def test_all_at_once(index: RedisIndex) -> None:
    """With enough warm pods the first member's claim gives every member its pod, in one step."""
    await warm(index, "p1", "p2", "p3")
    gang = gang_of("g", 3)
    assert isinstance(await index.claim(request("g-0", gang=gang)), Claimed)
    assert (await index.counts()).by_state[PodState.LEASED] == 3
    replies = await ask_gang(index, gang)
    assert {reply.pod.name for reply in replies if isinstance(reply, Claimed)} == {"p1", "p2", "p3"}


async def test_from_every_source_at_once(index: RedisIndex) -> None:
    """One gang takes its caller's own pod, a fresh one, a standby one, a starting one, a swapped one, a new one."""
    await index.set_targets(2, 6, 0)
    await warm(index, "own")
    await used(index, "r1")
    await warm(index, "fresh")
    await warm(index, "swap", image="other")
    await used(index, "r2", image="other")
    await index.reserve_warm(PodName("standby"), "base")
    await ready(index, "standby", standby=True)
    await index.reserve_warm(PodName("starting"), "base")
    gang = gang_of("g", 6)
    replies = await ask_gang(index, gang)
    assert [reply.kind for reply in replies] == ["wait", "wait", "promote", "wait", "swap", "provision"], replies
    for reply in replies:
        if isinstance(reply, Promote | Swap | Provision):
            await ready(index, reply.pod)
    assert all(isinstance(reply, Wait) for reply in (await ask_gang(index, gang))[:2]), "one still lacks its pod"
    await ready(index, "starting")
    whole = await ask_gang(index, gang)
    assert [reply.source for reply in whole if isinstance(reply, Claimed)] == [
        Source.REUSE,
        Source.FRESH,
        Source.STANDBY,
        Source.COLD,
        Source.SWAP,
        Source.COLD,
    ]
    assert_sound(await snapshot(index))


async def test_nobody_is_answered_before_all_have_their_pods(index: RedisIndex) -> None:
    """A member whose pod is there waits for the others; all are woken once the last pod is ready, and all are new."""
    await index.set_targets(2, 2, 0)
    await warm(index, "p1")
    gang = gang_of("g", 2)
    first, second = await ask_gang(index, gang)
    assert isinstance(first, Wait) and isinstance(second, Provision)
    await ready(index, second.pod)
    assert set(await index.next_wakes("worker", 1)) == set(gang.members)
    replies = await ask_gang(index, gang)
    assert [reply.new for reply in replies if isinstance(reply, Claimed)] == [True, True]


async def test_a_gang_waits_as_one(index: RedisIndex) -> None:
    """Behind others in line a gang takes nothing, although one of its pods could be had; as the head it does."""
    await index.set_targets(2, 3, 0)
    await warm(index, "p1", "p2")
    await claimed(index, "z0", "z")
    await claimed(index, "z1", "z")
    await warm(index, "p3")
    assert isinstance(await index.claim(request("x0", "x", image="other")), Wait)
    gang = gang_of("g", 2)
    assert all(isinstance(reply, Wait) for reply in await ask_gang(index, gang, "y"))
    assert (await index.counts()).by_state[PodState.IDLE] == 1
    await index.release(RequestId("x0"))
    await ask_gang(index, gang, "y")
    assert (await index.counts()).by_state[PodState.IDLE] == 0


async def test_two_gangs_never_hold_half_each(index: RedisIndex) -> None:
    """While one gang gathers, the next one takes nothing; it begins when the first is whole."""
    await index.set_targets(2, 4, 0)
    await warm(index, "p1", "p2", "p3", "p4")
    singles = [(await claimed(index, f"z{n}", f"z{n}")).pod.name for n in range(4)]
    one, two = gang_of("g", 3), gang_of("h", 3)
    await ask_gang(index, one, "a")
    await ask_gang(index, two, "b")
    for number, pod in enumerate(singles):
        await index.release(RequestId(f"z{number}"))
        await index.pod_failed(pod, "gone")
        await index.pod_gone(pod, "gone")
        now = await snapshot(index)
        assert_sound(now)
        held = {now.leases[m]["gang"] for m in (*one.members, *two.members) if now.leases[m]["state"] != "waiting"}
        assert held == {"g"} if number < 3 else held == {"g", "h"}
    for member in one.members:
        await ready(index, (await index.lease(member)).pod)  # type: ignore[union-attr]
    assert all(isinstance(reply, Claimed) for reply in await ask_gang(index, one, "a"))


async def test_a_second_gang_takes_not_even_its_own(index: RedisIndex) -> None:
    """While one gang gathers, another leaves its caller's idle pod alone, or each could hold what the other needs."""
    await index.set_targets(2, 3, 0)
    await warm(index, "z", "own")
    await claimed(index, "z0", "z")
    own = await used(index, "b0", "b")
    first = await ask_gang(index, gang_of("g", 2), "a")
    assert [reply.kind for reply in first] == ["provision", "wait"]
    assert all(isinstance(reply, Wait) for reply in await ask_gang(index, gang_of("h", 2), "b"))
    pod = await index.pod(own)
    assert pod is not None and pod.state is PodState.IDLE
    assert isinstance(await index.claim(request("b1", "b")), Claimed), "a single may have it"


async def test_a_release_while_it_gathers_frees_everything(index: RedisIndex) -> None:
    """One member's release ends the gang: leased pods are reset, reserved ones go to who waits, nobody of it stays."""
    await index.set_targets(2, 3, 0)
    await warm(index, "p1")
    await claimed(index, "z0", "z")
    await warm(index, "p2")
    gang = gang_of("g", 3)
    held, starting, waiting = await ask_gang(index, gang)
    assert isinstance(held, Wait) and isinstance(starting, Provision) and isinstance(waiting, Wait)
    assert isinstance(await index.claim(request("s1", "s")), Wait)
    assert (await index.release(gang.members[2])).kind == "nothing_held"
    now = await snapshot(index)
    assert_sound(now)
    assert (now.pods["p2"]["state"], now.pods[starting.pod]["reserved"]) == ("dirty", "s1")
    assert now.members("arrivals") == set() and now.members("gangs") == set()
    first = await index.release(gang.members[0])
    assert isinstance(first, Released) and first.pod == "p2", "whoever leaves may recycle its pod at once"
    assert all(isinstance(reply, Closed) for reply in await ask_gang(index, gang))


async def test_a_whole_gangs_members_end_each_by_itself(index: RedisIndex) -> None:
    """Once all were served, a member that leaves takes nothing from the others."""
    await warm(index, "p1", "p2")
    gang = gang_of("g", 2)
    await ask_gang(index, gang)
    await released(index, gang.members[0])
    kinds = [reply.kind for reply in await ask_gang(index, gang)]
    assert kinds == ["closed", "claimed"]


async def test_the_deadline_ends_all(index: RedisIndex) -> None:
    """A gang that is not whole at its deadline is expired, and what it gathered is free again."""
    await index.set_targets(2, 1, 0)
    await index.set_targets(3, 2, 0)
    await warm(index, "p1", "p2")
    await claimed(index, "z0", "z")
    gang = gang_of("g", 2)
    assert {reply.kind for reply in await ask_gang(index, gang, wait_timeout_s=0.05)} <= {"wait", "expired"}

    async def ended() -> bool:
        return await index.expire(10) >= 1

    await wait_until(ended)
    assert [reply.kind for reply in await ask_gang(index, gang)] == ["expired", "expired"]
    now_all = await snapshot(index)
    assert_sound(now_all)
    assert len(now_all.in_state("dirty")) == 1


async def test_a_gang_over_the_ceiling_is_told_so_at_once(index: RedisIndex) -> None:
    """It can never be served, so it does not stand in everybody's way; nor if the ceiling shrinks meanwhile."""
    await index.set_targets(2, 2, 0)
    assert await index.claim(request("g-0", gang=gang_of("g", 3))) == Expired(reason="gang_over_ceiling")
    await warm(index, "p1", "p2")
    await claimed(index, "z0", "z")
    await claimed(index, "z1", "z")
    two = gang_of("h", 2)
    await ask_gang(index, two)
    await index.claim(request("s1", "s"))
    await index.set_targets(3, 1, 0)
    assert [reply.kind for reply in await ask_gang(index, two)] == ["expired", "expired"]
    assert (await index.counts()).waiting == 1


async def test_a_pod_that_breaks_is_gathered_again(index: RedisIndex) -> None:
    """A pod that dies before the gang is whole costs the gang nothing but time, and goes before all others."""
    await index.set_targets(2, 3, 0)
    await warm(index, "p1", "p2")
    gang = gang_of("g", 3)
    replies = await ask_gang(index, gang)
    assert isinstance(replies[2], Provision)
    await index.claim(request("s1", "s"))
    await index.pod_failed(PodName("p1"), "oom")
    await index.pod_gone(PodName("p1"), "oom")
    again = await ask_gang(index, gang)
    steps = [reply for reply in again if isinstance(reply, Provision)]
    assert len(steps) == 2
    for step in steps:
        await ready(index, step.pod)
    assert all(isinstance(reply, Claimed) for reply in await ask_gang(index, gang))
    assert isinstance(await index.claim(request("s1", "s")), Wait)


async def test_a_gang_forms_anew_after_the_index_was_lost(index: RedisIndex) -> None:
    """Members that claim again after a rebuild stand in line together once more."""
    await warm(index, "p1")
    await claimed(index, "z0", "z")
    gang = gang_of("g", 2)
    await ask_gang(index, gang)
    await index.redis.commands.delete(f"{index.base}generation")
    assert await index.try_rebuild_lock("tests", 30.0)
    assert await index.rebuild("tests", [])
    await index.set_targets(1, 2, 0)
    replies = await ask_gang(index, gang)
    assert all(isinstance(reply, Provision) for reply in replies)
    for reply in replies:
        assert isinstance(reply, Provision)
        await ready(index, reply.pod)
    assert all(isinstance(reply, Claimed) for reply in await ask_gang(index, gang))


async def test_a_member_whose_gang_has_begun_waits_for_nobody(index: RedisIndex) -> None:
    """One was given back its pod by a rebuild, and ends; the other never opened its own, gets one, and goes on."""
    gang = gang_of("g", 2)
    await index.redis.commands.delete(f"{index.base}generation")
    assert await index.try_rebuild_lock("tests", 30.0)
    held = RebuiltPod(
        name=PodName("p1"),
        uid=PodUid("u"),
        boot_id=BootId("b"),
        endpoint="unix:/p1",
        image="base",
        state="held",
        tag=tag_of("a"),
        epoch=5,
        lease=gang.members[1],
        hold_s=60,
    )
    assert await index.rebuild("tests", [held])
    await index.set_targets(1, 2, 0)
    first = request(gang.members[0], gang=gang)
    reply = await index.claim(first)
    assert isinstance(reply, Provision)
    await released(index, gang.members[1])
    await ready(index, reply.pod)
    assert isinstance(await index.claim(first), Claimed)


async def test_no_gang_is_starved_by_singles_and_no_single_by_gangs(index: RedisIndex) -> None:
    """Gangs of three on a ceiling of four, against singles without end: all are served in turn."""
    await index.set_targets(2, 4, 0)
    served = {"gang": 0, "single": 0}
    gangs, singles, worst, since = [0, 0], [0, 0, 0], 0, 0
    waited: dict[str, int] = {}
    for turn in range(150):
        for caller, number in enumerate(singles):
            name = f"s{caller}-{number}"
            reply = await index.claim(request(name, f"s{caller}"))
            waited[name] = waited.get(name, -1) + 1
            worst = max(worst, waited[name])
            if isinstance(reply, Provision):
                await ready(index, reply.pod)
            elif isinstance(reply, Claimed):
                await index.release(RequestId(name))
                await recycle(index, reply.pod.name)
                singles[caller] += 1
                served["single"] += 1
        since += 1
        for caller, number in enumerate(gangs):
            gang = gang_of(f"g{caller}-{number}", 3)
            replies = await ask_gang(index, gang, f"g{caller}")
            whole = [reply for reply in replies if isinstance(reply, Claimed)]
            assert len(whole) in (0, 3), "all or none"
            for reply in replies:
                if isinstance(reply, Provision):
                    await ready(index, reply.pod)
            for member, reply in zip(gang.members, whole, strict=False):
                await index.release(member)
                await recycle(index, reply.pod.name)
            if whole:
                gangs[caller] += 1
                served["gang"] += 1
                since = 0
        assert since < 30, f"no gang was served for {since} turns"
        for pod in await index.pods(PodState.IDLE, 10):
            await age(index, pod.name, 2)
        await index.expire(10)
        for pod in await index.pods(PodState.DRAINING, 10):
            await index.pod_gone(pod.name, "drained")
        if turn % 10 == 0:
            assert_sound(await snapshot(index))
    assert min(gangs) >= 3 and min(singles) >= 3, (served, gangs, singles)
    assert worst < 30, f"a single waited for {worst} turns"
