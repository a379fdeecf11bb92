"""A job in a room sees its image, its own folders and its own processes, and can do nothing to what is around it."""

from fixtures.emberd import Lease


async def test_the_root_holds_the_image_and_nothing_of_the_pod(room_lease: Lease) -> None:
    """No state, scratch, socket or code of emberd."""
    names = set((await room_lease.sh("ls -A /")).text.split())
    assert names <= {"bin", "dev", "home", "layers", "lib", "lib64", "proc", "sbin", "tmp", "usr", "work"}
    assert (await room_lease.sh("ls -A /work /tmp /home/job /dev/shm")).text.split() == [
        "/dev/shm:",
        "/home/job:",
        "/tmp:",
        "/work:",
    ]


async def test_only_its_own_processes_are_there(room_lease: Lease) -> None:
    """PID 1 is the room's own; emberd cannot be seen, signalled or looked into."""
    result = await room_lease.sh("ls /proc | grep -c '^[0-9]'; cat /proc/1/environ /proc/1/maps | wc -c; ls /proc/1/fd")
    count, size = result.text.split()[:2]
    assert int(count) < 12 and size == "0"
    assert "Permission denied" in result.error_text


async def test_it_holds_no_privilege(room_lease: Lease) -> None:
    """No capability, now or after any exec; no new user namespace to get them in."""
    status = (await room_lease.sh("grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status")).text
    fields = dict(line.split(":\t") for line in status.splitlines())
    assert fields["NoNewPrivs"] == "1"
    assert {int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    for text in (
        "mount -t tmpfs none /tmp",
        "unshare -m true",
        "unshare -U true",
        "chroot / true",
        "mknod /tmp/d c 1 3",
    ):
        assert not (await room_lease.sh(text)).ok, text


async def test_the_image_is_read_only(room_lease: Lease) -> None:
    """Nothing that a job writes can reach another job through the image."""
    for path in ("/usr/bin/x", "/x", "/dev/x", "/home/x", "/proc/sys/kernel/core_pattern"):
        assert not (await room_lease.sh(f"echo x > {path}")).ok, path


async def test_its_own_folders_are_writable(room_lease: Lease) -> None:
    """/work, /tmp, the home folder and /dev/shm."""
    assert (await room_lease.sh('for d in /work /tmp "$HOME" /dev/shm; do echo x > $d/f || exit 1; done')).ok
    assert (await room_lease.sh("echo x > /dev/null; head -c 4 /dev/urandom | wc -c")).stdout == b"4\n"
    assert (await room_lease.sh("echo x | cat /dev/stdin > /dev/stdout")).stdout == b"x\n"


async def test_shared_memory_is_limited(room_lease: Lease) -> None:
    """/dev/shm cannot take the pod's memory."""
    result = await room_lease.sh("head -c 100M /dev/zero > /dev/shm/f; stat -c %s /dev/shm/f; rm /dev/shm/f")
    assert int(result.text) <= 50 * 1024 * 1024


async def test_there_is_no_network_but_loopback(room_lease: Lease) -> None:
    """Nothing outside can be reached, by its pod's own network namespace."""
    text = (await room_lease.sh("tail -n +3 /proc/net/dev")).text
    assert [line.split(":")[0].strip() for line in text.splitlines()] == ["lo"]
