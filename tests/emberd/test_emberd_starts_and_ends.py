"""emberd serves or says why not, ends when told, and leaves nothing behind."""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from fixtures.emberd import Lease, Starter, first_line, new_id, newest_pythons, oldest_pythons, open_lease, reset
from fixtures.processes import descendants, gone, wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.emberd.guard import judge
from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import PodUnreachable

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be refused for being root")
MODES = pytest.mark.parametrize("mode", ["plain", "namespaces"])
JOB = Command(shell="setsid sleep 80 & (setsid sleep 81 &); touch up; sleep 82")


async def busy(starter: Starter, client: EmberdClient, mode: str) -> tuple[Lease, set[int], "asyncio.Task[Any]"]:
    """A pod with a job that runs, and every process of it."""
    lease = open_lease(starter.start(mode), client)
    running = asyncio.ensure_future(client.run(lease.pod, lease.proof, new_id(), JOB))
    await lease.sh("until [ -e up ]; do sleep 0.02; done")
    pids = {lease.emberd.process.pid, *descendants(lease.emberd.process.pid)}
    assert len(pids) > 5
    return lease, pids, running


@MODES
async def test_sigterm_ends_all_within_a_second(emberds: Starter, emberd_client: EmberdClient, mode: str) -> None:
    """Exit status 0, no process left, no socket left: TERM is heeded, also as PID 1 (borenstein/yolo-cage#13)."""
    lease, pids, running = await busy(emberds, emberd_client, mode)
    emberd_pid = lease.emberd.process.pid if mode == "plain" else min(pids - {lease.emberd.process.pid})
    started = time.monotonic()
    os.kill(emberd_pid, 15)
    assert lease.emberd.process.wait(5) == 0
    assert time.monotonic() - started < 3
    wait_until(lambda: all(gone(pid) for pid in pids), 5)
    assert not (lease.emberd.folder / "run" / "s").exists()
    running.cancel()


@MODES
async def test_what_emberd_ends_with_itself_is_not_told_as_a_commands_end(
    emberds: Starter, emberd_client: EmberdClient, mode: str
) -> None:
    """A pod that is evicted gets SIGTERM: whoever waits for a command there loses the connection, and hears from the
    provider why, instead of a result that says that the command was killed."""
    lease, pids, running = await busy(emberds, emberd_client, mode)
    os.kill(lease.emberd.process.pid if mode == "plain" else min(pids - {lease.emberd.process.pid}), 15)
    with pytest.raises(PodUnreachable) as caught:
        await running
    assert caught.value.sent
    assert lease.emberd.process.wait(5) == 0


@MODES
async def test_a_killed_emberd_leaves_no_job(emberds: Starter, emberd_client: EmberdClient, mode: str) -> None:
    """SIGKILL cannot be handled, yet nothing outlives it."""
    lease, pids, running = await busy(emberds, emberd_client, mode)
    lease.emberd.process.kill()
    lease.emberd.process.wait()
    wait_until(lambda: all(gone(pid) for pid in pids), 10)
    running.cancel()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"key": "00"}, "key"),
        ({"key": "zz"}, "key"),
        ({"listen": ""}, "listen"),
        ({"room": {"mode": "other"}}, "room.mode"),
        ({"room": {"mode": "namespaces"}}, "room.root"),
        ({"limits": {"pids": 0}}, "limits"),
        ({"listen": "ftp://x"}, "listen"),
        ({"listen": "unix:/nowhere/s"}, ""),
    ],
)
def test_a_wrong_configuration_is_named(emberds: Starter, changes: dict[str, Any], reason: str) -> None:
    """One line says why, and the process ends."""
    _, _, process = emberds.spawn("plain", **changes)
    said = first_line(process)
    assert said["ready"] is False and said["reason"].startswith(reason)
    assert process.wait(5) in (2, 4)


@MODES
def test_a_warm_up_that_fails_ends_the_pod(emberds: Starter, mode: str) -> None:
    """Exit status 3, and its error output in the reason."""
    _, _, process = emberds.spawn(mode, warm_up=["sh", "-c", "echo broken >&2; exit 7"])
    said = first_line(process)
    assert said["ready"] is False and "7" in said["reason"] and "broken" in said["reason"]
    assert process.wait(5) == 3


async def test_a_warm_up_runs_once_in_the_first_room(emberds: Starter, emberd_client: EmberdClient) -> None:
    """What it leaves is there for the first lease and gone after its reset."""
    emberd = emberds.start("plain", warm_up=["sh", "-c", "echo x >> warm"])
    lease = open_lease(emberd, emberd_client)
    assert await lease.read("warm") == b"x\n"
    await reset(lease)
    assert (await open_lease(emberd, emberd_client).sh("ls -A")).stdout == b""
    emberd.stop()


@pytest.mark.parametrize(
    ("ranges", "capabilities", "uid", "refused"),
    [
        ([(0, 0, 4294967295)], 0, 1000, False),
        ([(0, 0, 4294967295)], 0, 0, True),
        ([(0, 0, 4294967295)], 1 << 21, 1000, True),
        ([(0, 0, 1)], 1 << 21, 0, True),
        ([(0, 1000, 1)], 1 << 21, 0, False),
        ([(0, 655360, 65536)], 1 << 21, 0, False),
        ([(0, 1000, 1), (1, 0, 1)], 0, 0, True),
    ],
)
def test_a_job_must_never_be_root_on_the_host(
    ranges: list[tuple[int, int, int]], capabilities: int, uid: int, refused: bool
) -> None:
    """By the user namespace's map and the privileges held in the initial one."""
    assert (judge(ranges, capabilities, uid) is not None) == refused


@needs_root
@MODES
def test_root_on_the_host_is_refused(emberds: Starter, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Started by root without another user, emberd does not serve."""
    folder = emberds.folder()
    monkeypatch.setattr("fixtures.emberd._uid", lambda: None)
    _, _, process = emberds.spawn(mode, folder)
    said = first_line(process)
    assert said["ready"] is False and "host" in said["reason"] or "initial" in said["reason"]
    assert process.wait(5) == 2


@pytest.mark.parametrize("found", [oldest_pythons, newest_pythons], ids=["3.8", "newest"])
async def test_the_basics_on_the_oldest_python_and_the_newest(
    emberds: Starter,
    emberd_client: EmberdClient,
    monkeypatch: pytest.MonkeyPatch,
    found: Callable[[], list[str]],
) -> None:
    """Run, files, kill and reset on the oldest Python promised, and on the newest one that is here."""
    if not found():
        pytest.skip("no Python 3.8 here")
    python = found()[0]
    monkeypatch.setattr("fixtures.emberd._uid", lambda: None)  # the interpreter may lie in a closed home
    emberd = emberds.start("plain", python=python, test_allow_host_root=True)
    lease = open_lease(emberd, emberd_client)
    await lease.write("é/f", b"\0x", 0o600)
    result = await lease.sh("cat; cat é/f; setsid sleep 83 & exit 3", stdin=b"in")
    assert (result.stdout, result.exit_code, result.survivors) == (b"in\0x", 3, True)
    assert (await lease.sh("sleep 30", time_limit_s=0.5)).outcome == "timed_out"
    with pytest.raises(Exception, match="not_found"):
        await lease.read("nothing")
    await reset(lease)
    assert (await open_lease(emberd, emberd_client).sh("ls -A")).stdout == b""
    assert emberd.stop() == 0
