"""Changing a pod where it is: requests resized for a promotion, the container replaced for another image."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.profile import Profile
from emberpool.pool.providers.kubernetes.access import ApiRefused, Json, KubernetesApi
from emberpool.pool.providers.kubernetes.back_off import held_back_s, note
from emberpool.pool.providers.kubernetes.pod_spec import requests
from emberpool.pool.providers.kubernetes.quantity import has_amounts
from emberpool.pool.providers.kubernetes.standing import Standing
from emberpool.pool.providers.kubernetes.view import CONTAINER, IMAGE_NOTE, STARTS_NOTE, PodView
from emberpool.pool.providers.provider import HELD_BACK

STRATEGIC = "application/strategic-merge-patch+json"
RESIZE_S = 10.0
"""A node that cannot give the full share now says Deferred; after this, another pod is sooner there."""
REFUSED_S = 2.0
"""The kubelet also says Error for a fault that passes: a runtime that refuses is one that does so for this long."""
SWAP_S = 60.0
"""The image is usually on the node already: 0.4 to 2.3 s then. It may have to be fetched."""
RESTART_S = 20.0
"""What waits for a restart has 25 s, for the reset with it."""
RESTART_PAUSE_S = 600.0
"""Seconds that a container must have run to be started anew a second time: by then the kubelet has forgotten the first.
Before, it would wait for 10 s, then 20 s, up to 5 min."""
HOLD_S = 12.0
"""Longest that a swap waits until the kubelet would not hold it back: the first window. A new pod takes as long."""

Look = Callable[[], Awaitable[PodView | None]]
"""The pod as it is known now, None if it is gone."""


class Changes:
    """Every method returns "", or why it cannot be done in this pod."""

    def __init__(self, api: KubernetesApi, client: EmberdClient, standing: Standing) -> None:
        self._api, self._client, self._standing = api, client, standing

    async def promote(self, path: str, look: Look, profile: Profile) -> str:
        """Give the pod its full requests, then have emberd take its full share.

        Raises:
            PoolUnavailable: the API cannot be reached.
        """
        pod, wanted = await look(), requests(profile, standby=False)
        if pod is None:
            return "gone"
        if not has_amounts(pod.requests, wanted):
            if refusal := self._standing.refusal_of(pod.node):  # the pod is older than that
                return f"resize: the runtime refuses it: {refusal}"
            body: Json = {"spec": {"containers": [{"name": CONTAINER, "resources": {"requests": wanted}}]}}
            problem = await self._patch(f"{path}/resize", body) or await self._resized(look, wanted)
            if problem:
                return f"resize: {problem}"
        return await self._told_to_promote(pod)

    async def swap(self, path: str, look: Look, image: str, reference: str, epoch: int) -> str:
        """Replace the container's image, wait for the new emberd, and have it prove that nothing is left.

        A pod that was used starts again as dirty, with its tag: it is fenced at the swap's epoch and reset. What the
        kubelet would hold back is not begun: the pod serves on with the image that it has.

        Raises:
            PoolUnavailable: the API cannot be reached.
        """
        pod = await look()
        if pod is None:
            return "gone"
        if pod.reference != reference:
            held_s = held_back_s(pod, reference, time.time())
            if held_s > HOLD_S:
                return f"{HELD_BACK}its kubelet would not start that image for {held_s:.0f} s"
            await asyncio.sleep(held_s)
            starts = note(pod, reference, time.time())
            body: Json = {
                "metadata": {"annotations": {IMAGE_NOTE: image, STARTS_NOTE: starts}},
                "spec": {"containers": [{"name": CONTAINER, "image": reference}]},
            }
            problem = await self._patch(path, body) or await self._restarted(look, pod, reference)
            if problem:
                return f"swap: {problem}"
        return await self._cleaned(look, epoch)

    async def restart(self, look: Look, epoch: int) -> str:
        """Have the container start anew, and wait until its emberd answers again. What the kubelet would hold back,
        since it was started not long ago, is not begun.

        Raises:
            PoolUnavailable: the API cannot be reached.
        """
        pod = await look()
        if pod is None:
            return "gone"
        if not pod.comes_back:
            return "its kubelet was not asked to start it again"
        if pod.restarts and time.time() < pod.started + RESTART_PAUSE_S:
            return f"it was started anew within the last {RESTART_PAUSE_S:.0f} s"
        try:
            state = await self._client.state(pod.name, pod.endpoint)
            address = PodAddress(name=pod.name, uid=pod.uid, boot_id=state.boot_id, endpoint=pod.endpoint)
            await self._client.restart(address, epoch)
        except EmberpoolError as error:
            return f"emberd: {error}"
        return await self._restarted(look, pod, pod.reference, RESTART_S)

    async def _patch(self, path: str, body: Json) -> str:
        try:
            await self._api.call("PATCH", path, body=body, content=STRATEGIC)
        except ApiRefused as error:
            return "gone" if error.status == 404 else str(error)
        return ""

    async def _resized(self, look: Look, wanted: dict[str, str]) -> str:
        """Wait until the resize is done: by the node, which may have no room now, and by the runtime. One that refuses,
        as gVisor may, keeps the kubelet from giving the pod as a whole its CPU weight too."""
        deadline, refused_since = time.monotonic() + RESIZE_S, math.inf
        while True:
            pod = await look()
            if pod is None or self._standing.facts(pod).phase is Phase.FAILED:
                return "gone"
            if pod.resize_pending.startswith("Infeasible"):
                return pod.resize_pending
            if not pod.resize_pending and has_amounts(pod.requests, wanted):
                return ""
            refused_since = min(refused_since, time.monotonic()) if pod.resize_refused else math.inf
            if pod.resize_refused:
                self._standing.resize_fails()
            if time.monotonic() - refused_since > REFUSED_S:
                self._standing.resize_refused(pod)
                return f"the runtime refuses it: {pod.resize_refused}"
            if time.monotonic() > deadline:
                return pod.resize_pending or f"not taken in within {RESIZE_S:.0f} s"
            await self._change(pod)

    async def _restarted(self, look: Look, before: PodView, reference: str, limit_s: float = SWAP_S) -> str:
        deadline = time.monotonic() + limit_s
        while True:
            pod = await look()
            if pod is None:
                return "gone"
            facts = self._standing.facts(pod)
            if facts.phase is Phase.FAILED:
                begins_again = pod.comes_back or pod.restarts > before.restarts
                return facts.reason if begins_again else _why_not_started(facts.reason)
            if facts.phase is Phase.READY and pod.restarts > before.restarts and pod.reference == reference:
                return ""
            if time.monotonic() > deadline:
                return f"no new emberd within {limit_s:.0f} s"
            await self._change(pod)

    async def _cleaned(self, look: Look, epoch: int) -> str:
        pod = await look()
        if pod is None:
            return "gone"
        try:
            state = await self._client.state(pod.name, pod.endpoint)
            address = PodAddress(name=pod.name, uid=pod.uid, boot_id=state.boot_id, endpoint=pod.endpoint)
            if state.standby:  # it was told so at its creation, and has been promoted since
                await self._client.promote(address)
            if state.state == "clean":
                return ""
            await self._client.fence(address, epoch)
            proof = await self._client.recycle(address, epoch)
        except EmberpoolError as error:
            return f"emberd: {error}"
        return "" if proof.holds else "not attested"

    async def _told_to_promote(self, pod: PodView) -> str:
        try:
            state = await self._client.state(pod.name, pod.endpoint)
            address = PodAddress(name=pod.name, uid=pod.uid, boot_id=state.boot_id, endpoint=pod.endpoint)
            await self._client.promote(address)
        except EmberpoolError as error:
            return f"emberd: {error}"
        return ""

    async def _change(self, pod: PodView) -> None:
        with self._standing.waiting(pod.name) as changed:
            await changed(0.25)


def _why_not_started(reason: str) -> str:
    """The kubelet ends a container for another image's, and says no more than that it ended where it then cannot pull
    that image, or holds the start back, and is not to start anything again."""
    ended = reason.startswith("exited")
    return f"not_started: no container followed the one that {reason}" if ended else reason
