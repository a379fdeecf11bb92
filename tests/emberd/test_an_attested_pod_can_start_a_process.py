"""A reset under gVisor proves that the next command can be started: a pod that cannot does not come back."""

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest
from fixtures.containers import runsc_path
from fixtures.emberd import UNPRIVILEGED, EmberdProcess, Starter, open_lease, recycled

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.emberd import channel, shim, shims
from emberpool.pool.emberd.config import Limits

GROUP = "mkdir -p /tmp/group && mount -t cgroup -o pids none /tmp/group && {}; umount /tmp/group; rmdir /tmp/group"
needs_runsc = pytest.mark.skipif(
    runsc_path() is None or os.geteuid() != 0, reason="needs gVisor's runsc (set RUNSC) and root"
)


@pytest.fixture
def pod(emberds: Starter) -> Iterator[EmberdProcess]:
    """A pod in gVisor with rooms."""
    started = emberds.start("namespaces", container="gvisor")
    yield started
    started.stop()


def allow(pod: EmberdProcess, tasks: str) -> None:
    """Let the pod's jobs have so many processes, by the control group of gVisor's own that bounds them."""
    text = GROUP.format(f"echo {tasks} > /tmp/group/jobs/pids.max")
    runsc = [runsc_path() or "runsc", f"--root={pod.folder}/runsc", "exec", "--cap=CAP_SYS_ADMIN", pod.gvisor]
    done = subprocess.run([*runsc, "/bin/sh", "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done


@needs_runsc
async def test_a_pod_that_can_start_none_is_not_attested(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Its kernel allows the next room its first process and the one that waits for the next command, but no more:
    exactly the check `new_process` fails. Once it allows one, the same pod is attested, and runs it."""
    assert (await open_lease(pod, emberd_client).sh("true")).ok
    allow(pod, "2")
    attestation = await recycled(pod, emberd_client)
    assert {name for name, held in attestation.checks.items() if not held} == {"new_process"}, attestation
    assert attestation.quarantined_for == "not_attested: new_process"
    allow(pod, "128")
    attestation = await recycled(pod, emberd_client)
    assert attestation.holds and attestation.checks["new_process"], attestation
    assert (await open_lease(pod, emberd_client).sh("echo here")).text == "here\n"


class Room:
    """Shims as a room makes them, of a user that may have so many processes."""

    def __init__(self) -> None:
        self.tasks = 0
        self.made: list[int] = []

    def ask(self) -> socket.socket:
        """A new one."""
        mine, other = channel.pair()
        channel.allow_peer_pid(mine)
        pid = os.fork()
        if pid:
            self.made.append(pid)
            other.close()
            return mine
        try:
            mine.close()
            if os.geteuid() == 0:  # whom no limit counts
                os.setgid(UNPRIVILEGED)
                os.setuid(UNPRIVILEGED)
            shim.stand_by(other, Limits(200, self.tasks, 64, 32, 60.0, 80), 0)
        finally:
            os._exit(1)


@pytest.fixture
def room() -> Iterator[Room]:
    """One whose shims are reaped."""
    made = Room()
    yield made
    for pid in made.made:
        os.waitpid(pid, 0)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_shim_says_whether_it_was_refused_a_process(room: Room) -> None:
    """The proof is the start of a process under the limits of a command; the shim that has given it is the one that the
    next command gets."""
    of_room = shims.Shims(room.ask)
    assert not of_room.prove(10)
    room.tasks = 100_000
    assert of_room.prove(10)
    taken = of_room.take()
    assert taken.pid is not None and taken.pid == room.made[-1]
    taken.sock.close()
    of_room.close()
