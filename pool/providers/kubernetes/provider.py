"""Pods in a Kubernetes namespace, as a provider."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.trust import Trust
from emberpool.pool.model.errors import InvalidInput, PoolUnavailable
from emberpool.pool.model.ids import PodName, PodUid
from emberpool.pool.model.pod import Phase, PodFacts
from emberpool.pool.model.profile import Profile
from emberpool.pool.providers.kubernetes.access import Access, ApiRefused, Json, KubernetesApi
from emberpool.pool.providers.kubernetes.changes import Changes
from emberpool.pool.providers.kubernetes.pacing import Pace
from emberpool.pool.providers.kubernetes.pod_spec import (
    DEPLOYMENT_LABEL,
    GRACE_S,
    POOL_LABEL,
    image_reference,
    manifest,
    steer_away,
)
from emberpool.pool.providers.kubernetes.standing import Standing
from emberpool.pool.providers.kubernetes.view import PodView, view
from emberpool.pool.providers.kubernetes.watch import PodWatch

CREATE_S = 60.0
"""Longest that a creation waits for its turn."""
DELETE_S = 60.0
"""Within this a deleted pod is gone, or it does not go: its node is lost, or something else holds it."""
LOOK_S = 1.0
"""Pause between two reads of a pod that the watch says nothing of."""
FIRST_ASK_S = 2.0
"""How long a worker that starts waits for the emberds of pods that run: one that stays silent is not ready."""
STRATEGIC = "application/strategic-merge-patch+json"


class KubernetesProvider:
    """The pods of one profile and deployment. What it keeps can be read anew: any worker may take over."""

    def __init__(
        self,
        profile: Profile,
        access: Access,
        pool_key: bytes,
        deployment: str = "default",
        delete_s: float = DELETE_S,
        trust: Trust | None = None,
    ) -> None:
        """Connects only when it is used. `delete_s`: how long a deletion may take before it counts as stuck."""
        self._profile, self._deployment, self._pool_key = profile, deployment, pool_key
        self._api = KubernetesApi(access)
        self._client = EmberdClient(pool_key, trust)
        about = profile.kubernetes
        self._pace = Pace(about.creates_per_s, about.starting_at_once)
        selector = f"{POOL_LABEL}={profile.name},{DEPLOYMENT_LABEL}={deployment}"
        self._standing = Standing(self._client, about.patience_s, self._pace)
        self._watch = PodWatch(self._api, selector, self._standing.heard)
        self._begun = False
        self._delete_s = delete_s
        self._changes = Changes(self._api, self._client, self._standing)

    @property
    def profile(self) -> Profile:
        return self._profile

    @property
    def trouble(self) -> str:
        """What keeps this provider from hearing of its pods now; "" if all is well. Claims go on meanwhile."""
        return self._watch.trouble

    async def create(self, name: PodName, image: str, standby: bool = False) -> None:
        """See Provider.create. Waits for its turn: creation is paced.

        Raises:
            PoolUnavailable: also if too many pods before it failed to start, or its turn does not come in time.
        """
        resizable = not self._standing.refuses_resizes
        body = manifest(self._profile, self._deployment, name, image, self._pool_key, standby, resizable)
        await self._started()
        if name in self._watch.pods:
            return
        await self._turn(name)
        steer_away(body, self._standing.avoided_nodes)
        try:
            made = await self._api.call("POST", await self._path(), body=body)
        except ApiRefused as error:
            self._pace.withdrawn(name)
            if error.status != 409:
                raise _creation_refused(error) from error
        except BaseException:
            self._pace.withdrawn(name)
            raise
        else:
            self._watch.took(view(made))

    async def wait_ready(self, name: PodName, timeout_s: float) -> PodFacts:
        """See Provider.wait_ready."""
        await self._started()
        deadline = time.monotonic() + timeout_s
        while True:
            with self._standing.waiting(name) as changed:
                pod = self._watch.pods.get(name) or await self._read(name)
                if pod is None:
                    return PodFacts(name=name, uid=PodUid(""), phase=Phase.FAILED, reason="gone")
                facts = self._standing.facts(pod)
                left_s = deadline - time.monotonic()
                if facts.phase is not Phase.PENDING:
                    return facts
                if left_s <= 0:
                    if timeout_s > 0:  # else it was only looked at
                        self._standing.overdue(pod)
                    return facts
                await changed(min(left_s, LOOK_S))

    async def promote(self, name: PodName) -> str:
        """See Provider.promote: requests are resized in place, then emberd takes its full share."""
        await self._started()
        return await self._changes.promote(await self._path(name), lambda: self._known(name), self._profile)

    async def swap(self, name: PodName, image: str, epoch: int) -> str:
        """See Provider.swap: the container is replaced in the pod, which keeps its node, address and volumes."""
        await self._started()
        try:
            reference = image_reference(self._profile, image)
        except InvalidInput as error:
            return str(error)
        path = await self._path(name)
        return await self._changes.swap(path, lambda: self._known(name), image, reference, epoch)

    async def restart(self, name: PodName, epoch: int) -> str:
        """See Provider.restart: emberd ends, and the kubelet starts the container again in the pod."""
        await self._started()
        return await self._changes.restart(lambda: self._known(name), epoch)

    async def delete(self, name: PodName) -> None:
        """See Provider.delete."""
        await self._started()
        deadline = time.monotonic() + self._delete_s
        watched = name in self._watch.pods
        there = await self._delete(name)
        while there:
            with self._standing.waiting(name) as changed:
                there = name in self._watch.pods if watched else await self._read(name) is not None
                if there and time.monotonic() > deadline:
                    raise PoolUnavailable(f"pod {name} does not go within {self._delete_s:g} s: {self._holds(name)}")
                if there:
                    await changed(LOOK_S)

    async def list(self) -> list[PodFacts]:
        """See Provider.list. Read from the API, not from the watch."""
        await self._started()
        pods = await self._listed()
        for pod in pods:
            self._standing.look(pod)
        return [self._standing.facts(pod) for pod in pods]

    async def watch(self) -> AsyncIterator[PodFacts]:
        """See Provider.watch. Goes on through any trouble with the API: pods outlive that."""
        await self._started()
        known: dict[PodName, PodFacts] = {}
        with self._standing.following() as news:
            for name in list(self._watch.pods):
                news.put_nowait(name)
            while True:
                name = await news.get()
                pod, before = self._watch.pods.get(name), known.get(name)
                if pod is None:
                    known.pop(name, None)
                    if before is not None and before.phase is not Phase.FAILED:
                        yield before.model_copy(update={"phase": Phase.FAILED, "reason": "gone"})
                    continue
                facts = self._standing.facts(pod)
                if facts != before:
                    known[name] = facts
                    yield facts

    async def aclose(self) -> None:
        """See Provider.aclose."""
        await self._watch.aclose()
        await self._standing.aclose()
        await self._client.aclose()
        await self._api.aclose()

    async def _started(self) -> None:
        """The watch runs; the emberds of pods that were there before this worker have been asked."""
        first = not self._begun
        await self._watch.started()
        if first and not self._begun:
            self._begun = True
            await self._standing.asked(list(self._watch.pods.values()), FIRST_ASK_S)

    def _holds(self, name: PodName) -> str:
        """What a deleted pod that is still there waits for."""
        pod = self._watch.pods.get(name)
        return f"node {pod.node} does not end it" if pod is not None and pod.node else "something else holds it"

    async def _turn(self, name: PodName) -> None:
        deadline = time.monotonic() + CREATE_S
        while (wait := self._pace.ask(name, time.monotonic())) is not None:
            if time.monotonic() + wait.seconds > deadline:
                raise PoolUnavailable(f"pod {name} is not created now: {wait.why}")
            await asyncio.sleep(wait.seconds)

    async def _known(self, name: PodName) -> PodView | None:
        """The pod as the watch has it; else as it is."""
        return self._watch.pods.get(name) or await self._read(name)

    async def _read(self, name: PodName) -> PodView | None:
        try:
            pod = view(await self._api.call("GET", await self._path(name)))
        except ApiRefused as error:
            if error.status == 404:
                return None
            raise PoolUnavailable(f"pod {name} cannot be read: {error}") from error
        self._standing.look(pod)
        return pod

    async def _listed(self) -> Sequence[PodView]:
        try:
            return (await self._watch.listed())[0]
        except ApiRefused as error:
            raise PoolUnavailable(f"pods cannot be listed: {error}") from error

    async def _delete(self, name: PodName) -> bool:
        """False if there is none."""
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": GRACE_S}
        try:
            await self._api.call("DELETE", await self._path(name), body=body)
        except ApiRefused as error:
            if error.status == 404:
                return False
            raise PoolUnavailable(f"pod {name} cannot be deleted: {error}") from error
        return True

    async def _path(self, name: str = "") -> str:
        pods = f"/api/v1/namespaces/{await self._api.namespace()}/pods"
        return f"{pods}/{name}" if name else pods


def _creation_refused(error: ApiRefused) -> Exception:
    """A quota frees itself; anything else that the server refuses it will refuse again."""
    if "exceeded quota" in error.message or error.reason in ("Conflict", "AlreadyExists"):
        return PoolUnavailable(f"the pod is not created now: {error.message}")
    return InvalidInput("profile", f"the API server refuses its pods: {error}")
