"""Files come and go byte for byte, whole or not at all, and only regular ones."""

import asyncio
import hashlib
import random

import pytest
from fixtures.emberd import Lease

from emberpool.pool.model.errors import InvalidInput, SandboxFileError
from emberpool.pool.model.rollout import TextFile


@pytest.mark.parametrize("size", [0, 1, 6, 95 * 1024, 97 * 1024, 1024 * 1024, 20 * 1024 * 1024])
async def test_any_size_arrives(lease: Lease, size: int) -> None:
    """Content travels in no argument (truefoundry/trueforge#416) and comes back as bytes (labring/FastGPT#7433)."""
    data = random.Random(size).randbytes(size)
    await lease.write("data.bin", data)
    told = (await lease.sh("sha256sum < data.bin; stat -c %s data.bin")).text.split()
    assert told == [hashlib.sha256(data).hexdigest(), "-", str(size)]
    assert await lease.read("data.bin") == data


NAMES = ["a b", "-rf", "--", "x\ny", "é", "it's", "$(id)", "*", "ü" * 100, "invalid-\udcff\udcfe", "%41?&=#+"]


@pytest.mark.parametrize("name", NAMES)
async def test_odd_names_work(lease: Lease, name: str) -> None:
    """A name is bytes for the kernel and nothing else (agentuity/sdk#400)."""
    await lease.write(f"names/{name}", name.encode("utf-8", "surrogateescape"))
    assert await lease.read(f"names/{name}") == name.encode("utf-8", "surrogateescape")
    listed = await lease.run("python3", "-c", "import os,sys; sys.stdout.buffer.write(os.listdir(b'names')[0])")
    assert listed.stdout == name.encode("utf-8", "surrogateescape")


async def test_parents_belong_to_the_job(lease: Lease) -> None:
    """What was made for a file can be removed by the job (opensandbox-group/OpenSandbox#1064)."""
    await lease.write("a/b/c.txt", b"x")
    assert (await lease.sh("touch a/b/d && rm -rf a")).ok


async def test_modes_are_kept(lease: Lease) -> None:
    """A script is executable at once, without a writer that still holds it (pantsbuild/pants#10507)."""

    async def one(number: int) -> bool:
        await lease.write(f"s{number}.sh", b"#!/bin/sh\necho $0\n", 0o755)
        return (await lease.run(f"./s{number}.sh")).ok

    for start in range(0, 96, 16):
        assert all(await asyncio.gather(*(one(start + offset) for offset in range(16))))
    assert (await lease.sh("stat -c %a s0.sh")).stdout == b"755\n"


async def test_a_write_replaces_whole(lease: Lease) -> None:
    """A reader sees the old or the new file, never a part (fabric8io/kubernetes-client#6212)."""
    await lease.write("f", b"a" * 100_000)
    reader = asyncio.ensure_future(lease.sh("for i in $(seq 150); do wc -c < f; done | sort -u", time_limit_s=30))
    for size in (100_000, 200_000) * 10:
        await lease.write("f", b"b" * size)
    assert set((await reader).text.split()) <= {"100000", "200000"}
    assert (await lease.sh("ls -A | grep -c ember; true")).stdout == b"0\n"


@pytest.mark.parametrize(
    ("make", "path"),
    [
        ("mkfifo p", "p"),
        ("mkdir p", "p"),
        ("python3 -c \"import socket; socket.socket(1).bind('p')\"", "p"),
        ("ln -s /dev/zero p", "p"),
        ("true", "/dev/zero"),
        ("true", "/proc/self/status"),
        ("ln -s q p; ln -s p q", "p"),
    ],
)
async def test_only_regular_files_are_read(lease: Lease, make: str, path: str) -> None:
    """A FIFO or device is refused at once, and nothing blocks (openai/openai-agents-python#4891)."""
    assert (await lease.sh(make)).ok
    with pytest.raises(SandboxFileError) as caught:
        await asyncio.wait_for(lease.read(path), 10)
    assert (caught.value.reason, caught.value.path) == ("not_a_file", path)


