"""A room over an image's folder may write anywhere in it, and none of it stays."""

import shutil

import pytest
from fixtures.emberd import Starter, configuration, open_lease, reset
from fixtures.images import small_image

from emberpool.pool.client.emberd_client import EmberdClient


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
