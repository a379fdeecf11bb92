"""The ACL user of docs/redis.md can do what a worker does, on its own deployment, and nothing else."""

import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from fixtures.main_path import main_path
from fixtures.older_redis import redis_6_2, redis_7_0
from fixtures.pods import request
from fixtures.servers import Server, cluster, in_memory
from redis.exceptions import ResponseError

from emberpool.pool.index.connection import connect
from emberpool.pool.index.profile_store import ProfileStore
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.errors import InvalidInput
from emberpool.worker.stack.redis_server import find_redis

PAGE = (Path(__file__).parents[2] / "docs" / "redis.md").read_text()
BY_WORKERS = {"eval", "evalsha", "info", "scan", "client|setinfo", "lpop", "blpop", "xread", "hset", "hgetall"}
PASSWORD = "p@/ss"
LOGIN = "emberpool:p%40%2Fss@"


def rule(cluster: bool = False) -> list[str]:
    """The page's rule, for the deployment of the tests."""
    words = PAGE.split("ACL SETUSER ")[1].split("```")[0].replace("prod", "tests").split()
    words[words.index(">PASSWORD")] = f">{PASSWORD}"
    more = re.search(r"On a Cluster add `([^`]*)`", PAGE)
    assert more is not None
    return words + (more[1].split() if cluster else [])


@pytest.mark.parametrize("find", [find_redis, redis_6_2, redis_7_0])
async def test_they_are_enough(find: Callable[[], Path | None], tmp_path: Path) -> None:
    """The main path and the profiles work under the user, also on older versions, and ACL LOG knows of no refusal."""
    program = find()
    if program is None:
        pytest.skip(f"no server of {find.__name__} can be had here")
    async with Server(tmp_path, *in_memory(), program=program) as server:
        words = rule()
        if find is redis_7_0:
            # The page says so.
            words.remove("+client|setinfo")
        await server.ask("ACL", "SETUSER", *words)
        url = f"redis://{LOGIN}{server.address}/0"
        async with await connect(url) as redis, await connect(server.url) as admin:
            await main_path(redis, admin=admin)
        assert await server.ask("ACL", "LOG") == []


async def test_they_are_enough_on_a_cluster(tmp_path: Path) -> None:
    """With the page's additions, the same on a Cluster."""
    async with cluster(tmp_path) as nodes:
        for node in nodes:
            await node.ask("ACL", "SETUSER", *rule(cluster=True))
        where = f"{nodes[0].address},{nodes[1].address}"
        async with (
            await connect(f"redis-cluster://{LOGIN}{where}") as redis,
            await connect(f"redis-cluster://{where}") as admin,
        ):
            await main_path(redis, admin=admin)
        for node in nodes:
            assert await node.ask("ACL", "LOG") == []


async def test_they_end_at_the_deployment(tmp_path: Path) -> None:
    """Another deployment's pools and profiles are out of reach, and so is everything else."""
    async with Server(tmp_path, *in_memory()) as server:
        await server.ask("ACL", "SETUSER", *rule())
        async with await connect(f"redis://{LOGIN}{server.address}/0") as redis:
            with pytest.raises(ResponseError, match="(?i)perm"):
                await RedisIndex(redis, "other", "pool").claim(request("r1"))
            with pytest.raises(ResponseError, match="(?i)perm"):
                await ProfileStore(redis, "other").read()
            with pytest.raises(ResponseError, match="(?i)perm"):
                await redis.commands.flushall()  # pyright: ignore[reportUnknownMemberType]


async def test_a_refused_login_is_named(tmp_path: Path) -> None:
    """A wrong password is a wrong setting, not an outage; it is not repeated in the error."""
    async with Server(tmp_path, *in_memory()) as server:
        await server.ask("ACL", "SETUSER", *rule())
        with pytest.raises(InvalidInput, match="redis_url: the server refuses the login") as caught:
            await connect(f"redis://emberpool:wrong-one@{server.address}/0")
        assert "wrong-one" not in str(caught.value)


def test_no_right_is_granted_for_nothing() -> None:
    """The page lists what scripts and workers call, and no more."""
    folder = files("emberpool.pool.index").joinpath("scripts")
    text = "".join(script.read_text() for script in folder.iterdir())
    called = {word.lower() for word in re.findall(r"call\(\s*'([A-Z]+)'", text)}
    called |= {word.lower() for pair in re.findall(r"call\(\w+ and '([A-Z]+)' or '([A-Z]+)'", text) for word in pair}
    granted = {word[1:] for word in rule() if word.startswith("+")}
    assert granted == called | BY_WORKERS