@pytest.mark.parametrize("make", ["mkfifo p", "mkdir p"])
async def test_only_regular_files_are_replaced(lease: Lease, make: str) -> None:
    """Neither is one replaced by a write."""
    assert (await lease.sh(make)).ok
    with pytest.raises(SandboxFileError) as caught:
        await asyncio.wait_for(lease.write("p", b"x"), 10)
    assert caught.value.reason == "not_a_file"


async def test_the_size_is_checked_first(lease: Lease) -> None:
    """A file over what is wanted is too large, or the piece asked for comes (langchain-ai/deepagents#4408)."""
    assert (await lease.sh("truncate -s 30M f && printf end >> f")).ok
    with pytest.raises(SandboxFileError) as caught:
        await lease.read("f", limit=1000)
    assert caught.value.reason == "too_large"
    assert await lease.read("f", limit=10, offset=30 * 1024 * 1024) == b"end"
    assert await lease.read("f", limit=10, offset=0) == b"\0" * 10
    assert await lease.read("f", limit=10, offset=10**9) == b""


async def test_what_is_not_there_is_not_found(lease: Lease) -> None:
    """A typed error with path and reason."""
    await lease.write("f", b"x")
    for path in ("nothing", "f/below"):
        with pytest.raises(SandboxFileError) as caught:
            await lease.read(path)
        assert (caught.value.reason, caught.value.path) == ("not_found", path)


async def test_what_may_not_be_written_is_refused(lease: Lease) -> None:
    """The image is read-only; so is what belongs to others."""
    with pytest.raises(SandboxFileError) as caught:
        await lease.write("/usr/bin/ember-test", b"x")
    assert caught.value.reason == "file_refused"


@pytest.mark.parametrize("path", ["", "a\0b", "lone-\ud800"])
async def test_impossible_paths_are_misuse(lease: Lease, path: str) -> None:
    """Nothing is retried that can never work (aiming-lab/AutoResearchClaw#171)."""
    await lease.sh("true")
    with pytest.raises(InvalidInput) as caught:
        await lease.write(path, b"x")
    assert caught.value.field == "path"


async def test_a_file_over_the_limit_of_files_is_refused(lease: Lease) -> None:
    """A file call obeys the pod's own limit, and leaves nothing half-written."""
    assert (await lease.sh("ulimit -f")).stdout.strip() in (b"32768", b"65536")
    with pytest.raises(SandboxFileError) as caught:
        await lease.write("big", b"x" * (33 * 1024 * 1024))
    assert caught.value.reason == "too_large"
    assert (await lease.sh("ls -A")).stdout == b""


async def test_links_are_resolved_in_the_room(room_lease: Lease) -> None:
    """A link to an absolute path means the room's own file, and none leads out of it."""
    await room_lease.sh("echo in > /tmp/target; ln -s /tmp/target link; ln -s ../../../../../tmp/target up")
    assert await room_lease.read("link") == b"in\n"
    assert await room_lease.read("up") == b"in\n"
    await room_lease.write("link", b"new")
    assert (await room_lease.sh("cat /tmp/target; test -L link")).stdout == b"new"
    await room_lease.sh("ln -s /scratch/x out; ln -s /state/state.json state")
    for path in ("out", "state", "/scratch", "/emberd/main.py"):
        with pytest.raises(SandboxFileError):
            await room_lease.read(path)


async def test_bind_writes_files(lease: Lease) -> None:
    """Files of a bind are there for the next command."""
    files = [TextFile(path="src/run.sh", text="echo ü", mode=0o755), TextFile(path="data", text="1")]
    await lease.client.bind(lease.pod, lease.proof, {}, files)
    result = await lease.sh("stat -c '%a %s' src/run.sh data; sh src/run.sh")
    assert result.text == "755 7\n644 1\nü\n"
