"""One watch for all pods of a pool: list, then watch from there; resumed where it broke off, listed anew if too old."""

import asyncio
import logging
import time
from collections.abc import Callable

from emberpool.pool.model.errors import EmberpoolError, PoolUnavailable
from emberpool.pool.model.ids import PodName
from emberpool.pool.providers.kubernetes.access import ApiRefused, Json, KubernetesApi
from emberpool.pool.providers.kubernetes.view import PodView, view

log = logging.getLogger(__name__)

ONE_WATCH_S = 240.0
"""Seconds that the server keeps a watch open; it is then resumed."""
RESYNC_S = 600.0
"""A list at least this often: what a watch has missed, by a fault on either side, is found then."""
PAGE = 500
"""Pods in one page of a list."""
AGAIN_S, LONGEST_AGAIN_S = 0.2, 10.0
"""Pause after the first failure, doubled up to the second."""
TOO_OLD = 410

Heard = Callable[[PodName, PodView | None], None]
"""Called on the event loop for every change; None: the pod is gone."""


class PodWatch:
    """What the API server knows of the pods with one label selector."""

    def __init__(self, api: KubernetesApi, selector: str, heard: Heard, resync_s: float = RESYNC_S) -> None:
        self._api, self._selector, self._heard, self._resync_s = api, selector, heard, resync_s
        self.pods: dict[PodName, PodView] = {}
        self.lists = 0
        """Times that everything was listed: tests see a watch that is resumed by it not rising."""
        self._task: asyncio.Task[None] | None = None
        self._synced = asyncio.Event()
        self._failed: EmberpoolError | None = None
        self._version = ""
        """Where to go on from; empty: list first."""
        self._pause_s = AGAIN_S
        self._too_old = False
        """Whether the last thing that was heard is that our version is too old."""

    async def started(self, limit_s: float = 30.0) -> None:
        """Start it if it does not run, and wait until it has listed once.

        Raises:
            PoolUnavailable: the API cannot be reached or refuses us.
            InvalidInput: the access to it is set up wrongly.
        """
        if self._task is None or self._task.done():
            self._synced.clear()
            self._task = asyncio.create_task(self._run(), name="emberpool-pod-watch")
        try:
            # Not wait_for: before Python 3.12 it forgets that it is cancelled, where what it waits for is there already
            # (python/cpython#86296).
            async with asyncio.timeout(limit_s):
                await self._synced.wait()
        except TimeoutError:
            raise PoolUnavailable(f"the Kubernetes API gave no list of pods within {limit_s:.0f} s") from self._failed
        if self._failed is not None and not self.pods:
            raise self._failed

    @property
    def trouble(self) -> str:
        """Why nothing is heard of the pods now; "" if all is well."""
        return "" if self._failed is None else str(self._failed)

    async def aclose(self) -> None:
        """End it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def took(self, pod: PodView) -> None:
        """Take in a pod that we have just created; whatever the watch has said of it since is newer."""
        if pod.name not in self.pods:
            self._saw(pod.name, pod)

    async def listed(self) -> tuple[list[PodView], str]:
        """Every pod as of now, and the resource version to watch on from.

        Raises:
            ApiRefused, PoolUnavailable: see KubernetesApi.
        """
        found: list[PodView] = []
        query = {"labelSelector": self._selector, "limit": str(PAGE)}
        while True:
            page = await self._api.call("GET", await self._path(), query=query)
            found += [seen for pod in page["items"] if (seen := _read(pod)) is not None]
            if not page["metadata"].get("continue"):
                return found, str(page["metadata"]["resourceVersion"])
            query["continue"] = page["metadata"]["continue"]

    async def _path(self) -> str:
        return f"/api/v1/namespaces/{await self._api.namespace()}/pods"

    async def _run(self) -> None:
        """Until cancelled. A failure costs a pause, never the watch."""
        listed_at = 0.0
        while True:
            try:
                if not self._version or time.monotonic() > listed_at + self._resync_s:
                    listed_at = time.monotonic()
                    await self._relist()
                await self._follow()
            except ApiRefused as error:
                if error.status == TOO_OLD:
                    self._version = ""
                    before, self._too_old = self._too_old, True
                    if not before:
                        continue  # a list, at once; a server that says so of that list's version too is waited for
                self._trouble(PoolUnavailable(f"the Kubernetes API refuses the watch: {error}"))
            except EmberpoolError as error:
                self._trouble(error)
            else:
                self._too_old = False
                continue
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(LONGEST_AGAIN_S, self._pause_s * 2)

    def _trouble(self, error: EmberpoolError) -> None:
        log.warning("watching pods %s: %s", self._selector, error)
        self._failed = error
        self._synced.set()

    async def _relist(self) -> None:
        listed, self._version = await self.listed()
        self.lists += 1
        now = {pod.name: pod for pod in listed}
        for name in [name for name in self.pods if name not in now]:
            self._saw(name, None)
        for name, pod in now.items():
            if self.pods.get(name) != pod:
                self._saw(name, pod)
        self._failed = None
        self._synced.set()

    async def _follow(self) -> None:
        """Hear of changes until the server ends the watch."""
        query = {
            "watch": "true",
            "labelSelector": self._selector,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(ONE_WATCH_S)),
        }
        async with self._api.lines(await self._path(), query, ONE_WATCH_S) as lines:
            self._failed = None  # it is open, though it may have nothing to say for a minute
            async for event in lines:
                self._version = self._event(event)
                self._pause_s, self._too_old = AGAIN_S, False

    def _event(self, event: Json) -> str:
        """Take one event in; returns its version.

        Raises:
            ApiRefused: the event is an error, as 410 where the version is too old.
        """
        kind, what = str(event["type"]), event["object"]
        if kind == "ERROR":
            raise ApiRefused(int(what.get("code") or 0), str(what.get("reason")), str(what.get("message")))
        if kind != "BOOKMARK":
            self._pod(kind, what)
        return str(what["metadata"]["resourceVersion"])

    def _pod(self, kind: str, what: Json) -> None:
        pod = _read(what)
        if kind == "DELETED":
            self._saw(PodName(what["metadata"]["name"]), None)
        elif pod is not None:
            self._saw(pod.name, pod)

    def _saw(self, name: PodName, pod: PodView | None) -> None:
        if pod is None:
            self.pods.pop(name, None)
        else:
            self.pods[name] = pod
        self._heard(name, pod)


def _read(pod: Json) -> PodView | None:
    """None if it cannot be read: one such pod must not blind us to all others."""
    try:
        return view(pod)
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        log.warning("pod %s cannot be read: %r", pod.get("metadata", {}).get("name"), error)
        return None
