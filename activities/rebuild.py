"""Rebuilding a lost index from the pods' own accounts: any worker that finds it lost does this, one at a time."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from emberpool.activities.metrics import Stopwatch
from emberpool.pool.index.contract import RebuiltPod
from emberpool.pool.model.errors import EmberpoolError, PoolUnavailable
from emberpool.pool.model.ids import BootId
from emberpool.pool.model.pod import Phase, PodFacts

if TYPE_CHECKING:
    from emberpool.activities.pools import Pool

log = logging.getLogger(__name__)

T = TypeVar("T")

LOCK_S = 30.0
"""A rebuilder that dies gives way after this; one that lives says so three times as often."""
AT_ONCE = 100
"""Pods asked at the same time: a pool of 5,000 is asked in seconds, and in two minutes if none of them answers."""
SILENT_S = 2.0
"""A pod that does not answer for this long is deleted: nobody can say whom it belongs to."""
DELETE_S = 10.0
"""How long all deletions together are waited for. Those that are not over by then go on when the index is built."""
AGAIN_S = 1.0
"""Pause after a rebuild that met trouble, before anybody begins the next."""
GIVE_UP_S = 2.0
"""What giving up the lock may take; without an answer it runs out by itself."""


class Rebuilder:
    """The rebuild that this worker has under way for one pool.

    It outlives the call that found the index lost: with many pods it takes longer than a call may.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def begin(self, pool: "Pool") -> None:
        """Begin one, unless it is under way; returns at once. Whoever needs the index asks it again."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._quietly(pool), name=f"emberpool-rebuild-{pool.profile.name}")

    async def _quietly(self, pool: "Pool") -> None:
        try:
            await rebuild(pool)
        except EmberpoolError as error:
            log.warning("rebuilding the index of %s: %s", pool.profile.name, error)

    async def aclose(self) -> None:
        """Break it off; another worker may begin at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})


class Accounts(NamedTuple):
    """What the pods said."""

    kept: list[RebuiltPod]
    listed: int
    """Pods that the provider had."""
    silent: int
    """Those of them that said nothing: deleted, or kept as dirty until they are."""


async def rebuild(pool: "Pool") -> bool:
    """Ask every pod for its state and write the index anew; silent pods are deleted. False if another worker does it.

    Raises:
        PoolUnavailable: the index or the provider cannot be reached.
    """
    who, watch = f"{pool.line.waker}/{uuid.uuid4().hex}", Stopwatch()
    try:
        if not await pool.index.try_rebuild_lock(who, LOCK_S):
            return False
        told = await _while_kept(pool, who, _accounts(pool))
        if told is not None and await pool.index.rebuild(who, told.kept):
            _done(pool, told, watch.seconds)
            return True
    except EmberpoolError:
        pool.metrics.rebuilt("failed", watch.seconds)
        await _give_way(pool, who, AGAIN_S)
        raise
    except asyncio.CancelledError:
        await _give_way(pool, who, 0.0)
        raise
    log.warning("pool %s: the rebuilder's lock was lost", pool.profile.name)
    pool.metrics.rebuilt("lost", watch.seconds)
    await _give_way(pool, who, AGAIN_S)
    return False


def _done(pool: "Pool", told: Accounts, seconds: float) -> None:
    name, heard = pool.profile.name, told.listed - told.silent
    log.warning("pool %s: index rebuilt from %d of %d pods in %.1f s", name, heard, told.listed, seconds)
    pool.metrics.rebuilt("done", seconds, heard=heard, silent=told.silent)


async def _give_way(pool: "Pool", who: str, after_s: float) -> None:
    """Leave the lock, if it is still ours, to whoever asks for it after so many seconds."""
    try:
        async with asyncio.timeout(GIVE_UP_S):
            await pool.index.keep_rebuild_lock(who, after_s)
    except (EmberpoolError, TimeoutError) as error:
        log.warning("pool %s: the rebuilder's lock runs out by itself: %s", pool.profile.name, error)


