"""The scripts on a real Redis do what the index in plain Python does, and what must always hold does.

Hypothesis chooses what happens: claims, crashes between any two transitions, late, copied and reordered messages,
clocks that jump, a replica that lagged, a flush. emberd, by its rules, judges every call that is delivered; after each
step both indexes have answered and remembered the same; at the end everyone who waits must come to an end.

A slice with a seed of its own runs each time. The run says it at its start and end, and so does the report of a
failure; `--hypothesis-seed=N` runs one again, `make soak` runs a million steps.
"""

import asyncio
import uuid
from collections.abc import Coroutine
from typing import Any

import pytest
from fixtures.clocked_index import Clock
from fixtures.index_cast import weighed
from fixtures.index_pair import Pair
from fixtures.index_settling import settle
from fixtures.index_world import World
from fixtures.seeds import said, seed_of
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from emberpool.pool.index.connection import IndexRedis, connect
from emberpool.pool.index.limits import IndexLimits

EXAMPLES = 25
STEPS = 150
DIGIT = st.integers(0, 9)
CALM = weighed(tuple("claim*6 step*3 call*4 end release*3 recycle*4 ready*3 gone*2 warm tick*2 weigh expire".split()))
"""What happens where nothing goes wrong."""


class Agreement(RuleBasedStateMachine):
    """One pool and its world."""

    url = ""
    limits = IndexLimits()

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.Runner()
        self._redis: IndexRedis = self._do(connect(self.url))
        self.pair = Pair(self._redis, f"model-{uuid.uuid4().hex[:12]}", self.limits, Clock())
        self.world = World(self.pair)
        self._do(self.world.act("rebuild", 1, 0))

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run(work)

    async def _step(self, word: str, one: int, two: int) -> None:
        await self.world.act(word, one, two)
        await self.pair.compare()

    @rule(word=st.sampled_from(CALM), one=DIGIT, two=DIGIT)
    def calm(self, word: str, one: int, two: int) -> None:
        """What every day brings."""
        self._do(self._step(word, one, two))

    @rule(word=st.sampled_from(weighed()), one=DIGIT, two=DIGIT)
    def anything(self, word: str, one: int, two: int) -> None:
        """Trouble among the rest."""
        self._do(self._step(word, one, two))

    @precondition(lambda self: not self.pair.model.memory.generation)
    @rule(one=DIGIT)
    def rebuild(self, one: int) -> None:
        """Some worker finds the index lost."""
        self._do(self._step("rebuild", one, 0))

    def teardown(self) -> None:
        """Trouble is over: everyone comes to an end."""
        try:
            self._do(settle(self.world))
        finally:
            self._do(self.pair.forget())
            self._do(self._redis.aclose())
            self._loop.close()


class OfLittlePatience(Agreement):
    """The same with limits that make rare ways common: batches of two, no residency, a lead of one."""

    limits = IndexLimits(lead=1, look=2, batch=2, residency_ms=0, hand_over_ms=300)


@pytest.mark.parametrize("machine", [Agreement, OfLittlePatience])
def test_model_and_scripts_agree(redis_url: str, machine: type[Agreement], pytestconfig: pytest.Config) -> None:
    """Whatever happens, scripts and model answer and remember the same, isolation holds, and every waiter ends."""
    fresh = seed_of(pytestconfig)
    print(said(fresh))  # a failure's report shows what a test printed
    run = type(machine.__name__, (machine,), {"url": redis_url})
    phases = [phase for phase in Phase if phase not in (Phase.reuse, Phase.explain)]
    run_state_machine_as_test(
        seed(fresh)(run),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=phases,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )
