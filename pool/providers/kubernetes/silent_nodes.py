"""Pods on a node that the cluster has not heard of for a while: they may serve on, or be lost with it.

The control plane says no more of such a pod than that it is not ready, and takes it away some five minutes later. Where
only the kubelet hangs, its pods work on, and nobody is to lose a job for that. So each pod's emberd is asked: one that
stays silent too is lost, by two witnesses that know nothing of each other. That it is not this worker that is cut off,
another pod's answer shows.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.hearing import Heard, hear
from emberpool.pool.model.ids import PodName, PodUid
from emberpool.pool.providers.kubernetes.view import PodView

log = logging.getLogger(__name__)

ANSWER_S = 5.0
"""Seconds that an emberd has to answer."""
AGAIN_S = 10.0
"""Pause before the next question to one that did not."""
PAUSE_S = 10.0
"""Pause after an answer, while the node stays silent."""
TIMES = 3
"""Questions that a pod must have left unanswered, and"""
SILENT_S = 30.0
"""seconds from the first of them, before it is lost, if another pod answers."""
ALONE_S = 60.0
"""The same where there is no other pod to compare with, as in a cluster of one node."""
AT_ONCE = 20
"""Questions at the same time: those to a full node's hundred pods take half a minute, and a worker has few sockets."""
OTHERS = 3
"""Pods that are asked for comparison."""


class SilentNodes:
    """One per provider, on its event loop."""

    def __init__(
        self, client: EmberdClient, lost: Callable[[PodView], None], has_answered: Callable[[PodView], bool]
    ) -> None:
        """`lost` is called of each pod that is lost with its node. `has_answered`: whether the pod ever did, so that
        its silence now would say something."""
        self._client, self._lost, self._has_answered = client, lost, has_answered
        self._asking: dict[PodUid, asyncio.Task[None]] = {}
        self._pods: dict[PodName, PodView] = {}
        """As they were when they were last looked at."""
        self._serving: set[PodUid] = set()
        """Those of silent nodes whose last question was answered."""
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._heard = float("-inf")
        """When any pod answered last, of those that are asked here."""

    async def aclose(self) -> None:
        """Ask nobody any more."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def look(self, pod: PodView) -> None:
        """See to it that the pod is asked for as long as its node is silent."""
        self._pods[pod.name] = pod
        if not pod.cut_off:
            self._let_be(pod.uid)
        elif pod.uid not in self._asking:
            self._asking[pod.uid] = asyncio.create_task(self._watch(pod), name=f"emberpool-silent-{pod.name}")

    def forget(self, name: PodName, uid: PodUid) -> None:
        """The pod is gone."""
        self._pods.pop(name, None)
        self._let_be(uid)

    def _let_be(self, uid: PodUid) -> None:
        self._serving.discard(uid)
        task = self._asking.pop(uid, None)
        if task is not None:
            task.cancel()

    async def _watch(self, pod: PodView) -> None:
        """Ask until it is lost. Only silence without a break counts."""
        times, since = 0, 0.0
        while True:
            heard, asked = await self._ask(pod)
            if heard is Heard.ANSWER:
                self._serving.add(pod.uid)
            else:
                self._serving.discard(pod.uid)
            if heard is Heard.SILENCE:
                since, times = (since, times + 1) if times else (time.monotonic(), 1)
                silent_s = time.monotonic() - since
                if times >= TIMES and silent_s >= SILENT_S and await self._is_believed(pod, asked, silent_s):
                    break
            else:
                times = 0
            await asyncio.sleep(PAUSE_S if heard is Heard.ANSWER else AGAIN_S)
        self._lost(pod)

    async def _is_believed(self, pod: PodView, asked: float, silent_s: float) -> bool:
        """Whether it is the pod that is silent, not this worker that is cut off: another has answered since `asked`,
        or there is none, and it has lasted."""
        if self._heard >= asked:
            return True
        others = self._others(pod)
        if not others:
            return silent_s >= ALONE_S
        await asyncio.gather(*map(self._ask, others))
        if self._heard < asked:
            log.info("pod %s is silent, and so is each of %d other pods: it is not given up", pod.name, len(others))
        return self._heard >= asked

    def _others(self, pod: PodView) -> list[PodView]:
        """A few that should answer: on nodes that are well, or on a silent one and known to serve on."""
        found = [
            one
            for one in self._pods.values()
            if one.uid != pod.uid and one.running and one.address and not one.deleting and self._has_answered(one)
            if (one.uid in self._serving if one.cut_off else one.node != pod.node)
        ]  # fmt: skip
        return random.sample(found, min(OTHERS, len(found)))

    async def _ask(self, pod: PodView) -> tuple[Heard, float]:
        """What came of one question, and when it was put."""
        async with self._gate:
            asked = time.monotonic()
            heard, _ = await hear(self._client, pod.name, pod.endpoint, ANSWER_S)
        if heard is Heard.ANSWER:
            self._heard = time.monotonic()
        return heard, asked
