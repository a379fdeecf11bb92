"""Pools whose pods are records only, made in the way in which an index comes to be: from the accounts of its pods."""

from load_jobs import LINE_TAG

from emberpool.pool.index.contract import RebuiltPod
from emberpool.pool.index.redis_index import RedisIndex
from emberpool.pool.model.ids import BootId, PodName, PodUid


async def fill(index: RedisIndex, size: int) -> None:
    """So many warm pods that nobody has used."""
    await build(index, [account(f"pod-{number:06d}") for number in range(size)])


async def build(index: RedisIndex, pods: list[RebuiltPod]) -> None:
    """These pods, and a ceiling that they reach.

    Raises:
        RuntimeError: there is an index of that name.
    """
    if not await index.try_rebuild_lock("bench", 60) or not await index.rebuild("bench", pods):
        raise RuntimeError("the index could not be built")
    await index.set_targets(1, len(pods), 0)


def account(name: str, lease: str = "") -> RebuiltPod:
    """What a pod says of itself; with a lease, that it is held."""
    return RebuiltPod(
        name=PodName(name),
        uid=PodUid(f"uid-{name}"),
        boot_id=BootId(f"boot-{name}"),
        endpoint=f"unix:/nowhere/{name}",
        image="base",
        state="held" if lease else "clean",
        tag=LINE_TAG if lease else "",
        epoch=1 if lease else 0,
        lease=lease,
        hold_s=3600,
    )
