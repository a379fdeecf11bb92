"""However the supervisor or its parent ends, no process of a pod is left, and a pod outlives every worker."""

import asyncio
import os
import signal
import socket
import subprocess
import sys

import pytest
from fixtures.local import SupervisorProcess, new_name, watching
from fixtures.processes import gone, wait_until

from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.profile import Profile
from emberpool.pool.providers.local.provider import LocalProvider
from emberpool.pool.providers.local.supervisor import supervisor_argv

PARENT = "import subprocess, sys; subprocess.run(sys.argv[1:])"


async def two_pods(supervisor: SupervisorProcess, isolation: str = "bubblewrap") -> LocalProvider:
    """A provider with two ready pods."""
    profile = Profile.model_validate({"name": "py", "isolation": isolation})
    provider = LocalProvider(profile, supervisor.socket)
    names = [new_name(), new_name()]
    for name in names:
        await provider.create(name, "")
    for name in names:
        assert (await provider.wait_ready(name, 30)).phase is Phase.READY
    return provider


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("isolation", ["bubblewrap", "plain"])
async def test_the_supervisors_end_is_every_pods_end(
    own_supervisor: SupervisorProcess, isolation: str, number: signal.Signals
) -> None:
    """SIGTERM, SIGINT or SIGKILL to the supervisor: every emberd is gone."""
    provider = await two_pods(own_supervisor, isolation)
    pids = [pod.pid for facts in await provider.list() if (pod := await provider.look_up(facts.name))]
    assert len(pids) == 2 and all(pids)
    own_supervisor.process.send_signal(number)
    own_supervisor.process.wait(30)
    wait_until(lambda: all(gone(pid) for pid in pids))
    if isolation == "bubblewrap":
        wait_until(lambda: own_supervisor.pod_pids() == set())
    await provider.aclose()


async def test_an_ordered_end_leaves_no_folder(own_supervisor: SupervisorProcess) -> None:
    """After SIGTERM the exit status is 0, and no pod's folder and no socket is left."""
    provider = await two_pods(own_supervisor)
    own_supervisor.process.terminate()
    assert own_supervisor.process.wait(30) == 0
    assert list((own_supervisor.data / "pods").iterdir()) == []
    assert list(own_supervisor.socket.parent.rglob("s")) == []
    await provider.aclose()


def test_the_supervisor_dies_with_its_parent() -> None:
    """SIGKILL to whoever started it: the supervisor ends by itself."""
    supervisor = SupervisorProcess(lambda argv: [sys.executable, "-P", "-c", PARENT, *argv])
    try:
        pid = supervisor.pid
        assert pid != supervisor.process.pid
        supervisor.process.kill()
        supervisor.process.wait(30)
        wait_until(lambda: gone(pid))
    finally:
        supervisor.close()


async def test_pods_die_with_the_parent_of_the_supervisor() -> None:
    """SIGKILL to the stack's own process takes the pods along."""
    supervisor = SupervisorProcess(lambda argv: [sys.executable, "-P", "-c", PARENT, *argv])
    try:
        provider = await two_pods(supervisor)
        assert len(supervisor.pod_pids()) >= 2
        supervisor.process.kill()
        wait_until(lambda: supervisor.pod_pids() == set())
        await provider.aclose()
    finally:
        supervisor.close()


def test_a_supervisor_without_its_parent_does_not_start(own_supervisor: SupervisorProcess) -> None:
    """A parent that died before the supervisor looked leaves no supervisor."""
    argv = supervisor_argv(own_supervisor.socket, own_supervisor.data, own_supervisor.key_file, parent=1)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "the parent is gone" in done.stderr


@pytest.mark.parametrize("pause_ms", range(0, 60, 6))
async def test_a_supervisor_killed_while_a_pod_starts_leaves_nothing(pause_ms: int) -> None:
    """SIGKILL at any moment of a pod's launch leaves no process."""
    supervisor = SupervisorProcess()
    try:
        provider = LocalProvider(Profile(name="py"), supervisor.socket)
        await provider.create(new_name(), "")
        asyncio.get_running_loop().call_later(pause_ms / 1000, supervisor.process.kill)
        await asyncio.to_thread(supervisor.process.wait, 30)
        wait_until(lambda: supervisor.pod_pids() == set())
        await provider.aclose()
    finally:
        supervisor.close()


async def test_pods_outlive_the_worker_that_made_them(own_supervisor: SupervisorProcess) -> None:
    """Another worker finds a pod that the first one made, ready and the same."""
    provider = await two_pods(own_supervisor)
    before = await provider.list()
    await provider.aclose()
    other = LocalProvider(provider.profile, own_supervisor.socket)
    assert await other.list() == before
    await other.aclose()


async def test_what_a_killed_supervisor_left_is_cleared_by_the_next(own_supervisor: SupervisorProcess) -> None:
    """A supervisor on the folder of one that was killed starts with no pods and no leftover folders."""
    provider = await two_pods(own_supervisor)
    own_supervisor.process.kill()
    own_supervisor.process.wait(30)
    assert len(list((own_supervisor.data / "pods").iterdir())) == 2
    own_supervisor.start()
    assert await provider.list() == []
    assert list((own_supervisor.data / "pods").iterdir()) == []
    await provider.aclose()


async def test_without_a_supervisor_the_pool_is_unavailable(own_supervisor: SupervisorProcess) -> None:
    """Calls and watches raise the retryable PoolUnavailable, never hang and never say that there are no pods."""
    provider = await two_pods(own_supervisor)
    async with watching(provider) as changes:
        await anext(changes)
        await anext(changes)
        own_supervisor.process.kill()
        with pytest.raises(PoolUnavailable):
            await anext(changes)
    with pytest.raises(PoolUnavailable):
        await provider.list()
    with pytest.raises(PoolUnavailable):
        await provider.create(new_name(), "")
    await provider.aclose()


def test_a_data_folder_has_one_supervisor(own_supervisor: SupervisorProcess) -> None:
    """A second one on the same folder ends at once and says why; the first goes on."""
    argv = supervisor_argv(own_supervisor.root / "run2" / "s", own_supervisor.data, own_supervisor.key_file)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "another supervisor uses" in done.stderr
    assert own_supervisor.process.poll() is None


def test_only_its_owner_can_reach_the_supervisor(supervisor: SupervisorProcess) -> None:
    """The socket has mode 0600, in a folder of mode 0700."""
    assert supervisor.socket.stat().st_mode & 0o777 == 0o600
    assert supervisor.socket.parent.stat().st_mode & 0o777 == 0o700
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(supervisor.socket))
    assert supervisor.socket.stat().st_uid == os.geteuid()
