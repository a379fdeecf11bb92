"""The supervisor's pods: created, watched, deleted. One event loop, no locks: a change happens between two awaits."""

import asyncio
import logging
import math
import re
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.signing import pod_key
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.errors import EmberpoolError, InvalidInput, PodRefused, PodUnreachable, PoolUnavailable
from emberpool.pool.model.ids import PodUid
from emberpool.pool.model.pod import Phase, PodFacts
from emberpool.pool.model.profile import Isolation, Network
from emberpool.pool.model.recycle import RecycleTier
from emberpool.pool.providers.local.bubblewrap import launcher_argv
from emberpool.pool.providers.local.data_folder import DataFolder, make_folder, make_folders
from emberpool.pool.providers.local.gang_switches import GangSwitches
from emberpool.pool.providers.local.launcher import LaunchSpec
from emberpool.pool.providers.local.oom import OomWatch
from emberpool.pool.providers.local.pod_log import PodLog, prune_logs
from emberpool.pool.providers.local.pod_process import Ending, PodProcess
from emberpool.pool.providers.local.pod_spec import (
    Host,
    PodChoice,
    PodFolders,
    emberd_config,
    has_switch,
    image_root,
    launch_spec,
    swappable,
    usable_image,
)
from emberpool.pool.providers.local.process_table import end_uid
from emberpool.pool.providers.local.remove_folder import remove_folder
from emberpool.pool.providers.local.uids import UidPool
from emberpool.pool.providers.local.wire import CreatePod, PodList, StepTaken, SupervisedPod, SwapPod

log = logging.getLogger(__name__)

POD_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
GOING_LIMIT_S = 20.0
"""Seconds for a killed pod's processes to be gone; more means that the kernel holds one, as in a dead network mount."""

RESTART_LIMIT_S = 20.0
"""Seconds for a pod to end and to serve again; what waits for it has 25, for the reset with it."""
RESTART_PAUSE_S = 600.0
"""Seconds between two restarts of a pod. One that needs more is better replaced; a kubelet holds it the same way."""


