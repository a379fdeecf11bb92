"""A pod without namespaces for rooms is swept: what jobs left is removed, and a pod that is not as it was is known."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures.containers import JOBS_USER
from fixtures.emberd import UNPRIVILEGED, EmberdProcess, Lease, Starter, first_line, open_lease, recycled
from fixtures.leftovers import only_child, plant_in, planted
from fixtures.processes import command_line, descendants, state, wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.emberd import tree, zygote
from emberpool.pool.model.recycle import Attestation, RecycleTier

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="giving a pod several users takes root")
CHECKS = {"processes", "scratch", "listeners", "shared_memory", "manifest", "mounts"}
LEAVE = r"""
set -e
setsid sleep 70 >/dev/null 2>&1 &
(setsid sh -c 'sleep 71 & sleep 72' &) >/dev/null 2>&1
echo x > f; echo x > "$HOME/.bashrc"; echo x > "$TMPDIR/h"
mkdir -p /tmp/a/b /var/tmp/c; echo x > /tmp/a/b/f; echo x > /var/tmp/.hidden; chmod 0 /tmp/a/b
echo x > /opt/given/new; ln -s /etc /opt/given/link; mkfifo /opt/given/fifo
echo x > /dev/shm/f; echo x > /dev/shm/sem.s; ipcmk -M 4096 -S 1 -Q >/dev/null; touch /dev/mqueue/q
python3 -c "import os, socket, time
if os.fork(): os._exit(0)
os.setsid()
kept = [socket.create_server(('127.0.0.1', 8123)), socket.socket(1)]
kept[1].bind('\0left')
open('/tmp/up', 'w').close()
time.sleep(60)" >/dev/null 2>&1
until [ -e /tmp/up ]; do sleep 0.01; done
"""

HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall(60, 0)
"""
"""Only the first thread ends by that call (exit, not exit_group)."""


def left_running(name: str, program: str) -> str:
    """Shell text that leaves a Python program behind."""
    return f"cat > /tmp/{name} <<'END'\n{program}END\nsetsid python3 /tmp/{name} >/dev/null 2>&1 &"


def headless(pod: EmberdProcess) -> list[int]:
    """Processes below the pod whose first thread has ended while others run."""
    return [pid for pid in descendants(pod.process.pid) if state(pid) == "Z" and threads(pid) > 1]


def threads(pid: int) -> int:
    """How many; 0 if it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except FileNotFoundError:
        return 0


def running_of_jobs(pod: EmberdProcess) -> list[int]:
    """What the hitting job is, seen from the host."""
    return [pid for pid in descendants(pod.process.pid) if "/tmp/h.py" in command_line(pid)]


@pytest.fixture(scope="module")
def pod(emberds: Starter) -> Iterator[EmberdProcess]:
    """One for all: each test leaves it as it was."""
    started = emberds.start("auto", container="swept")
    yield started
    started.stop()


async def used(pod: EmberdProcess, client: EmberdClient, text: str = "true") -> Lease:
    """One lease, in which a command ran that must succeed."""
    lease = open_lease(pod, client)
    result = await lease.sh(text)
    assert result.ok, result
    return lease


def failed(attestation: Attestation) -> list[str]:
    """Checks that do not hold."""
    return sorted(name for name, held in attestation.checks.items() if not held)


async def test_the_tier_is_told_and_why(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """emberd has found out for itself that it can make no rooms."""
    state = await emberd_client.state(pod.address.name, pod.address.endpoint)
    assert (state.tier, state.room_mode) == (RecycleTier.SWEEP, "plain")
    assert "Operation not permitted" in state.no_rooms


async def test_where_rooms_can_be_made_they_are(emberds: Starter, emberd_client: EmberdClient) -> None:
    """The same configuration in a pod with namespaces gives the stronger tier."""
    pod = emberds.start("auto", container="util-linux")
    state = await emberd_client.state(pod.address.name, pod.address.endpoint)
    assert (state.tier, state.room_mode, state.no_rooms) == (RecycleTier.ROOM, "namespaces", "")
    lease = await used(pod, emberd_client)
    assert (await lease.sh("stat -c %d /work; id -u")).stdout.split()[1] == b"0"
    attestation = await recycled(pod, emberd_client)
    assert attestation.holds and attestation.tier is RecycleTier.ROOM
    pod.stop()


async def test_jobs_are_another_user(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """They cannot touch emberd, its state, or the pod's own files, and hold no capability."""
    lease = await used(pod, emberd_client)
    assert (await lease.sh("id -u; id -g; id -G")).stdout.split() == [b"%d" % JOBS_USER] * 3
    for text in ("kill -9 1", "cat /proc/1/environ", "ls /state", "touch /usr/x", "touch /opt/x", "ls /scratch/trash"):
        assert not (await lease.sh(text)).ok, text
    status = (await lease.sh("grep -h -E '^(CapEff|CapPrm|NoNewPrivs)' /proc/self/status")).text
    assert status.split() == ["CapPrm:", "0" * 16, "CapEff:", "0" * 16, "NoNewPrivs:", "1"]
    assert (await recycled(pod, emberd_client)).holds


