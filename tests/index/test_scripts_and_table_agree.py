"""Scripts, their wrappers, the state table and the list of keys say the same."""

import re
from importlib.resources import files
from itertools import permutations

import pytest
from fixtures.pods import claimed, released, warm

from emberpool.pool.index.keys import PERMANENT, key_base
from emberpool.pool.index.limits import IndexLimits
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.index.scripts import PRELUDE, SHARED, UNGATED, Script, script_text
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.state import TRANSITIONS, PodState

PACKAGE = files("emberpool.pool.index")
SCRIPTS = {entry.name.removesuffix(".lua") for entry in PACKAGE.joinpath("scripts").iterdir()}


def test_every_file_has_its_member() -> None:
    """No script without a wrapper's name, no name without a script."""
    assert {script.value for script in Script} | {*SHARED, PRELUDE} == SCRIPTS


@pytest.mark.parametrize("script", Script)
def test_every_script_has_one_wrapper(script: Script) -> None:
    """A script is called in one place."""
    modules = ("redis_index.py", "rebuild.py")
    text = "".join(PACKAGE.joinpath(module).read_text() for module in modules)
    assert len(re.findall(rf"\bScript\.{script.name}\b", text)) == 1


@pytest.mark.parametrize("script", Script)
def test_every_script_says_what_it_takes_and_answers(script: Script) -> None:
    """A script begins with what it is for, its keys and arguments, and its replies."""
    text = PACKAGE.joinpath("scripts", f"{script.value}.lua").read_text()
    head = text.split("\n\n")[0]
    assert head.startswith("-- ") and "-- KEYS[1]: generation." in head and "ARGV" in head and "-- Replies:" in head
    assert ("{'rebuilding'}" in head) == (script not in UNGATED)


async def test_the_table_of_moves_is_the_models(index: RedisIndex) -> None:
    """The moves that scripts allow are those of pool/model/state.py."""
    shared = script_text(Script.COUNTS, IndexLimits()).rsplit("-- Read the pool's aggregates", 1)[0]
    reply = await index.redis.commands.eval(shared + "return MOVES\nend)() return reply", 1, f"{index.base}generation")
    moves = [tuple(map(PodState, move.split(">"))) for move in str(reply).split()]
    assert sorted(moves) == sorted((state, to) for state, after in TRANSITIONS.items() for to in after)


def test_no_state_is_found_within_another() -> None:
    """A move is looked for as text, so no state's name may begin or end with another's."""
    for one, other in permutations(PodState, 2):
        assert not one.startswith(other) and not one.endswith(other), (one, other)


def test_every_permanent_key_is_explained() -> None:
    """The list of keys that may live for ever names only keys that the table explains."""
    table = PACKAGE.joinpath("keys.py").read_text().split('"""')[1]
    for word in PERMANENT:
        assert re.search(rf"[|,] {word}\b", table), word


async def test_scripts_come_back_after_a_flush(index: RedisIndex) -> None:
    """A server that forgot the scripts gets them again, unseen by the caller (CSenshi/nestjs-redis#15)."""
    await warm(index, "p1")
    await claimed(index, "r1")
    await index.redis.commands.script_flush()
    await released(index, "r1")


@pytest.mark.parametrize("name", ["", "a}b", "a{b", "a*", "a b", "x" * 101])
def test_names_that_would_break_keys_are_refused(name: str) -> None:
    """A deployment or pool whose name means something to Redis is refused by field."""
    with pytest.raises(InvalidInput, match="deployment"):
        key_base(name, "pool")
    with pytest.raises(InvalidInput, match="pool"):
        key_base("deployment", name)
