"""Pods on a node that the cluster has not heard of for a while: they may serve on, or be lost with it.

The control plane says no more of such a pod than that it is not ready, and takes it away some five minutes later. Where
only the kubelet hangs, its pods work on, and nobody is to lose a job for that. So each pod's emberd is asked: one that
does not answer either, twice, is lost, by two witnesses that know nothing of each other.
"""

import asyncio
from collections.abc import Callable

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.trust import lacks_trust
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.ids import PodUid
from emberpool.pool.providers.kubernetes.view import PodView

ANSWER_S = 5.0
"""Seconds that an emberd has to answer."""
AGAIN_S = 1.0
"""Pause before the second question to one that did not."""
TIMES = 2
PAUSE_S = 10.0
"""Pause after an answer, while the node stays silent."""


class SilentNodes:
    """One per provider, on its event loop."""

    def __init__(self, client: EmberdClient, lost: Callable[[PodView], None]) -> None:
        """`lost` is called of each pod that is lost with its node."""
        self._client, self._lost = client, lost
        self._asking: dict[PodUid, asyncio.Task[None]] = {}

    async def aclose(self) -> None:
        """Ask nobody any more."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def look(self, pod: PodView) -> None:
        """See to it that the pod is asked for as long as its node is silent."""
        if not pod.cut_off:
            self.forget(pod.uid)
        elif pod.uid not in self._asking:
            self._asking[pod.uid] = asyncio.create_task(self._ask(pod), name=f"emberpool-silent-{pod.name}")

    def forget(self, uid: PodUid) -> None:
        """The pod is gone, or its node is back."""
        task = self._asking.pop(uid, None)
        if task is not None:
            task.cancel()

    async def _ask(self, pod: PodView) -> None:
        silent = 0
        while silent < TIMES:
            try:
                await self._client.state(pod.name, pod.endpoint, ANSWER_S)
            except EmberpoolError as error:
                # What this worker does not trust says nothing of the pod: others ask it too.
                silent = 0 if lacks_trust(error) else silent + 1
            else:
                silent = 0
            await asyncio.sleep(AGAIN_S if silent else PAUSE_S)
        self._lost(pod)
