"""Where each pod stands: what the API says of it, whether its emberd answers, and who waits to hear of it."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.errors import EmberpoolError, PodUnreachable
from emberpool.pool.model.ids import PodName, PodUid
from emberpool.pool.model.pod import Phase, PodFacts
from emberpool.pool.model.recycle import RecycleTier
from emberpool.pool.providers.kubernetes.pacing import Pace
from emberpool.pool.providers.kubernetes.poor_nodes import PoorNodes
from emberpool.pool.providers.kubernetes.silent_nodes import SilentNodes
from emberpool.pool.providers.kubernetes.view import PodView, in_trouble, may_be_the_nodes_fault, verdict

log = logging.getLogger(__name__)

FIRST_ASK_S, LATER_ASK_S = 0.02, 0.5
"""Pauses between two questions to an emberd that does not answer yet. The kubelet would ask once a second, of every
pod for all its life; we ask until the first answer."""
SUSPICION_S, REFUSAL_S = 4.0, 3600.0
"""How long a resize that was refused says that others would be too. It may have been a passing fault of one node's."""

Changed = Callable[[float], Awaitable[None]]


class Standing:
    """One per provider, on its event loop."""

    def __init__(self, client: EmberdClient, patience_s: float, pace: Pace) -> None:
        self._client, self._patience_s, self._pace = client, patience_s, pace
        self._answered: dict[PodName, tuple[PodUid, int]] = {}
        self._tiers: dict[PodName, RecycleTier] = {}
        self._asking: dict[PodName, tuple[tuple[PodUid, int], asyncio.Task[None]]] = {}
        self._troubled: dict[PodUid, float] = {}
        self._untrusted: dict[PodUid, tuple[float, str]] = {}
        """Pods with which no TLS could be had: since when, and why."""
        self._silent_nodes = SilentNodes(client, self._lost, self._has_answered)
        self._poor_nodes = PoorNodes()
        self._refused_until = -math.inf
        self._refusals: dict[str | None, tuple[float, str]] = {}
        """Nodes whose runtime refused a resize: until when that is taken to hold, and in which words."""
        self._given_up: dict[PodUid, str] = {}
        self._uids: dict[PodName, PodUid] = {}
        self._bells: dict[PodName, set[asyncio.Event]] = {}
        self._followers: set[asyncio.Queue[PodName]] = set()

    def resize_fails(self) -> None:
        """It may be a refusal: a pod that is made before that is known must not be refused next."""
        self._take_for_refused(SUSPICION_S)

    def resize_refused(self, pod: PodView) -> None:
        """The runtime refuses to resize this pod, and so others."""
        log.warning(
            "pod %s: its runtime refuses to resize it (%s): standby pods are made with all they ask for now",
            pod.name,
            pod.resize_refused,
        )
        self._refusals[pod.node] = (time.monotonic() + REFUSAL_S, pod.resize_refused)
        self._take_for_refused(REFUSAL_S)

    def refusal_of(self, node: str | None) -> str:
        """Why that node's runtime refused to resize a pod lately; "" if it did not."""
        until, why = self._refusals.get(node, (-math.inf, ""))
        return why if time.monotonic() < until else ""

    def _take_for_refused(self, for_s: float) -> None:
        self._refused_until = max(self._refused_until, time.monotonic() + for_s)

    @property
    def refuses_resizes(self) -> bool:
        """Whether the runtime was seen to refuse one lately."""
        return time.monotonic() < self._refused_until

    @property
    def avoided_nodes(self) -> tuple[str, ...]:
        """Nodes on which pods failed to start lately."""
        return self._poor_nodes.avoided(time.monotonic())

    async def aclose(self) -> None:
        """Ask nobody any more."""
        tasks = [task for _, task in self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._silent_nodes.aclose()

    def heard(self, name: PodName, pod: PodView | None) -> None:
        """Take a change from the watch in, and tell who waits for it."""
        if pod is None:
            self._forget(name)
            self._pace.withdrawn(name)
        else:
            self.look(pod)
            self._settle(pod)
        self._ring(name)

    def look(self, pod: PodView) -> None:
        """See to it that a running pod's emberd is asked until it answers."""
        self._uids[pod.name] = pod.uid
        self._silent_nodes.look(pod)
        if in_trouble(pod):
            if pod.uid not in self._troubled:
                self._troubled[pod.uid] = time.monotonic()
                asyncio.get_running_loop().call_later(self._patience_s + 0.01, self._ring, pod.name)
        else:
            self._troubled.pop(pod.uid, None)
        incarnation, task = self._asking.get(pod.name, ((PodUid(""), 0), None))
        if task is not None and (incarnation != pod.incarnation or not pod.running):
            task.cancel()
            del self._asking[pod.name]
            task = None
        if task is None and self._to_ask(pod):
            asking = asyncio.create_task(self._ask(pod), name=f"emberpool-ask-{pod.name}")
            self._asking[pod.name] = (pod.incarnation, asking)

    def facts(self, pod: PodView) -> PodFacts:
        """The pod as a provider tells of it. One that was given up stays so."""
        since = self._troubled.get(pod.uid)
        waits_s = 0.0 if since is None else time.monotonic() - since
        answered = self._has_answered(pod)
        phase, reason = verdict(pod, answered, waits_s, self._patience_s)
        # Only a pod that this worker has just made: one that is set up wrongly must not fail what serves others.
        if phase is Phase.PENDING and pod.uid in self._untrusted and self._pace.is_starting(pod.name):
            since, why = self._untrusted[pod.uid]
            phase = Phase.FAILED if time.monotonic() - since >= self._patience_s else Phase.PENDING
            reason = f"tls: {why}"
        if pod.uid in self._given_up:
            phase, reason = Phase.FAILED, self._given_up[pod.uid]
        elif phase is Phase.FAILED:
            self._given_up[pod.uid] = reason
        shown = reason if phase is Phase.FAILED else ""
        return PodFacts(
            name=pod.name, uid=pod.uid, phase=phase, endpoint=pod.endpoint, image=pod.image, reason=shown[:500],
            tier=self._tiers.get(pod.name) if answered else None,
        )  # fmt: skip

    def overdue(self, pod: PodView) -> None:
        """Whoever waited for it to start gives it up: an emberd that never answers says as much of the next pod as one
        that ends, and would have as many new pods made as this one had to."""
        if not self._has_answered(pod):
            self._failed_to_start(pod, at_its_node=True)

    async def asked(self, pods: Iterable[PodView], limit_s: float) -> None:
        """Wait, for a while, until those that run have been asked."""
        names = {pod.name for pod in pods}
        tasks = [task for name, (_, task) in self._asking.items() if name in names]
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)

    @contextmanager
    def waiting(self, name: PodName) -> Generator[Changed]:
        """Hear of one pod: changes that come after the block began are not missed by `await changed(limit_s)`."""
        bell = asyncio.Event()
        self._bells.setdefault(name, set()).add(bell)

        async def changed(limit_s: float) -> None:
            await asyncio.wait({waiter := asyncio.ensure_future(bell.wait())}, timeout=max(0.0, limit_s))
            waiter.cancel()

        try:
            yield changed
        finally:
            bells = self._bells[name]
            bells.discard(bell)
            if not bells:
                del self._bells[name]

    @contextmanager
    def following(self) -> Generator[asyncio.Queue[PodName]]:
        """Names of pods of which something may have changed, as it does."""
        news: asyncio.Queue[PodName] = asyncio.Queue()
        self._followers.add(news)
        try:
            yield news
        finally:
            self._followers.discard(news)

    def _to_ask(self, pod: PodView) -> bool:
        return pod.running and bool(pod.address) and not pod.deleting and not self._has_answered(pod)

    def _has_answered(self, pod: PodView) -> bool:
        return self._answered.get(pod.name) == pod.incarnation

    async def _ask(self, pod: PodView) -> None:
        """Until emberd answers; cancelled when the pod changes its incarnation or goes."""
        pause_s = FIRST_ASK_S
        while True:
            try:
                state = await self._client.state(pod.name, pod.endpoint)
                break
            except EmberpoolError as error:
                self._note(pod, error)
                await asyncio.sleep(pause_s)
                pause_s = min(LATER_ASK_S, pause_s * 1.5)
        self._untrusted.pop(pod.uid, None)
        self._tiers[pod.name] = state.tier
        self._answered[pod.name] = pod.incarnation
        self._asking.pop(pod.name, None)
        self._pace.settled(pod.name, True, time.monotonic())
        self._poor_nodes.served(pod.node)
        self._ring(pod.name)

    def _note(self, pod: PodView, error: EmberpoolError) -> None:
        """Of an emberd that does not answer yet, nothing is to be said; a wrong certificate stays wrong."""
        if not isinstance(error, PodUnreachable) or not error.untrusted:
            self._untrusted.pop(pod.uid, None)
            return
        now = time.monotonic()
        since, _ = self._untrusted.get(pod.uid, (now, ""))
        self._untrusted[pod.uid] = (since, error.detail)
        if since == now:
            asyncio.get_running_loop().call_later(self._patience_s + 0.01, self._ring, pod.name)

    def _lost(self, pod: PodView) -> None:
        """Its node is silent, and it as well."""
        why = f"node_lost: {pod.node or 'its node'} is not ready, and emberd does not answer"
        self._given_up.setdefault(pod.uid, why)
        self._settle(pod)
        self._ring(pod.name)

    def _settle(self, pod: PodView) -> None:
        facts = self.facts(pod)
        if facts.phase is Phase.FAILED:
            if facts.reason == "deleted":
                self._pace.withdrawn(pod.name)
            else:
                self._failed_to_start(pod, at_its_node=may_be_the_nodes_fault(pod))

    def _failed_to_start(self, pod: PodView, at_its_node: bool) -> None:
        """Passed over if it had started, or is another worker's."""
        now = time.monotonic()
        if at_its_node and pod.node and self._pace.is_starting(pod.name):
            self._poor_nodes.failed(pod.node, now)
        self._pace.settled(pod.name, False, now)

    def _forget(self, name: PodName) -> None:
        self._answered.pop(name, None)
        self._tiers.pop(name, None)
        _, task = self._asking.pop(name, (None, None))
        if task is not None:
            task.cancel()
        uid = self._uids.pop(name, None)
        if uid is not None:
            self._troubled.pop(uid, None)
            self._given_up.pop(uid, None)
            self._untrusted.pop(uid, None)
            self._silent_nodes.forget(name, uid)

    def _ring(self, name: PodName) -> None:
        for bell in self._bells.get(name, ()):
            bell.set()
        for news in self._followers:
            news.put_nowait(name)
