"""What a lease has changed is saved and comes back in another, and no archive does more than a job of that room may."""

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from fixtures.emberd import Lease, Starter, configuration, open_lease, reset
from fixtures.images import small_image

from emberpool.pool.client.checkpoints import restore_checkpoint, save_checkpoint
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.errors import InvalidInput, SandboxFileError
from emberpool.pool.model.files import Moved

MAKE = """
echo kept > f; chmod 640 f; touch -d @1000000000 f; ln f twin; ln -s /outside/of/all link; ln -s f near
mkdir -p deep/closed; echo in > deep/closed/g; chmod 0 deep/closed; echo h > "$HOME/.rc"; echo t > "$TMPDIR/t"
chmod 1777 deep; printf x > "odd $(printf '\\377\\n')name"; echo secret > shut; chmod 0 shut; mkfifo pipe
python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('sock')"
"""
LOOK = """
cat f "$HOME/.rc" "$TMPDIR/t"; stat -c '%a %Y %h' f; stat -c %a deep deep/closed shut
readlink link near; chmod 700 deep/closed shut; cat deep/closed/g shut; ls -A | sort | od -c | head -20
"""


async def saved(lease: Lease, image: str = "") -> tuple[bytes, Moved]:
    """All of a checkpoint."""
    async with save_checkpoint(lease.client.transfers, lease.pod, lease.proof, image) as incoming:
        data = b"".join([piece async for piece in incoming.pieces])
    assert incoming.moved is not None
    return data, incoming.moved


async def restored(lease: Lease, data: bytes, image: str = "") -> Moved:
    """Put it back."""

    async def pieces() -> AsyncGenerator[bytes]:
        for start in range(0, len(data), 100_000):
            yield data[start : start + 100_000]

    return await restore_checkpoint(lease.client.transfers, lease.pod, lease.proof, image, pieces())


async def test_a_later_lease_has_what_was_saved(lease: Lease) -> None:
    """Files, modes, times, links of both kinds, closed folders, odd names; twice over, and named by the same bytes."""
    assert (await lease.sh(MAKE)).ok
    data, moved = await saved(lease)
    assert moved.skipped == 2 and sorted(moved.skipped_names) == ["work/pipe", "work/sock"]
    assert (await lease.sh("stat -c %a shut deep/closed")).stdout == b"0\n0\n", "saving changed a mode"
    await lease.sh("rm pipe sock")
    assert (await saved(lease))[0] == data, "the same state is the same bytes"
    was = await lease.sh(LOOK)
    assert was.ok, was.error_text
    await reset(lease)
    following = open_lease(lease.emberd, lease.client)
    await restored(following, data)
    assert (await restored(following, data)).entries == moved.entries, "a repeated restore changes nothing"
    now = await following.sh(LOOK)
    assert now.stdout == was.stdout and now.ok
    await reset(following)


