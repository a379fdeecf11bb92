"""What one job leaves to be found, or to be in the way, is not there for the next one of the same caller."""

from fixtures.emberd import Lease, open_lease, reset

PLACES = (
    "/work/f",
    "/tmp/f",
    "/dev/shm/f",
    "$HOME/.bashrc",
    "$HOME/.profile",
    "$HOME/.config/pip/pip.conf",
    "$HOME/.local/lib/python3/site-packages/evil.pth",
    "/work/.git/hooks/pre-commit",
)
WRITE = " ".join(f'mkdir -p "$(dirname {place})" && echo planted > {place} &&' for place in PLACES) + " echo all"
LOOK = "; ".join(f"test -e {place} && echo found {place}" for place in PLACES) + "; true"
DAEMON = """
import os, socket, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
kept = open("/tmp/deleted", "w"); os.unlink("/tmp/deleted")
server = socket.create_server(("127.0.0.1", 3000))
open("/work/up", "w").close()
time.sleep(60)
"""
BIND = "import socket; socket.create_server(('127.0.0.1', 3000)); print('free')"


async def test_no_file_is_found(room_lease: Lease) -> None:
    """Working folder, temporary files, shared memory, shell and package configuration, hooks: all new.

    Seen in pydantic/pydantic-ai#2332: files of one run were visible to the next.
    """
    assert (await room_lease.sh(WRITE)).stdout == b"all\n"
    await reset(room_lease)
    following = open_lease(room_lease.emberd, room_lease.client)
    assert (await following.sh(LOOK)).stdout == b""


async def test_no_port_is_taken(room_lease: Lease) -> None:
    """A daemon that forked twice on port 3000 is gone, and the next job's server gets the port.

    Seen in multica-ai/multica#6470: the next task found its port taken, or tested against the old server.
    """
    await room_lease.write("/work/daemon.py", DAEMON.encode())
    started = await room_lease.sh("python3 daemon.py </dev/null >/dev/null 2>&1; until test -e up; do sleep 0.02; done")
    assert started.ok
    await reset(room_lease)
    following = open_lease(room_lease.emberd, room_lease.client)
    assert (await following.run("python3", "-c", BIND)).stdout == b"free\n"
    processes = (await following.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout
    assert b"daemon.py" not in processes
