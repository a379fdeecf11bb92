"""A room over an image's folder may write anywhere in it, and none of it stays."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from fixtures.emberd import UNPRIVILEGED, Starter, configuration, open_lease, reset

from emberpool.pool.client.emberd_client import EmberdClient


def small_image(folder: Path) -> None:
    """A shell with its libraries and nothing else."""
    told = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout
    for file in ["/bin/sh", *(word for word in told.split() if word.startswith("/"))]:
        place = folder / file.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
    (folder / "etc").mkdir()
    (folder / "etc" / "name").write_text("image\n")
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    if os.geteuid() == 0:  # the pod's user must own what its jobs may change
        for path in (folder / "etc", folder / "etc" / "name"):
            os.chown(path, UNPRIVILEGED, UNPRIVILEGED)


@pytest.mark.skipif(shutil.which("ldd") is None, reason="needs ldd to make a small image")
async def test_what_is_written_to_an_image_is_gone_after_the_reset(
    emberds: Starter, emberd_client: EmberdClient
) -> None:
    """Changed, new and deleted files of the image, under names with a comma and a colon too."""
    folder = emberds.folder()
    small_image(folder / "image")
    room = configuration("namespaces", "x", folder)["room"] | {"root": {"overlay": "/image"}}
    emberd = emberds.start("namespaces", folder, room=room)
    lease = open_lease(emberd, emberd_client)
    text = "read x < /etc/name; echo $x; echo changed > /etc/name; echo new > '/etc/a,b:c'"
    text += "; echo x > f; echo x > /tmp/f; echo x > $HOME/f; read y < /etc/name; echo $y"
    seen = await lease.sh(text)
    assert not seen.stderr, seen
    assert seen.stdout == b"image\nchanged\n"
    assert await lease.read("/etc/a,b:c") == b"new\n"
    await reset(lease)
    following = open_lease(emberd, emberd_client)
    assert (
        await following.sh("read x < /etc/name; echo $x; echo /etc/* /work/*")
    ).stdout == b"image\n/etc/name /work/*\n"
    assert (folder / "image" / "etc" / "name").read_text() == "image\n"
    emberd.stop()