@dataclass
class _Pod:
    facts: PodFacts
    pool: str
    host_uid: int
    folders: PodFolders
    process: PodProcess
    told_image: str
    """Name of the image that its emberd is started with, whatever it was swapped to since."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    deletion: asyncio.Task[None] | None = None
    goes_anew: bool = False
    """Whether its emberd was told to end, and its container is to be started again."""
    anew_at: float = -math.inf
    """When that was last, by the monotonic clock."""

    def view(self) -> SupervisedPod:
        pid = 0 if self.ended.is_set() else self.process.pid
        return SupervisedPod(facts=self.facts, pool=self.pool, pid=pid, host_uid=self.host_uid)


class Pods:
    """Every pod of this supervisor, by name."""

    def __init__(self, host: Host, data: DataFolder, pool_key: bytes, uids: UidPool | None) -> None:
        """`uids`: where pods' host uids come from; None if they run under our own."""
        self._host, self._data, self._key, self._uids = host, data, pool_key, uids
        self._pods: dict[str, _Pod] = {}
        self._client = EmberdClient(pool_key)
        self._group = asyncio.TaskGroup()
        self._oom = OomWatch()
        self._switches = GangSwitches()
        self._changed = asyncio.Event()
        self._closing = False
        self.boot = secrets.token_hex(8)
        self.version = 1

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Own the pods' tasks; at the end every pod is deleted."""
        async with self._group:
            samples = self._group.create_task(self._oom.run())
            try:
                yield
            finally:
                await self._close()
                samples.cancel()
                await self._client.aclose()

    def __len__(self) -> int:
        return len(self._pods)

    def create(self, wish: CreatePod) -> SupervisedPod:
        """Begin a pod, or find the one of this name. Returns while it is still pending.

        Raises:
            InvalidInput: name, image or isolation cannot be had.
            PoolUnavailable: a pod of this name is being deleted, no uid is free, or we are closing.
        """
        if self._closing:
            raise PoolUnavailable("the supervisor is closing")
        known = self._pods.get(wish.name)
        if known is not None:
            if known.deletion is not None:
                raise PoolUnavailable(f"pod {wish.name} is being deleted")
            return known.view()
        if not POD_NAME.fullmatch(wish.name):
            raise InvalidInput("name", f"{wish.name!r} is no DNS label of 1-63 lower-case letters, digits and dashes")
        root = image_root(wish.profile, wish.image)
        if not usable_image(root):
            _refuse_image(root)
        pod = self._begin(wish, root)
        self._pods[wish.name] = pod
        self._bump()
        return pod.view()

    def get(self, name: str) -> SupervisedPod | None:
        pod = self._pods.get(name)
        return pod.view() if pod else None

    def list(self, pool: str) -> PodList:
        """The pods of one pool now."""
        pods = tuple(pod.view() for pod in self._pods.values() if pod.pool == pool)
        return PodList(boot=self.boot, version=self.version, pods=pods)

    async def changed(self) -> None:
        """Wait for the next change of any pod, or for the close."""
        await self._changed.wait()

    def stop_waits(self) -> None:
        """Refuse new pods and answer all who wait."""
        self._closing = True
        self._changed.set()

    @property
    def closing(self) -> bool:
        return self._closing

    async def promote(self, name: str) -> StepTaken:
        """Have a standby pod take its full share.

        Raises:
            PoolUnavailable: its emberd does not answer; ask again.
        """
        return await self._step(name, self._client.promote)

    async def swap(self, name: str, wish: SwapPod) -> StepTaken:
        """Have a pod that nobody holds take another image. Raises as `promote`."""

        async def swap(address: PodAddress) -> None:
            await self._client.swap_image(address, wish.epoch, wish.image)
            pod = self._pods.get(name)
            if pod is not None and pod.facts.uid == address.uid:
                pod.facts = pod.facts.model_copy(update={"image": wish.image})
                self._bump()

        return await self._step(name, swap)

    async def restart(self, name: str, epoch: int) -> StepTaken:
        """Start a pod's container anew: fenced at `epoch`, which its emberd looks at. Raises as `promote`."""
        pod = self._pods.get(name)
        if pod is None:
            return StepTaken(problem=f"pod {name} is gone")
        if pod.facts.image != pod.told_image:
            return StepTaken(problem=f"its emberd would have image {pod.told_image!r} again")
        if time.monotonic() < pod.anew_at + RESTART_PAUSE_S:
            return StepTaken(problem=f"it was started anew within the last {RESTART_PAUSE_S:.0f} s")
        before = pod.process

        async def restart(address: PodAddress) -> None:
            pod.goes_anew, pod.anew_at = True, time.monotonic()
            try:
                await self._client.restart(address, epoch)
            except EmberpoolError:
                pod.goes_anew = False
                raise

        taken = await self._step(name, restart)
        if taken.problem:
            return taken
        try:
            async with asyncio.timeout(RESTART_LIMIT_S):
                while not pod.ended.is_set() and (pod.process is before or pod.facts.phase is Phase.PENDING):
                    await self.changed()
        except TimeoutError:
            return StepTaken(problem=f"it does not serve again within {RESTART_LIMIT_S:.0f} s")
        return StepTaken(problem=pod.facts.reason, took_ms=round((time.monotonic() - pod.anew_at) * 1000, 1))

    async def _step(self, name: str, take: Callable[[PodAddress], Awaitable[None]]) -> StepTaken:
        began = time.monotonic()
        pod = self._pods.get(name)
        if pod is None or pod.facts.phase is not Phase.READY:
            return StepTaken(problem=f"pod {name} is {pod.facts.phase if pod else 'gone'}")
        facts = pod.facts
        try:
            state = await self._client.state(facts.name, facts.endpoint)
            await take(PodAddress(name=facts.name, uid=facts.uid, boot_id=state.boot_id, endpoint=facts.endpoint))
        except PodRefused as error:
            return StepTaken(problem=str(error))
        except PodUnreachable as error:
            raise PoolUnavailable(f"pod {name} does not answer: {error.detail}") from error
        return StepTaken(took_ms=round((time.monotonic() - began) * 1000, 1))

    async def delete(self, name: str) -> None:
        """End a pod, and return when no process and no folder of it is left. Silent if there is none.

        Raises:
            PoolUnavailable: a process of it does not go, or its folder cannot be deleted; ask again.
        """
        pod = self._pods.get(name)
        if pod is None:
            return
        if pod.deletion is None:
            pod.deletion = self._group.create_task(self._delete(pod))
        # Shielded: a caller that gives up must not leave half a pod.
        await asyncio.shield(pod.deletion)
        if self._pods.get(name) is pod:
            raise PoolUnavailable(f"pod {name} is not gone yet: {pod.facts.reason}")

    def _begin(self, wish: CreatePod, root: str) -> _Pod:
        uid = secrets.token_hex(8)
        folders = self._data.of(wish.name, uid)
        host_uid = self._uids.take() if self._uids else -1
        try:
            choice = _choice(wish, root)
            spec = launch_spec(self._host, wish.profile, wish.name, folders, host_uid, choice)
            key = pod_key(self._key, wish.name)
            config = emberd_config(self._host, wish.profile, wish.name, uid, key, folders, choice)
            make_folders(folders, host_uid)
            if has_switch(wish.profile):
                self._switches.listen(folders.switch, wish.pool, host_uid)
            process = PodProcess(PodLog(self._data.logs, wish.name), self._oom, not spec["bwrap"])
        except BaseException as error:
            if self._uids:
                self._uids.free(host_uid)
            self._switches.forget(folders.switch)
            remove_folder(folders.home)
            remove_folder(folders.run)
            if isinstance(error, OSError):
                raise PoolUnavailable(f"pod {wish.name}: its folders cannot be made: {error}") from error
            raise
        if wish.profile.isolation is Isolation.PLAIN:
            _warn_plain(wish, host_uid)
        facts = PodFacts(
            name=wish.name,
            uid=PodUid(uid),
            phase=Phase.PENDING,
            endpoint=f"unix:{folders.socket}",
            image=wish.image or wish.profile.base_image,
            tier=RecycleTier.SWEEP if wish.profile.isolation is Isolation.PLAIN else RecycleTier.ROOM,
        )
        pod = _Pod(facts, wish.pool, host_uid, folders, process, facts.image)
        self._group.create_task(self._live(pod, spec, config))
        return pod

    async def _live(self, pod: _Pod, spec: LaunchSpec, config: bytes) -> None:
        while True:
            try:
                ending = await pod.process.run(launcher_argv(spec), config, lambda: self._become(pod, Phase.READY))
                if not (pod.goes_anew and await self._wiped(pod)):
                    break
                # Nothing is waited for from here on, so that a deletion finds either this process or the one before.
                pod.goes_anew = False
                make_folder(pod.folders.scratch, pod.host_uid)
                pod.process = PodProcess(PodLog(self._data.logs, pod.facts.name), self._oom, not spec["bwrap"])
                self._become(pod, Phase.PENDING)
            except Exception as error:  # One pod's trouble must not end the supervisor, and with it all others.
                log.exception("pod %s: its supervision failed", pod.facts.name)
                pod.process.kill()
                ending = Ending("spawn", f"{type(error).__name__}: {error}")
                break
        pod.ended.set()
        if pod.deletion is None:
            log.warning("pod %s ended: %s", pod.facts.name, ending)
        self._become(pod, Phase.FAILED, str(ending))

    async def _wiped(self, pod: _Pod) -> bool:
        """Leave nothing of a pod's last life but emberd's own account. False if it is being deleted.

        Raises:
            OSError: something stays.
        """
        if pod.host_uid >= 0:
            await asyncio.to_thread(end_uid, pod.host_uid, GOING_LIMIT_S)
        await asyncio.to_thread(remove_folder, pod.folders.scratch)
        return pod.deletion is None

    async def _delete(self, pod: _Pod) -> None:
        try:
            pod.process.kill()
            async with asyncio.timeout(GOING_LIMIT_S):
                await pod.ended.wait()
            if pod.host_uid >= 0:
                # In plain mode jobs may have left emberd's tree; under a uid of its own they are found all the same.
                await asyncio.to_thread(end_uid, pod.host_uid, GOING_LIMIT_S)
            self._switches.forget(pod.folders.switch)
            await asyncio.to_thread(remove_folder, pod.folders.home)
            await asyncio.to_thread(remove_folder, pod.folders.run)
        except (TimeoutError, OSError) as error:
            pod.deletion = None
            reason = f"stuck: {str(error) or 'a process does not end'}"
            log.error("pod %s: %s", pod.facts.name, reason)
            self._become(pod, Phase.FAILED, reason)
            return
        if self._uids:
            self._uids.free(pod.host_uid)
        del self._pods[pod.facts.name]
        self._bump()
        await asyncio.to_thread(prune_logs, self._data.logs)

    def _become(self, pod: _Pod, phase: Phase, reason: str = "") -> None:
        pod.facts = pod.facts.model_copy(update={"phase": phase, "reason": reason})
        self._bump()

    def _bump(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()
        if self._closing:
            self._changed.set()

    async def _close(self) -> None:
        self.stop_waits()
        ends = await asyncio.gather(*(self.delete(name) for name in list(self._pods)), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                log.error("%s", end)
        self._switches.close()
        if self._uids:
            self._uids.close()


def _choice(wish: CreatePod, root: str) -> PodChoice:
    image = wish.image or wish.profile.base_image
    return PodChoice(image=image, root=root, images=swappable(wish.profile, image), standby=wish.standby)


def _refuse_image(root: str) -> NoReturn:
    """Raises InvalidInput."""
    if Path(root).is_dir():
        # A job owns what root owns in its image.
        raise InvalidInput("image", "'/' is no image: it would open the host's own files to jobs; use 'base'")
    raise InvalidInput("image", f"{root!r} is no folder on this machine")


def _warn_plain(wish: CreatePod, host_uid: int) -> None:
    shared = ["its files", "its processes"]
    if wish.profile.network is Network.NONE:
        shared.append("its network, although the profile says 'none'")
    user = f"uid {host_uid}, which owns nothing else" if host_uid >= 0 else "YOUR OWN user, with all that it may do"
    log.warning(
        "pod %s is NOT ISOLATED (isolation: plain): jobs see the host's world: %s; they run as %s. Trusted code only.",
        wish.name,
        ", ".join(shared),
        user,
    )
