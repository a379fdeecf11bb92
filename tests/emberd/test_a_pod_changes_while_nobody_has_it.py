"""Promotion and image swap, as emberd itself judges them."""

import os
from pathlib import Path
from typing import Any

import pytest
from fixtures.emberd import ROOT_BINDS, Starter, configuration, open_lease, reset

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.errors import InvalidInput, PodRefused


def room_with_images() -> dict[str, Any]:
    """The usual room, and an image that has /sbin at a second place and an environment of its own."""
    room: dict[str, Any] = configuration("namespaces", "pod", Path("/unused"))["room"]
    other = {"root": [*ROOT_BINDS, [os.path.realpath("/usr/lib"), "/only/here"]], "env": {"FLAVOUR": "other"}}
    return {**room, "image": "first", "images": {"first": {"root": ROOT_BINDS, "env": {}}, "other": other}}


async def test_a_standby_pod_opens_for_nobody(emberds: Starter, emberd_client: EmberdClient) -> None:
    """Every call of a lease is refused by word and changes nothing; after the promotion the same lease opens it."""
    emberd = emberds.start("plain", standby={"memory_mb": 16})
    lease = open_lease(emberd, emberd_client)
    with pytest.raises(PodRefused, match="standing_by"):
        await lease.sh("true")
    state = await emberd_client.state(emberd.address.name, emberd.address.endpoint)
    assert (state.standby, state.state, state.epoch) == (True, "clean", 0)
    await emberd_client.promote(emberd.address)
    await emberd_client.promote(emberd.address)
    assert (await lease.sh("true")).ok
    await emberd_client.promote(emberd.address)
    assert emberd.stop() == 0


async def test_a_swap_is_kept_over_resets(emberds: Starter, emberd_client: EmberdClient) -> None:
    """Root and environment of the new image, in every room until the next swap; the tag stays."""
    emberd = emberds.start("namespaces", room=room_with_images())
    lease = open_lease(emberd, emberd_client)
    assert (await lease.sh("ls /only/here; echo ${FLAVOUR-none}")).text == "none\n"
    await reset(lease)
    emberd.epoch += 1
    await emberd_client.swap_image(emberd.address, emberd.epoch, "other")
    for _ in range(2):
        lease = open_lease(emberd, emberd_client)
        assert (await lease.sh("test -d /only/here && echo $FLAVOUR")).text == "other\n"
        await reset(lease)
    state = await emberd_client.state(emberd.address.name, emberd.address.endpoint)
    assert (state.image, state.tag) == ("other", lease.proof.tag)
    with pytest.raises(PodRefused, match="other_tag"):
        await open_lease(emberd, emberd_client, tag="b" * 32).sh("true")
    emberd.stop()


async def test_a_swap_that_cannot_be_changes_nothing(emberds: Starter, emberd_client: EmberdClient) -> None:
    """An unknown image, none at all, an image without its folder: each by its word, and jobs run as before."""
    room = room_with_images()
    room["images"]["lost"] = {"root": [["/no/such/folder", "/x"]], "env": {}}
    emberd = emberds.start("namespaces", room=room)
    for image, word in (("unknown", "no_image"), ("lost", "no_room")):
        with pytest.raises(PodRefused, match=word):
            await emberd_client.swap_image(emberd.address, 1, image)
    with pytest.raises(InvalidInput, match="image"):
        await emberd_client.swap_image(emberd.address, 1, "")
    lease = open_lease(emberd, emberd_client)
    assert (await lease.sh("echo ${FLAVOUR-none}")).text == "none\n"
    await reset(lease)
    emberd.stop()
