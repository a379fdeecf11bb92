"""Files and folders of any size go in and out whole or not at all, in bounded memory."""

import asyncio
import hashlib
import os
import random
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fixtures.emberd import Lease, Starter, open_lease
from fixtures.pieces import archive, entry, fetch, of, of_folder, put, tree, zeros
from fixtures.processes import memory
from fixtures.waiting import wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.emberd.archive import Unpacker
from emberpool.pool.model.errors import InvalidInput, PodRefused, SandboxFileError


@pytest.mark.parametrize("size", [0, 1, 95 * 1024, 97 * 1024, 1024 * 1024, 30 * 1024 * 1024])
async def test_a_file_of_any_size_goes_both_ways(lease: Lease, size: int) -> None:
    """Streamed in pieces that are no argument of anything (truefoundry/trueforge#416), bytes as they are
    (labring/FastGPT#7433)."""
    data = random.Random(size).randbytes(size)
    assert (await put(lease, "new/data.bin", data, mode=0o640)).bytes == size
    told = (await lease.sh("sha256sum < new/data.bin; stat -c '%s %a' new/data.bin")).text.split()
    assert told == [hashlib.sha256(data).hexdigest(), "-", str(size), "640"]
    assert await fetch(lease, "new/data.bin") == data


def make_tree(root: Path) -> None:
    """Everything that a folder may hold."""
    (root / "sub/empty").mkdir(parents=True)
    (root / "sub/shut").mkdir()
    (root / "sub/shut/in").write_bytes(b"in")
    (root / "run.sh").write_bytes(b"#!/bin/sh\necho ran\n")
    (root / "run.sh").chmod(0o755)
    (root / "nothing").write_bytes(b"")
    for name in ("a b", "-rf", "--", "x\ny", "é", "it's", "$(id)", "*", "ü" * 100, "d" * 250):
        (root / name).write_bytes(name.encode())
    with open(os.fsencode(root) + b"/invalid-\xff\xfe", "wb") as file:
        file.write(b"bytes")
    deep = root / ("long/" * 60)
    deep.mkdir(parents=True)
    (deep / "leaf").write_bytes(b"leaf")
    (root / "to-file").symlink_to("sub/shut/in")
    (root / "to-folder").symlink_to("sub")
    (root / "sub/up").symlink_to("../run.sh")
    (root / "dangling").symlink_to("not/there")
    (root / "sub/shut").chmod(0o500)


