"""Whatever is asked in whatever order, every move is one of the table, and the index agrees with itself.

Moves are read from the server's own log of commands (MONITOR), so that two moves within one script are seen as two.
"""

import asyncio
import re
import uuid
from collections.abc import Sequence
from typing import Any

from fixtures.index_checks import Snapshot, assert_sound, snapshot
from fixtures.pods import PROVED, UNPROVED, gang_of, ready, request, tag_of
from fixtures.redis import assert_keys_end, build
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emberpool.pool.index.connection import connect
from emberpool.pool.index.limits import IndexLimits
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.claim import Claimed, Expired, Lost
from emberpool.pool.model.ids import PodName, RequestId
from emberpool.pool.model.state import PodState, may_move, may_serve

CALLERS = "abc"
Step = tuple[str, int, int]

STEPS = st.tuples(
    st.sampled_from(
        "claim claim claim claim claim claim release release recycle recycle recycle begin begin finish finish spoil "
        "ready ready ready ready standby gone gone fail contact drain warm warm targets expire retire end "
        "gang gang gang ungang".split()
    ),
    st.integers(0, 9),
    st.integers(0, 9),
)


class Play:
    """Random operations on one index, with what its callers remember."""

    def __init__(self, index: RedisIndex) -> None:
        self.index = index
        self.lives, self.gangs = [0] * 10, [0] * 3
        self.epochs: dict[str, int] = {}
        self.recycles: dict[PodName, int] = {}
        self.version, self.made = 1, 0
        self.now = Snapshot("[]", index.base)

    def name(self, which: int) -> str:
        """The request that a caller works on now; a new one after the last is over."""
        return f"r{which}-{self.lives[which]}"

    def pod(self, which: int, *states: str) -> PodName:
        """One of the pods in these states, or one that is unknown."""
        found = self.now.in_state(*states)
        return PodName(found[which % len(found)] if found else "nobody")

    async def step(self, step: Step) -> None:
        """Do one thing, which may be out of place."""
        word, one, two = step
        await getattr(self, f"do_{word}")(one, two)
        self.now = await snapshot(self.index)

    async def do_claim(self, one: int, two: int) -> None:
        caller, name = CALLERS[one % 3], self.name(one)
        hold, wait, limit = (0.0 if two == 9 else 60.0), (0.0 if two == 8 else 60.0), (0.0 if two in (7, 9) else 5.0)
        image = "base" if two < 6 else "other"
        reply = await self.index.claim(
            request(
                name,
                caller,
                image=image,
                fingerprint=str(two % 2),
                hold_s=hold,
                wait_timeout_s=wait,
                call_limit_s=limit,
            )
        )
        if isinstance(reply, Claimed):
            assert may_serve(reply.tag, tag_of(caller)) and reply.epoch >= self.epochs.get(name, 0)
            self.epochs[name] = reply.epoch
        if isinstance(reply, Lost | Expired):
            self.lives[one] += 1

    async def do_release(self, one: int, _: int) -> None:
        await self.index.release(RequestId(self.name(one)))
        self.lives[one] += 1

    async def do_gang(self, one: int, two: int) -> None:
        which = one % 3
        gang = gang_of(f"g{which}-{self.gangs[which]}", 1 + which * 2)
        member = gang.members[two % len(gang.members)]
        wait = 0.0 if two == 9 else 60.0
        reply = await self.index.claim(request(member, CALLERS[which], gang=gang, wait_timeout_s=wait))
        if isinstance(reply, Claimed):
            self.epochs[member] = reply.epoch
            leases = (await snapshot(self.index)).leases
            assert all(leases[name]["gathering"] == "" for name in gang.members), "claimed before it was whole"
        if isinstance(reply, Lost | Expired):
            self.gangs[which] += 1

    async def do_ungang(self, one: int, two: int) -> None:
        which = one % 3
        gang = gang_of(f"g{which}-{self.gangs[which]}", 1 + which * 2)
        for member in gang.members[: 1 + two]:
            await self.index.release(member)
        self.gangs[which] += 1

    async def do_end(self, one: int, _: int) -> None:
        await self.index.end_call(RequestId(self.name(one)), self.epochs.get(self.name(one), 0))

    async def do_contact(self, one: int, _: int) -> None:
        await self.index.first_contact_failed(RequestId(self.name(one)), self.epochs.get(self.name(one), 0), "silent")

    async def do_begin(self, one: int, _: int) -> None:
        name = self.pod(one, "dirty", "recycling")
        reply = await self.index.begin_recycle(name)
        if reply.kind == "recycle_started":
            assert reply.epoch > self.recycles.get(name, 0)
            self.recycles[name] = reply.epoch

    async def do_finish(self, one: int, two: int) -> None:
        name = self.pod(one, "recycling")
        await self.index.finish_recycle(name, self.recycles.get(name, 0), PROVED, 60.0 * (two % 2), 3)

    async def do_recycle(self, one: int, two: int) -> None:
        await self.do_begin(one, two)
        self.now = await snapshot(self.index)
        await self.do_finish(one, two)

    async def do_spoil(self, one: int, _: int) -> None:
        name = self.pod(one, "recycling")
        await self.index.finish_recycle(name, self.recycles.get(name, 0), UNPROVED, 60, 3)

    async def do_ready(self, one: int, two: int) -> None:
        name = self.pod(one, "starting", "promoting", "swapping")
        record = self.now.pods.get(name)
        await ready(self.index, name, record["image"] if record and two < 8 else "other")

    async def do_standby(self, one: int, _: int) -> None:
        await ready(self.index, self.pod(one, "starting"), standby=True)

    async def do_gone(self, one: int, two: int) -> None:
        name = self.pod(one, *(("draining",) if two < 9 else ()))
        self.recycles.pop(name, None)
        await self.index.pod_gone(name, "gone")

    async def do_fail(self, one: int, _: int) -> None:
        await self.index.pod_failed(self.pod(one), "failed")

    async def do_drain(self, one: int, _: int) -> None:
        await self.index.drain(self.pod(one), "operator")

    async def do_warm(self, one: int, two: int) -> None:
        self.made += 1
        await self.index.reserve_warm(PodName(f"warm-{self.made}"), "base" if one < 7 else "other")
        if two > 5:
            await ready(self.index, f"warm-{self.made}", "base" if one < 7 else "other")

    async def do_targets(self, one: int, two: int) -> None:
        self.version += 1
        ceiling = one if two == 0 else 3 + one % 4
        await self.index.set_targets(self.version, ceiling, min(ceiling, two))

    async def do_expire(self, one: int, _: int) -> None:
        await self.index.expire(one)

    async def do_retire(self, one: int, _: int) -> None:
        await self.index.retire_idle(one)


