"""EmbeddedStack as demo, benchmark and tests use it."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fixtures.processes import descendants, gone, wait_until
from temporalio.client import Client

from emberpool.pool.index.connection import connect
from emberpool.pool.model.profile import Profile
from emberpool.worker.stack.embedded import EmbeddedStack, StackOptions
from emberpool.worker.stack.errors import StackError

PROFILE = Profile(name="small", min_warm=0, max_pods=1)


@asynccontextmanager
async def stack(folder: Path, **more: object) -> AsyncGenerator[EmbeddedStack]:
    """A running stack whose parts were started by this test process."""
    options = StackOptions(data_dir=folder, profiles=(PROFILE,), ephemeral=True, **more)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async with EmbeddedStack(options) as running:
        yield running


async def test_what_it_says_is_what_answers(tmp_path: Path) -> None:
    """Temporal, Redis and the settings of the workers are there to use; the runtime folder goes with it."""
    before = descendants(os.getpid())
    async with stack(tmp_path, deployment="tried", workers=2) as running:
        client = await Client.connect(running.temporal_address, namespace=running.temporal_namespace)
        assert client.namespace == "default"
        async with await connect(running.settings.redis_url) as redis:
            assert await redis.commands.ping()  # pyright: ignore[reportUnknownMemberType]
        assert running.settings.deployment == "tried"
        assert running.settings.all_profiles() == (PROFILE,)
        assert len(running.settings.pool_key()) == 32
        assert len(os.fsencode(running.settings.supervisor_socket or "")) <= 107
        run_dir, mine = running.run_dir, descendants(os.getpid()) - before
        assert len(mine) >= 5
    assert not run_dir.exists()
    wait_until(lambda: all(gone(pid) for pid in mine))


async def test_a_deep_data_folder_is_no_problem(tmp_path: Path) -> None:
    """Sockets have short paths, the data folder need not."""
    async with stack(tmp_path / ("deep" * 30) / ("er" * 30)) as running:
        assert (running.data_dir / "logs" / "worker-1.log").exists()


async def test_waiting_ends_with_the_first_part_that_ends(tmp_path: Path) -> None:
    """A worker that dies is named; a cancelled wait leaves the stack as it is."""
    async with stack(tmp_path) as running:
        waiting = asyncio.ensure_future(running.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        os.kill(running.pids()["worker 1"], signal.SIGKILL)
        with pytest.raises(StackError, match="worker 1: was ended by SIGKILL"):
            await running.wait()


async def test_variables_for_another_temporal_do_not_reach_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace, an API key or a configuration file of the user's belongs to another server."""
    config = tmp_path / "temporal.toml"
    config.write_text('[profile.default]\naddress = "127.0.0.1:1"\nnamespace = "other"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(config))
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "other")
    monkeypatch.setenv("TEMPORAL_API_KEY", "wrong")
    monkeypatch.setenv("EMBERPOOL_PROFILES", '[{"name": "of-the-environment"}]')
    async with stack(tmp_path / "data") as running:
        assert running.temporal_namespace == "default"
        assert [profile.name for profile in running.settings.all_profiles()] == ["small"]


async def test_a_server_of_ones_own_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporal_address: str
) -> None:
    """With TEMPORAL_ADDRESS no second Temporal is started."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    async with stack(tmp_path, task_queue="own-server") as running:
        assert running.temporal_address == temporal_address
        assert running.ui_url is None
        assert "Temporal" not in running.pids()