async def _while_kept(pool: "Pool", who: str, work: Coroutine[Any, Any, T]) -> T | None:
    """Do it as long as the lock is ours. None as soon as it is not: what the pods say is another's business then."""
    working, keeping = asyncio.create_task(work), asyncio.create_task(_keep(pool, who))
    try:
        await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        keeping.cancel()
        await asyncio.gather(working, keeping, return_exceptions=True)


async def _keep(pool: "Pool", who: str) -> None:
    """Renew the lock until it is lost, or will be lost before we can ask again."""
    loop, pause_s = asyncio.get_running_loop(), LOCK_S / 3
    till = loop.time() + LOCK_S
    while loop.time() + pause_s < till:
        await asyncio.sleep(pause_s)
        asked = loop.time()
        try:
            async with asyncio.timeout(pause_s):
                if not await pool.index.keep_rebuild_lock(who, LOCK_S):
                    return
            till = asked + LOCK_S
        except (PoolUnavailable, TimeoutError) as error:
            log.warning("pool %s: the rebuilder's lock is not renewed: %s", pool.profile.name, error)


async def _accounts(pool: "Pool") -> Accounts:
    """Ask every pod, and have the silent ones deleted.

    Raises:
        PoolUnavailable: the provider cannot be reached.
    """
    kept, silent = list[RebuiltPod](), list[PodFacts]()

    async def ask(facts: PodFacts) -> None:
        account = await _account(pool, facts)
        if account is None:
            silent.append(facts)
        else:
            kept.append(account)

    listed = await pool.provider.list()
    await _each(listed, ask)
    return Accounts(kept + await _delete(pool, silent), len(listed), len(silent))


async def _each(pods: Sequence[PodFacts], act: Callable[[PodFacts], Awaitable[None]]) -> None:
    """Some at a time, and no task for those whose turn has not come."""
    left = iter(pods)

    async def go_on() -> None:
        for one in left:
            await act(one)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(AT_ONCE, len(pods))):
            group.create_task(go_on())


async def _account(pool: "Pool", facts: PodFacts) -> RebuiltPod | None:
    """What a pod says of itself, or None if it is silent."""
    if facts.phase is not Phase.READY:
        return None
    try:
        async with asyncio.timeout(SILENT_S):  # not wait_for: see PodWatch.started
            state = await pool.client.state(facts.name, facts.endpoint)
    except (EmberpoolError, TimeoutError) as error:
        log.warning("pod %s is silent and goes: %s", facts.name, error)
        return None
    return RebuiltPod(
        name=facts.name,
        uid=facts.uid,
        boot_id=state.boot_id,
        endpoint=facts.endpoint,
        image=state.image or facts.image or pool.profile.base_image,
        state=state.state,
        tag=state.tag,
        epoch=state.epoch,
        lease=state.lease,
        hold_s=state.hold_s,
        standby=state.standby,
    )


async def _delete(pool: "Pool", silent: list[PodFacts]) -> list[RebuiltPod]:
    """Delete them. Those that do not go in time, as on a lost node, are dirty and keep their place: tending goes on."""
    gone = set[str]()

    async def delete(facts: PodFacts) -> None:
        try:
            await pool.provider.delete(facts.name)
            gone.add(facts.name)
        except EmberpoolError as error:
            log.warning("silent pod %s does not go: %s", facts.name, error)

    try:
        async with asyncio.timeout(DELETE_S):
            await _each(silent, delete)
    except TimeoutError:
        log.warning("pool %s: %d silent pods are still to go", pool.profile.name, len(silent) - len(gone))
    return [_unknown(pool, facts) for facts in silent if facts.name not in gone]


def _unknown(pool: "Pool", facts: PodFacts) -> RebuiltPod:
    """A pod of which nobody knows whose it was: its reset is refused for its epoch, or not proved, so that it goes."""
    return RebuiltPod(
        name=facts.name,
        uid=facts.uid,
        boot_id=BootId(""),
        endpoint=facts.endpoint,
        image=facts.image or pool.profile.base_image,
        state="dirty",
        tag="",
        epoch=0,
        lease="",
        hold_s=0.0,
    )