async def test_all_that_a_job_left_is_removed(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Processes, files wherever it could write, sockets, shared memory of every kind: then the pod is as it was."""
    await used(pod, emberd_client, LEAVE)
    attestation = await recycled(pod, emberd_client)
    log = (pod.folder / "log").read_text()
    assert attestation.tier is RecycleTier.SWEEP and attestation.holds, (attestation, log)
    assert set(attestation.checks) == CHECKS
    following = await used(pod, emberd_client)
    seen = await following.sh(
        "ls -A . $HOME $TMPDIR /tmp /var/tmp /opt/given /dev/shm /dev/mqueue; "
        "ipcs | grep -c 0x; ps -ef | grep -c [s]leep"
    )
    assert [line for line in seen.text.splitlines() if line and not line.endswith(":")] == ["config", "0", "0"]
    assert (await recycled(pod, emberd_client)).holds


async def test_a_job_that_forks_without_end_is_ended(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """All of its user end in one system call, whatever they do meanwhile."""
    await used(pod, emberd_client, "(setsid sh -c 'f() { f | f & }; f' >/dev/null 2>&1 &); sleep 0.2")
    attestation = await recycled(pod, emberd_client)
    assert attestation.holds, attestation


async def test_a_process_without_its_first_thread_is_ended(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """It looks like a zombie, and its other threads run on: it is seen while it lives, and none is left."""
    await used(pod, emberd_client, left_running("p.py", HEADLESS))
    wait_until(lambda: bool(headless(pod)))
    assert set(headless(pod)) <= set(tree.descendants([pod.process.pid], tree.table()))
    attestation = await recycled(pod, emberd_client)
    assert attestation.holds, attestation
    assert headless(pod) == []


@pytest.mark.parametrize("number", ["STOP", "KILL"])
async def test_a_job_that_hits_all_it_can_is_ended(
    pod: EmberdProcess, emberd_client: EmberdClient, number: str
) -> None:
    """It hits who is sent to end it too, which has the same user: the pod proves itself all the same."""
    loop = f"import os, signal, time\ntime.sleep(0.3)\nwhile True:\n    os.kill(-1, signal.SIG{number})\n"
    await used(pod, emberd_client, left_running("h.py", loop))
    wait_until(lambda: bool(running_of_jobs(pod)))
    attestation = await recycled(pod, emberd_client)
    assert attestation.holds, attestation


def test_a_helper_that_was_stopped_goes_on() -> None:
    """Whoever waits for it is not held up by a job that stopped it."""
    helper = subprocess.Popen(["sh", "-c", "kill -STOP $$"])
    wait_until(lambda: state(helper.pid) == "T")
    zygote._wait_for(helper.pid)  # pyright: ignore[reportPrivateUsage]
    assert state(helper.pid) == "X"
    helper.poll()  # it was reaped already


@pytest.mark.parametrize(
    "change",
    [
        "echo more >> /opt/shared",
        "rm /opt/given/config",
        "mv /opt/given/config /opt/given/c; cp /opt/given/c /opt/given/config",
    ],
)
async def test_a_change_that_cannot_be_undone_is_found(
    emberds: Starter, emberd_client: EmberdClient, change: str
) -> None:
    """A file of the pod's own that was changed, removed or replaced: the pod stays dirty, and its log says which."""
    pod = emberds.start("auto", container="swept")
    await used(pod, emberd_client, change)
    attestation = await recycled(pod, emberd_client)
    assert failed(attestation) == ["manifest"] and not attestation.holds
    assert "/opt/" in (pod.folder / "log").read_text()
    assert (await emberd_client.state(pod.address.name, pod.address.endpoint)).state == "dirty"
    pod.stop()


async def test_a_file_that_a_job_made_grow_is_found_without_being_read(
    emberds: Starter, emberd_client: EmberdClient
) -> None:
    """Its size tells: 200 GiB that nobody wrote would take minutes to hash."""
    limits = {"memory_mb": 200, "pids": 64, "open_files": 256, "file_mb": 300 * 1024, "time_limit_s": 60}
    pod = emberds.start("auto", container="swept", limits=limits)
    await used(pod, emberd_client, "truncate -s 200G /opt/shared")
    attestation = await asyncio.wait_for(recycled(pod, emberd_client), 10)
    assert failed(attestation) == ["manifest"]
    pod.stop()


async def test_a_link_in_a_folders_place_leads_the_reset_nowhere(emberds: Starter, emberd_client: EmberdClient) -> None:
    """A folder of the pod's own that a job replaced by a link to emberd's: nothing is removed there."""
    folder = emberds.folder()
    given = folder / "emberd" / "given"  # of what the pod mounts, the one place that jobs see
    (given / "deep" / "deeper").mkdir(parents=True)
    for path in (given, given / "deep", given / "deep" / "deeper"):
        path.chmod(0o777)
    (folder / "state" / "deeper").mkdir()
    (folder / "state" / "deeper" / "kept").touch()
    pod = emberds.start("auto", folder, container="swept")
    await used(pod, emberd_client, "cd /emberd/given && mv deep /tmp/d && ln -s /state deep && ls -l /emberd/given")
    attestation = await recycled(pod, emberd_client)
    assert failed(attestation) == ["manifest"]
    assert sorted(os.listdir(folder / "state")) == ["deeper", "state.json"]
    assert os.listdir(folder / "state" / "deeper") == ["kept"]
    pod.stop()


async def test_what_was_planted_from_outside_is_found(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Of every kind, by its own check; once it is taken away, the pod proves itself again."""
    inside = only_child(pod.process.pid)
    await used(pod, emberd_client)
    with planted(inside, "--user --pid", "sh", "-c", "echo up; cat"):
        assert failed(await recycled(pod, emberd_client)) == ["processes"]
    listen = "import socket,sys; s = socket.create_server(('', 8123)); print('up', flush=True); sys.stdin.read()"
    with planted(inside, "--net", sys.executable, "-c", listen):
        assert failed(await recycled(pod, emberd_client)) == ["listeners"]
    for make, kind in (("-M 4096", "shm"), ("-S 1", "sem"), ("-Q", "msg")):
        plant_in(inside, "--user --ipc", f"ipcmk {make} >/dev/null")
        assert failed(await recycled(pod, emberd_client)) == ["shared_memory"], make
        plant_in(inside, "--user --ipc", f"ipcrm --all={kind}")
    plant_in(inside, "--user --mount", "mount -t tmpfs none /usr/share")
    assert failed(await recycled(pod, emberd_client)) == ["mounts"]
    plant_in(inside, "--user --mount", "umount /usr/share")
    plant_in(inside, "--user --mount", "echo x > /scratch/left")
    attestation = await recycled(pod, emberd_client)
    assert attestation.holds, attestation  # set aside with the rest of what jobs write to


async def test_a_pod_that_jobs_could_change_too_much_of_is_not_ready(emberds: Starter, tmp_path: Path) -> None:
    """Without a manifest there is no proof: better no pod than one that cannot be swept."""
    folder = emberds.folder()
    big = folder / "run" / "big"
    big.touch()
    os.truncate(big, 300 * 1024 * 1024)
    big.chmod(0o666)
    os.chown(big, UNPRIVILEGED, UNPRIVILEGED)
    _, _, process = emberds.spawn("auto", folder, container="swept", listen="http://127.0.0.1:0")
    said = first_line(process)
    assert said["ready"] is False and "/run/ember/big: jobs could change over" in said["reason"]
    assert process.wait(10) == 4