async def play(url: str, steps: Sequence[Step]) -> None:
    """Play the steps on a pool of its own and check the index after each."""
    async with await connect(url) as redis:
        # Little patience, so that every way through the ladder is taken.
        limits = IndexLimits(residency_ms=0, stuck_ms=0 if len(steps) % 2 else 30_000)
        index = RedisIndex(redis, "tests", f"random-{uuid.uuid4().hex[:12]}", limits)
        await build(index, ceiling=4)
        monitor: Any = redis.commands.monitor()
        async with monitor as log:
            game, over = Play(index), 0
            for step in steps:
                await game.step(step)
                assert_sound(game.now)
                ceiling = (await index.counts()).ceiling
                assert len(game.now.pods) <= max(over, ceiling), "the ceiling was exceeded"
                over = len(game.now.pods)
            await redis.commands.set(f"{index.base}the-end", "1", ex=1)
            assert_moves(index, await commands_until_the_end(log))
        await assert_keys_end(redis, index)


async def commands_until_the_end(log: Any) -> list[str]:
    """What the server did, in order."""
    seen: list[str] = []
    while not (seen and "the-end" in seen[-1]):
        seen.append((await log.next_command())["command"])
    return seen


def assert_moves(index: RedisIndex, commands: Sequence[str]) -> None:
    """Every move of every pod is one of the table; a pod's tag and epoch never go back."""
    before: dict[str, tuple[PodState, str, int]] = {}
    start = re.escape(f"{index.base}pod:")
    for command in commands:
        gone = re.match(f"DEL {start}(\\S+)", command)
        if gone:
            assert may_move(before.pop(gone[1])[0], PodState.GONE)
        saved = re.match(f"HSET {start}(\\S+) ", command)
        if not saved:
            continue
        was = before.get(saved[1])
        state, tag, epoch = was or (PodState.GONE, "", 0)
        # Only what changed is written.
        now = (
            PodState(_field(command, "state", state)),
            _field(command, "tag", tag),
            int(_field(command, "epoch", str(epoch))),
        )
        if was is None:
            assert now[0] is PodState.STARTING
        else:
            assert was[0] is now[0] or may_move(was[0], now[0]) or _passed(was[0], now[0]), (saved[1], was, now)
            assert may_serve(was[1], now[1]) and now[2] >= was[2], (saved[1], was, now)
        before[saved[1]] = now


def _passed(was: PodState, now: PodState) -> bool:
    """Whether a pod that became ready went on at once to who waits, or one that was released went: a script writes a
    record once, at its end."""
    return any(may_move(was, mid) and may_move(mid, now) for mid in (PodState.IDLE, PodState.STANDBY, PodState.DIRTY))


def _field(command: str, field: str, else_: str) -> str:
    found = re.search(f" {field} (\\S*)", command)
    return found[1] if found else else_


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, min_size=10, max_size=60))
def test_every_move_is_allowed(redis_url: str, steps: list[Step]) -> None:
    """Random operations of ten requests of three callers, right and wrong, never break a rule."""
    asyncio.run(play(redis_url, steps))