async def test_a_folder_comes_back_as_it_went(lease: Lease, tmp_path: Path) -> None:
    """Modes, odd names, empty ones, and links as links, also one to nowhere (agentuity/sdk#400)."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    make_tree(source)
    pieces = of_folder(source)
    moved = await lease.client.transfers.upload(lease.pod, lease.proof, "tree", pieces, folder=True)
    assert (await lease.sh("tree/run.sh; cat tree/to-folder/shut/in; test -L tree/dangling")).stdout == b"ran\nin"
    unpacker = Unpacker(bytes(target), 1 << 30, 1 << 30)
    unpacker.feed(await fetch(lease, "tree"))
    assert unpacker.finish().entries == moved.entries == len(list(source.rglob("*")))
    unpacker.set_modes(bytes(target))
    assert list(tree(target)) == list(tree(source))


async def test_a_repository_stays_clean(lease: Lease, tmp_path: Path) -> None:
    """Links of a repository arrive as links, so version control sees no change (NVIDIA/OpenShell#1425)."""
    steps = (
        "git init -q; mkdir d; echo x > d/f; ln -s d/f link; ln -s d folder; ln -s gone dangling; git add -A;"
        "git -c user.name=a -c user.email=a@b commit -qm one"
    )
    process = await asyncio.create_subprocess_shell(steps, cwd=tmp_path)
    assert await process.wait() == 0
    await lease.client.transfers.upload(lease.pod, lease.proof, "repo", of_folder(tmp_path), folder=True)
    # Where the image has no git, what it would look at is compared instead.
    kinds = await lease.sh("cd repo; readlink link folder dangling; (git status --porcelain 2>/dev/null || true)")
    assert kinds.stdout == b"d/f\nd\ngone\n"


async def test_a_folder_goes_into_one_that_is_there(lease: Lease) -> None:
    """File by file: what is only there stays, what is in both is replaced, a link is replaced and not followed."""
    await lease.sh("mkdir -p t/sub; echo old > t/both; echo stays > t/sub/mine; echo safe > safe; ln -s ../safe t/link")
    await put(lease, "t", archive(("both", b"new"), ("sub/theirs", b"1"), ("link", b"2")), folder=True)
    told = await lease.sh("cat t/both t/sub/mine t/sub/theirs t/link safe; ls -A t; test ! -L t/link")
    assert told.ok and told.text.split() == ["newstays", "12safe", "both", "link", "sub"]
    with pytest.raises(SandboxFileError) as caught:
        await put(lease, "t", archive(("other", b"x"), ("sub", b"a file")), folder=True)
    assert caught.value.reason == "not_a_file" and "'sub'" in caught.value.detail
    assert (await lease.sh("ls -A t")).text.split() == ["both", "link", "sub"]
    await put(lease, ".", archive(("both", b"new")), folder=True)
    assert (await lease.sh("ls -A")).text.split() == ["both", "safe", "t"]


BAD: dict[str, list[tarfile.TarInfo | tuple[str, bytes]]] = {
    "up": [("../../x", b"")],
    "up-within": [("a/../../x", b"")],
    "absolute": [("/tmp/emberpool-escaped", b"")],
    "link-absolute": [entry("bad", tarfile.SYMTYPE, "/tmp")],
    "link-up": [entry("bad", tarfile.SYMTYPE, "../out")],
    "link-by-link": [
        entry("d/d", tarfile.DIRTYPE),
        entry("d/d/top", tarfile.SYMTYPE, "../.."),
        entry("bad", tarfile.SYMTYPE, "d/d/top/.."),
    ],
    "through-link": [entry("l", tarfile.SYMTYPE, "d"), ("l/bad", b"x")],
    "through-file": [("f", b"x"), ("f/bad", b"x")],
    "hard-link": [("a", b"x"), entry("bad", tarfile.LNKTYPE, "a")],
    "hard-link-out": [entry("bad", tarfile.LNKTYPE, "/etc/passwd")],
    "device": [entry("bad", tarfile.CHRTYPE)],
    "block-device": [entry("bad", tarfile.BLKTYPE)],
    "fifo": [entry("bad", tarfile.FIFOTYPE)],
    "sparse": [entry("bad", tarfile.GNUTYPE_SPARSE)],
    "huge": [entry("bad", tarfile.REGTYPE, size=10 * 1024**3)],
    "long-header": [entry("bad", b"L", size=2**33)],
}


@pytest.mark.parametrize("case", BAD)
async def test_archives_that_escape_are_refused_by_name(room_lease: Lease, case: str) -> None:
    """A crafted archive writes nothing, in its folder or elsewhere, and the error names the entry
    (kubernetes/kubernetes#76788)."""
    made = archive(("before", b"1"), *BAD[case])
    with pytest.raises(SandboxFileError) as caught:
        await put(room_lease, "t", made, folder=True)
    assert caught.value.reason in ("bad_archive", "too_large")
    last = BAD[case][-1]
    assert (last.name if isinstance(last, tarfile.TarInfo) else last[0]) in caught.value.detail
    assert (await room_lease.sh("ls -A; test ! -e /tmp/emberpool-escaped")).stdout == b""


@pytest.mark.parametrize("cut", [511, 700, 1500])
async def test_half_an_archive_leaves_nothing(room_lease: Lease, cut: int) -> None:
    """One that ends early is refused, though its stream was whole."""
    whole = archive(("a", b"x" * 600), ("b", b"y"))
    with pytest.raises(SandboxFileError) as caught:
        await put(room_lease, "t", whole[:cut], folder=True)
    assert caught.value.reason == "bad_archive"
    assert (await room_lease.sh("ls -A")).stdout == b""


async def test_a_file_over_the_limit_is_refused(lease: Lease) -> None:
    """By its announced size before a byte is sent, else as soon as it is over; nothing is left of it."""
    over = 33 * 1024 * 1024
    for size in (over, None):
        with pytest.raises(SandboxFileError) as caught:
            await lease.client.transfers.upload(lease.pod, lease.proof, "big", zeros(over), size=size)
        assert caught.value.reason == "too_large" and "file_mb" in caught.value.detail
    assert (await lease.sh("ls -A")).stdout == b""


async def test_a_sparse_file_costs_no_memory(emberds: Starter, emberd_client: EmberdClient) -> None:
    """One of 2 GiB, as bytes: too large, or the pieces asked for; as a stream its size is told before the first byte,
    and whoever does not want so much stops there. emberd does not grow (langchain-ai/deepagents#4408)."""
    limits = {"memory_mb": 200, "pids": 64, "open_files": 256, "file_mb": 4096, "time_limit_s": 60, "disk_mb": 4096}
    pod = emberds.start("plain", limits=limits)
    lease, size = open_lease(pod, emberd_client), 2 << 30
    assert (await lease.sh(f"truncate -s {size} f; printf end >> f")).ok
    before = memory(pod.process.pid, "VmHWM")
    with pytest.raises(SandboxFileError) as caught:
        await lease.read("f")
    assert caught.value.reason == "too_large"
    assert await lease.read("f", limit=10, offset=size) == b"end"
    async with emberd_client.transfers.download(lease.pod, lease.proof, "f") as incoming:
        assert incoming.size == size + 3 and not incoming.folder
        assert await anext(incoming.pieces)
    assert (await lease.sh("rm f && echo alive")).stdout == b"alive\n"
    assert memory(pod.process.pid, "VmHWM") - before < 16 << 20
    pod.stop()


async def test_odd_files_block_nothing(lease: Lease) -> None:
    """A folder with a FIFO, a socket and a link to a device is listed and fetched at once, and what has no bytes is
    told as left out (openai/openai-agents-python#4891)."""
    socket = "python3 -c \"import socket; socket.socket(1).bind('d/s')\""
    make = f"mkdir d; mkfifo d/p; ln -s /dev/zero d/z; echo x > d/f; {socket}"
    assert (await lease.sh(make)).ok
    async with asyncio.timeout(10):
        listed = await lease.client.transfers.list_files(lease.pod, lease.proof, "d")
        assert [(one.name, one.kind) for one in listed.entries] == [
            ("f", "file"),
            ("p", "fifo"),
            ("s", "other"),
            ("z", "link"),
        ]
        assert listed.entries[3].target == "/dev/zero" and not listed.more
        async with lease.client.transfers.download(lease.pod, lease.proof, "d") as incoming:
            assert [piece async for piece in incoming.pieces]
        assert incoming.moved is not None and incoming.moved.skipped_names == ("p", "s") and incoming.moved.entries == 2
        for path in ("d/p", "d/s", "d/z", "/dev/zero", "/proc/self/status"):
            with pytest.raises(SandboxFileError) as caught:
                await fetch(lease, path)
            assert caught.value.reason == "not_a_file"
        with pytest.raises(SandboxFileError) as caught:
            await put(lease, "d/p", b"x")
        assert caught.value.reason == "not_a_file"


NAMES = ["a b", "-rf", "--", "x\ny", "é", "it's", "$(id)", "*", "ü" * 100, "invalid-\udcff\udcfe", "%41?&=#+"]


async def test_odd_names_are_listed_and_removed(lease: Lease) -> None:
    """Upload, list, read and delete take every name that a kernel takes (agentuity/sdk#400)."""
    for name in NAMES:
        await put(lease, f"names/{name}", b"x")
    listed = await lease.client.transfers.list_files(lease.pod, lease.proof, "names")
    assert sorted(one.name for one in listed.entries) == sorted(NAMES)
    for name in NAMES:
        assert await fetch(lease, f"names/{name}") == b"x"
        await lease.client.transfers.remove(lease.pod, lease.proof, f"names/{name}")
    assert (await lease.sh("ls -A names")).stdout == b""


async def test_long_folders_are_listed_in_parts(room_lease: Lease) -> None:
    """At most 2,000 names at once, in order, the rest behind the last one."""
    assert (await room_lease.sh("mkdir d; cd d; seq -w 1 2500 | xargs touch")).ok
    first = await room_lease.client.transfers.list_files(room_lease.pod, room_lease.proof, "d")
    rest = await room_lease.client.transfers.list_files(room_lease.pod, room_lease.proof, "d", first.entries[-1].name)
    assert (len(first.entries), first.more, len(rest.entries), rest.more) == (2000, True, 500, False)
    assert rest.entries[0].name == "2001"


async def test_removal_follows_no_link(room_lease: Lease) -> None:
    """A link goes, not what it names; a full folder only if asked for; what is not there is not found."""
    await room_lease.sh("mkdir -p d/e keep; touch d/e/f keep/f; ln -s ../keep d/link; ln -s keep top")
    with pytest.raises(SandboxFileError) as caught:
        await room_lease.client.transfers.remove(room_lease.pod, room_lease.proof, "d")
    assert "recursive" in caught.value.detail
    await room_lease.client.transfers.remove(room_lease.pod, room_lease.proof, "d", recursive=True)
    await room_lease.client.transfers.remove(room_lease.pod, room_lease.proof, "top", recursive=True)
    assert (await room_lease.sh("find .")).text.split() == [".", "./keep", "./keep/f"]
    with pytest.raises(SandboxFileError) as caught:
        await room_lease.client.transfers.remove(room_lease.pod, room_lease.proof, "d")
    assert caught.value.reason == "not_found"


async def test_parents_of_an_upload_belong_to_the_job(lease: Lease) -> None:
    """The job may remove what was made for it (opensandbox-group/OpenSandbox#1064)."""
    await put(lease, "a/b/c.txt", b"x")
    await put(lease, "x/y", archive(("d/f", b"x")), folder=True)
    assert (await lease.sh("touch a/b/d x/y/d/g && rm -rf a x")).ok


async def test_a_few_bytes_arrive_every_time(lease: Lease) -> None:
    """Small uploads, many of them, each right when it is answered (fabric8io/kubernetes-client#6212)."""
    for start in range(0, 96, 16):
        puts = (put(lease, f"f{start + one}", b"six %2d" % one) for one in range(16))
        assert [one.bytes for one in await asyncio.gather(*puts)] == [6] * 16
    assert (await lease.sh("cat f* | wc -c")).text.split() == ["576"]


async def test_an_uploaded_program_runs_at_once(lease: Lease) -> None:
    """Nobody still holds it open for writing, also while others start (pantsbuild/pants#10507)."""

    async def one(number: int) -> bool:
        await put(lease, f"s{number}.sh", b"#!/bin/sh\necho $0\n", mode=0o755)
        return (await lease.run(f"./s{number}.sh")).ok

    for start in range(0, 48, 16):
        assert all(await asyncio.gather(*(one(start + offset) for offset in range(16))))


async def test_a_fence_ends_a_transfer(room_lease: Lease) -> None:
    """A lease that is over takes no more of an upload, and says so."""
    begun, fenced = asyncio.Event(), asyncio.Event()

    async def interrupted() -> AsyncIterator[bytes]:
        yield b"x"
        begun.set()
        await fenced.wait()
        async for piece in of(b"y" * 1000, 1):
            yield piece

    upload = room_lease.client.transfers.upload(room_lease.pod, room_lease.proof, "f", interrupted())
    uploading = asyncio.ensure_future(upload)
    await begun.wait()
    room_lease.emberd.epoch += 1
    await room_lease.client.fence(room_lease.pod, room_lease.emberd.epoch)
    fenced.set()
    with pytest.raises(PodRefused):
        await uploading


async def test_a_source_that_fails_is_the_error(lease: Lease) -> None:
    """Not the connection that breaks because of it; nothing of it is left, and the pod serves on."""

    async def failing() -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        raise InvalidInput("source", "is gone")

    with pytest.raises(InvalidInput, match="is gone"):
        await lease.client.transfers.upload(lease.pod, lease.proof, "f", failing())

    async def clean() -> bool:
        return (await lease.sh("ls -A")).stdout == b""

    await wait_until(clean)
