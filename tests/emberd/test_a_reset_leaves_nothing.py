"""A reset ends everything a job has left, and proves it: a leftover of any kind makes its check false."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fixtures.emberd import EmberdProcess, Lease, Starter, open_lease, recycled, reset
from fixtures.leftovers import children, only_child, plant_in, planted
from fixtures.processes import command_line, descendants, wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.recycle import Attestation, RecycleTier

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="planting something in a pod from outside takes root")

LEAVE = """
setsid sleep 70 >/dev/null 2>&1 &
(setsid sh -c 'sleep 71 & sleep 72' &) >/dev/null 2>&1
echo x > f; echo x > "$HOME/g"; echo x > "$TMPDIR/h"; mkdir -p closed/deep; echo x > closed/deep/f; chmod 0 closed
"""


async def test_what_a_job_left_is_gone(lease: Lease) -> None:
    """Files, closed folders and processes that left their session: the next lease finds none."""
    assert (await lease.sh(LEAVE)).ok
    await reset(lease)
    following = open_lease(lease.emberd, lease.client)
    assert (await following.sh('ls -A . "$HOME" "$TMPDIR" | grep -v : | tr -d "\\n"')).stdout == b""
    assert not sleepers_below(lease.emberd.process.pid)
    wait_until(lambda: not any((lease.emberd.scratch / "trash").iterdir()))


def sleepers_below(pid: int) -> list[int]:
    """What is left of LEAVE below a process."""
    found: list[int] = []
    for below in descendants(pid):
        with suppress(OSError):
            if b"sleep\x007" in Path(f"/proc/{below}/cmdline").read_bytes():
                found.append(below)
    return found


async def test_rooms_are_reset_by_ending_them(room_lease: Lease) -> None:
    """Listeners and shared memory end with the room too; tier and every check are told."""
    listen = "import socket,time; s=socket.create_server(('127.0.0.1',8123)); u=socket.socket(1); u.bind('\\0a'); "
    await room_lease.sh(f'(setsid python3 -c "{listen} print(1, flush=True); time.sleep(60)" > up &) ; ipcmk -M 4096')
    assert (await room_lease.sh("until [ -s up ]; do sleep 0.02; done; echo x > /dev/shm/f")).ok
    emberd = room_lease.emberd
    emberd.epoch += 1
    await room_lease.client.fence(room_lease.pod, emberd.epoch)
    attestation = await room_lease.client.recycle(room_lease.pod, emberd.epoch)
    assert attestation.tier is RecycleTier.ROOM and attestation.holds
    assert set(attestation.checks) == {"processes", "listeners", "scratch", "shared_memory", "mounts"}
    following = open_lease(emberd, room_lease.client)
    assert (await following.sh("ls -A /dev/shm; ipcs -m | grep -c 0x; true")).stdout == b"0\n"


async def test_many_files_do_not_hold_the_reset_up(room_lease: Lease) -> None:
    """The used upper layer is renamed aside and deleted behind."""
    await room_lease.run("python3", "-c", "for i in range(20000): open(f'f{i}', 'w').close()")
    emberd = room_lease.emberd
    emberd.epoch += 1
    await room_lease.client.fence(room_lease.pod, emberd.epoch)
    attestation = await room_lease.client.recycle(room_lease.pod, emberd.epoch)
    assert attestation.holds and attestation.duration_ms < 2000
    wait_until(lambda: not any((emberd.scratch / "trash").iterdir()), 60)


@pytest.fixture
def pod(emberds: Starter) -> Iterator[EmberdProcess]:
    """A pod with rooms of the test's own, its spare room ready."""
    started = emberds.start("namespaces")
    wait_until(lambda: len(room_inits(started)) == 2 and all(entered(init) for init in room_inits(started)))
    yield started
    started.stop()


def zygote_of(pod: EmberdProcess) -> int:
    """bwrap's child is emberd, emberd's child the zygote."""
    return only_child(only_child(pod.process.pid))