def tar(*members: tuple[str, bytes | None, str], **fields: object) -> bytes:
    """An archive of (name, type or None for a file, link's target or text)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, kind, text in members:
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            for field, value in fields.items():
                setattr(info, field, value)
            if kind is None:
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
            else:
                info.type, info.linkname = kind, text
                archive.addfile(info)
    return out.getvalue()


DEVICE = tar(("work/dev", tarfile.CHRTYPE, ""), devmajor=1, devminor=3)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(tar(("work/../../x", None, "x")), id="dots"),
        pytest.param(tar(("/work/x", None, "x")), id="absolute"),
        pytest.param(tar(("work/l", tarfile.SYMTYPE, "/tmp"), ("work/l/x", None, "x")), id="below-link"),
        pytest.param(tar(("work/l", tarfile.LNKTYPE, "etc/passwd")), id="hard-link-out"),
        pytest.param(tar(("proc/self/oom_adj", None, "x")), id="proc"),
        pytest.param(tar(("layers/x", None, "x")), id="layers"),
        pytest.param(DEVICE, id="device"),
        pytest.param(tar(("work/p", tarfile.FIFOTYPE, "")), id="fifo"),
        pytest.param(tar(("etc/x", None, "x")), id="elsewhere"),
        pytest.param(b"no archive at all" * 100, id="noise"),
    ],
)
async def test_a_hostile_archive_is_refused(lease: Lease, data: bytes) -> None:
    """Whatever a checkpoint of these rooms cannot hold is refused by name; the lease goes on."""
    with pytest.raises(SandboxFileError, match="bad_archive|not_found"):
        await restored(lease, data)
    assert (await lease.sh("echo on")).ok


async def test_a_link_that_a_job_left_leads_nowhere(lease: Lease, tmp_path: Path) -> None:
    """A folder that became a link to a place outside is saved as a link; nothing of that place is in the archive."""
    assert (await lease.sh("mkdir d; ln -s /etc d/e; ln -s / root; ln -s /proc/1 p")).ok
    data, _ = await saved(lease)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = {member.name for member in archive if member.name.startswith("work/")}
    assert names == {"work/d", "work/d/e", "work/root", "work/p"}


async def test_a_file_that_changes_is_no_checkpoint(lease: Lease) -> None:
    """What is written meanwhile is refused and named, rather than saved half."""
    await lease.sh("(while :; do echo x >> log; done) & dd if=/dev/zero of=big bs=1M count=8 2>/dev/null")
    with pytest.raises(SandboxFileError, match="log.* changed while it was saved"):
        for _ in range(50):
            await saved(lease)


async def test_another_image_is_refused(emberds: Starter, emberd_client: EmberdClient) -> None:
    """emberd itself looks which image its jobs see."""
    folder = emberds.folder()
    room = configuration("plain", "x", folder)["room"] | {"image": "one"}
    emberd = emberds.start("plain", folder, room=room)
    lease = open_lease(emberd, emberd_client)
    data, _ = await saved(lease, "one")
    with pytest.raises(InvalidInput, match="image 'two'.*'one'"):
        await restored(lease, data, "two")
    emberd.stop()


def image_with_tools(folder: Path) -> None:
    """The small image, and folders that a job may change and delete."""
    small_image(folder)
    for name in ("lib1/gone/deep", "lib1/hidden", "lib1/kept"):
        (folder / name).mkdir(parents=True)
        (folder / name / "of-image").write_text("image\n")
    for tool in ("rm", "ls", "mkdir", "cat", "ln", "mv"):
        copy_with_libraries(Path(shutil.which(tool) or ""), folder)
    if os.geteuid() == 0:
        shell_owner = os.stat(folder / "etc").st_uid
        for place, folders, files in os.walk(folder / "lib1"):
            for name in (".", *folders, *files):
                os.chown(os.path.join(place, name), shell_owner, shell_owner)


def copy_with_libraries(program: Path, folder: Path) -> None:
    """A program and what it is linked with."""
    told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    place = folder / "bin" / program.name
    shutil.copy(program, place)
    for file in (word for word in told.split() if word.startswith("/")):
        (folder / file.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / file.lstrip("/"))


CHANGE = """
echo changed > /etc/name; rm -r /lib1/gone; rm -r /lib1/hidden; mkdir /lib1/hidden; echo new > /lib1/hidden/new
echo more > /lib1/kept/more; rm -r /lib1/kept/of-image; echo w > /work/w; ln -s w /work/l
"""
SHOW = "cat /etc/name; ls -R /lib1; cat /lib1/hidden/new /lib1/kept/more /work/l; ls -A /work /tmp"


@pytest.mark.skipif(shutil.which("ldd") is None, reason="needs ldd to make a small image")
async def test_an_images_changes_come_back(emberds: Starter, emberd_client: EmberdClient) -> None:
    """Over an image: what was changed, deleted, and hidden by a new folder; in another room, and saved again."""
    folder = emberds.folder()
    image_with_tools(folder / "image")
    room = configuration("namespaces", "x", folder)["room"] | {"root": {"overlay": "/image"}, "env": {"PATH": "/bin"}}
    emberd = emberds.start("namespaces", folder, room=room)
    lease = open_lease(emberd, emberd_client)
    made = await lease.sh(CHANGE)
    assert made.ok, made.error_text
    was = await lease.sh(SHOW)
    data, moved = await saved(lease)
    assert not moved.skipped
    await reset(lease)
    following = open_lease(emberd, emberd_client)
    assert b"gone" in (await following.sh(SHOW)).stdout, "the reset brings the image's own back"
    await restored(following, data)
    now = await following.sh(SHOW)
    assert now.stdout == was.stdout, now.error_text
    assert b"gone" not in now.stdout and b"/lib1/hidden:\nnew\n" in now.stdout
    await restored(following, (await saved(following))[0])
    assert (await following.sh(SHOW)).stdout == was.stdout
    assert (folder / "image/lib1/gone/deep/of-image").exists()
    await reset(following)
    emberd.stop()
