"""`emberpool profile apply` writes profiles where workers find them, and managers that run hear of them."""

import uuid
from pathlib import Path

import pytest
from fixtures.command_line import emberpool
from fixtures.index_checks import snapshot
from fixtures.stack import running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.flows import FLOWS, Commands, Plan
from temporalio.client import Client
from temporalio.worker import Worker

from emberpool.pool.index.connection import IndexRedis, connect
from emberpool.pool.index.keys import profiles_key
from emberpool.pool.index.profile_store import ProfileStore
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.profile import Profile
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.settings import Settings
from emberpool.worker.stack.embedded import EmbeddedStack


def variables(stack: EmbeddedStack, settings: Settings) -> dict[str, str]:
    """What a person sets to reach a deployment."""
    return {
        "TEMPORAL_ADDRESS": stack.temporal_address,
        "EMBERPOOL_REDIS_URL": settings.redis_url,
        "EMBERPOOL_DEPLOYMENT": settings.deployment,
    }


async def test_a_running_manager_takes_the_new_numbers(stack: EmbeddedStack, tmp_path: Path) -> None:
    """The ceiling of a pool that runs follows the file that was applied."""
    settings = site_settings(stack)
    async with running_site(stack, settings) as site:
        (tmp_path / "p.yaml").write_text("{name: py, min_warm: 1, max_pods: 2}\n")
        done = emberpool("profile", "apply", "p.yaml", cwd=tmp_path, env=variables(stack, settings))
        assert (done.returncode, done.stdout) == (0, "applied py: its manager has been told\n"), done.stderr

        async def heard() -> bool:
            return (await site.index.counts()).ceiling == 2

        await wait_until(heard)


async def test_a_worker_without_a_file_serves_what_was_applied(stack: EmbeddedStack, tmp_path: Path) -> None:
    """A worker that is given no profile starts with those in Redis, and runs commands in their pods."""
    settings = site_settings(stack).model_copy(update={"profiles": ()})
    (tmp_path / "p.yaml").write_text("{name: applied, min_warm: 0, max_pods: 1}\n")
    done = emberpool("profile", "apply", "p.yaml", cwd=tmp_path, env=variables(stack, settings))
    assert (done.returncode, done.stdout) == (0, "applied applied: the next worker that starts serves it\n")
    client = await Client.connect(stack.temporal_address, plugins=[EmberpoolPlugin(settings)])
    plan = Plan(profile="applied", task_queue=settings.task_queue, commands=("echo served",))
    async with Worker(client, task_queue=settings.task_queue, workflows=FLOWS):
        name = f"applied-{uuid.uuid4().hex[:8]}"
        seen = await client.execute_workflow(Commands.run, plan, id=name, task_queue=settings.task_queue)
        manager = f"emberpool-pool/{settings.deployment}/applied"
        await client.get_workflow_handle(manager).terminate("the test is over")
    assert seen.results[0].stdout == b"served\n"


async def test_running_workers_take_new_weights(stack: EmbeddedStack, tmp_path: Path) -> None:
    """What a caller weighs goes with the claims of a worker that serves what was applied; another weight, applied while
    it runs, with those that it makes soon after."""
    settings = site_settings(stack).model_copy(update={"profiles": ()})
    text = "{name: weighed, min_warm: 0, max_pods: 1, weights: {tester: %d}}\n"

    def apply(weight: int) -> None:
        (tmp_path / "p.yaml").write_text(text % weight)
        done = emberpool("profile", "apply", "p.yaml", cwd=tmp_path, env=variables(stack, settings))
        assert done.returncode == 0, done.stderr

    apply(3)
    client = await Client.connect(stack.temporal_address, plugins=[EmberpoolPlugin(settings)])
    plan = Plan(profile="weighed", task_queue=settings.task_queue, commands=("true",))
    async with (
        Worker(client, task_queue=settings.task_queue, workflows=FLOWS),
        await connect(settings.redis_url) as redis,
    ):
        index = RedisIndex(redis, settings.deployment, "weighed")

        async def weights() -> list[str]:
            """Of all requests so far, by when they came."""
            leases = (await snapshot(index)).leases.values()
            return [lease["weight"] for lease in sorted(leases, key=lambda lease: int(lease["arrival"]))]

        async def ran() -> None:
            name = f"weighed-{uuid.uuid4().hex[:8]}"
            await client.execute_workflow(Commands.run, plan, id=name, task_queue=settings.task_queue)

        await ran()
        assert await weights() == ["3"]
        apply(5)

        async def heard() -> bool:
            await ran()
            return (await weights())[-1] == "5"

        await wait_until(heard)
        manager = f"emberpool-pool/{settings.deployment}/weighed"
        await client.get_workflow_handle(manager).terminate("the test is over")


def test_a_wrong_file_writes_nothing(tmp_path: Path) -> None:
    """One wrong file of two: the error names it, and no server is even asked."""
    (tmp_path / "good.yaml").write_text("name: good\n")
    (tmp_path / "bad.yaml").write_text("name: BAD\n")
    nowhere = {"EMBERPOOL_REDIS_URL": "redis://127.0.0.1:1/0"}
    done = emberpool("profile", "apply", "good.yaml", "bad.yaml", cwd=tmp_path, env=nowhere)
    assert done.returncode == 1 and "bad.yaml[0].name" in done.stderr and "Redis" not in done.stderr


def test_no_redis_is_an_error(tmp_path: Path) -> None:
    """Where Redis cannot be reached the command says so, with exit status 1."""
    (tmp_path / "good.yaml").write_text("name: good\n")
    nowhere = {"EMBERPOOL_REDIS_URL": "redis://127.0.0.1:1/0"}
    done = emberpool("profile", "apply", "good.yaml", cwd=tmp_path, env=nowhere)
    assert done.returncode == 1 and "error: Redis: ConnectionError" in done.stderr


async def test_profiles_come_back_as_they_were(index_redis: IndexRedis) -> None:
    """What was written is read, by name; a profile that this version cannot read is named."""
    deployment = f"d{uuid.uuid4().hex[:8]}"
    store = ProfileStore(index_redis, deployment)
    assert await store.read() == ()
    small, big = Profile(name="small", warm_up=("true",)), Profile(name="big", max_pods=9)
    await store.write([small, big])
    await store.write([small.model_copy(update={"max_pods": 5})])
    assert await store.read() == (big, small.model_copy(update={"max_pods": 5}))
    await index_redis.commands.hset(profiles_key(deployment), "odd", '{"name": "odd", "later": 1}')
    with pytest.raises(InvalidInput, match="'odd' in Redis.*later"):
        await store.read()