def room_inits(pod: EmberdProcess) -> list[int]:
    """Host PIDs of the rooms' first processes, oldest first."""
    return sorted(children(zygote_of(pod)))


def entered(init: int) -> bool:
    """Whether a room's first process is ready: it goes to its folder last, once it has noted its mounts."""
    try:
        return os.readlink(f"/proc/{init}/cwd") == "/work"
    except FileNotFoundError:
        return False  # it was the zygote's helper, which has just ended


def listening(make: str) -> tuple[str, ...]:
    """A Python that opens a socket, says so, and holds it until its input closes."""
    return (sys.executable, "-c", f"import socket,sys; {make}; print('up', flush=True); sys.stdin.read()")


async def used_and_reset(pod: EmberdProcess, client: EmberdClient) -> Attestation:
    """Use the pod once, then fence and recycle it."""
    lease = open_lease(pod, client)
    await lease.sh("echo x > f")
    pod.epoch += 1
    await client.fence(pod.address, pod.epoch)
    return await client.recycle(pod.address, pod.epoch)


async def assert_refused(pod: EmberdProcess, client: EmberdClient, check: str) -> None:
    """Exactly this check fails, and the pod stays dirty."""
    attestation = await used_and_reset(pod, client)
    assert [name for name, held in attestation.checks.items() if not held] == [check]
    assert not attestation.holds
    state = await client.state(pod.address.name, pod.address.endpoint)
    assert state.state == "dirty" and (pod.folder / "state" / "state.json").exists()


@needs_root
async def test_a_process_left_in_the_pod_is_found(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Even one that no room ever held."""
    with planted(only_child(pod.process.pid), "--pid", "sh", "-c", "echo up; cat"):
        await assert_refused(pod, emberd_client, "processes")


@needs_root
@pytest.mark.parametrize(
    "make",
    [
        "s = socket.create_server(('127.0.0.1', 8123))",
        "s = socket.create_server(('::1', 8123), family=socket.AF_INET6)",
        "s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('127.0.0.1', 8123))",
        "s = socket.socket(socket.AF_UNIX); s.bind('\\0left'); s.listen()",
    ],
)
async def test_a_listener_left_in_the_pod_is_found(pod: EmberdProcess, emberd_client: EmberdClient, make: str) -> None:
    """TCP, UDP and abstract unix sockets."""
    with planted(only_child(pod.process.pid), "--net", *listening(make)):
        await assert_refused(pod, emberd_client, "listeners")


@needs_root
@pytest.mark.parametrize("where", ["work/left", "home/left", "tmp/.left"])
async def test_a_file_in_the_next_room_is_found(pod: EmberdProcess, emberd_client: EmberdClient, where: str) -> None:
    """The next lease must start with empty folders."""
    newest = max((pod.scratch / "rooms").iterdir(), key=lambda folder: int(folder.name))
    (newest / "upper" / where).write_text("x")
    await assert_refused(pod, emberd_client, "scratch")


@needs_root
@pytest.mark.parametrize(
    ("spaces", "command"),
    [
        ("--user --mount", "echo x > /dev/shm/left"),
        ("--ipc", "ipcmk -M 4096 > /dev/null"),
        ("--ipc", "ipcmk -S 1 > /dev/null"),
        ("--ipc", "ipcmk -Q > /dev/null"),
        ("--user --mount", "echo x > /dev/shm/sem.left"),
        ("--user --mount --ipc", "touch /dev/mqueue/left"),
    ],
)
async def test_shared_memory_in_the_next_room_is_found(
    pod: EmberdProcess, emberd_client: EmberdClient, spaces: str, command: str
) -> None:
    """Files in /dev/shm (POSIX semaphores are some), POSIX queues and System V objects."""
    newest = room_inits(pod)[-1]
    plant_in(newest, spaces, command)
    await assert_refused(pod, emberd_client, "shared_memory")


@needs_root
async def test_a_mount_in_the_next_room_is_found(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Whatever it hides or shows, it was not there when the room was made."""
    plant_in(room_inits(pod)[-1], "--user --mount", "mount -t tmpfs none /usr/share")
    await assert_refused(pod, emberd_client, "mounts")


@needs_root
async def test_a_mount_in_the_pod_is_found(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Every room that comes would have it."""
    plant_in(only_child(pod.process.pid), "--user --mount", "mount -t tmpfs none /usr/share")
    await assert_refused(pod, emberd_client, "mounts")


EVERYTHING = """
import ctypes, os, socket
if os.fork() == 0:
    os.setsid()
    tcp = socket.create_server(("127.0.0.1", 8125))
    abstract = socket.socket(socket.AF_UNIX); abstract.bind("\\0left"); abstract.listen()
    for place in ("f", os.environ["HOME"] + "/f", "/tmp/f", "/dev/shm/f"): open(place, "w").write("left")
    ctypes.CDLL(None).shmget(4711, 4096, 0o1666)
    open("up", "w").close()
    os.closerange(0, 3)
    tcp.accept()
while not os.path.exists("up"): pass
"""


def outside(pod: EmberdProcess) -> dict[str, list[str]]:
    """What the host sees of a pod: what emberd says of it has no part in this."""
    inits = room_inits(pod)
    net = Path(f"/proc/{inits[-1]}/net")
    rooms = [path for path in (pod.scratch / "rooms").glob("*/upper/**/*") if not path.is_dir()]
    shared = [entry for init in inits for entry in os.listdir(f"/proc/{init}/root/dev/shm")]
    objects = [line for init in inits for kind in ("shm", "sem", "msg") for line in system_v(init, kind)]
    return {
        "processes": sorted(command_line(pid) for pid in descendants(pod.process.pid)),
        "sockets": [line.split()[1] for kind in ("tcp", "udp") for line in lines(net / kind)],
        "abstract": [line for line in lines(net / "unix") if "@" in line],
        "files": [str(path) for path in rooms],
        "shared": shared + objects,
        "mounts": sorted(line.split()[4] for line in lines(Path(f"/proc/{only_child(pod.process.pid)}/mountinfo"), 0)),
    }


def lines(path: Path, skipped: int = 1) -> list[str]:
    return path.read_text().splitlines()[skipped:]


def system_v(init: int, kind: str) -> list[str]:
    """Objects of a room's IPC namespace."""
    told = subprocess.run(["nsenter", "-t", str(init), "--ipc", "cat", f"/proc/sysvipc/{kind}"], capture_output=True)
    return told.stdout.decode().splitlines()[1:]


@needs_root
async def test_an_attestation_is_true_as_the_host_sees_it(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """After a job that left a process, listeners, files, shared memory and a System V object: each is seen from outside
    of the pod while it is there, and none is once the attestation says so, nor anything else that was not there."""

    def rooms_ready() -> bool:
        return len(room_inits(pod)) == 2 and all(entered(init) for init in room_inits(pod))

    before = outside(pod)
    lease = open_lease(pod, emberd_client)
    assert (await lease.run("python3", "-c", EVERYTHING)).ok
    during = outside(pod)
    assert all(len(during[kind]) > len(before[kind]) for kind in before if kind != "mounts"), during
    assert (await recycled(pod, emberd_client)).holds
    wait_until(rooms_ready)
    wait_until(lambda: outside(pod) == before)


async def test_a_clean_pod_is_found_clean(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Without a leftover every check holds, time after time, and uses are counted; the account of use stays."""
    for use in range(1, 6):
        attestation = await used_and_reset(pod, emberd_client)
        assert attestation.holds and attestation.uses == use
        assert abs(attestation.at - time.time()) < 60 and 0 < attestation.age_s < 600
    assert (pod.folder / "state" / "state.json").exists()
