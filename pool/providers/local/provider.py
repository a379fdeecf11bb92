"""Pods on this machine, as a provider: a client of the supervisor, without any state of its own."""

import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from pydantic import ValidationError

from emberpool.pool.model.errors import InvalidInput, PoolUnavailable
from emberpool.pool.model.ids import PodName, PodUid
from emberpool.pool.model.pod import Phase, PodFacts
from emberpool.pool.model.profile import Profile
from emberpool.pool.providers.local.pod_spec import check_socket_path, image_root
from emberpool.pool.providers.local.wire import (
    LONGEST_WAIT_S,
    CreatePod,
    Health,
    PodList,
    Problem,
    RestartPod,
    StepTaken,
    SupervisedPod,
    SwapPod,
)

log = logging.getLogger(__name__)

ANSWER_S = 60.0
"""Seconds for any answer, a long wait or a deletion included."""


class LocalProvider:
    """The pods of one profile and deployment, owned by the supervisor behind `socket`."""

    def __init__(self, profile: Profile, socket: Path, deployment: str = "default") -> None:
        """Connects only when it is used.

        Raises:
            InvalidInput: the socket's path is too long for one.
        """
        check_socket_path(socket, "socket")
        self._profile, self._socket = profile, socket
        self._pool = f"{deployment}/{profile.name}"
        self._session: aiohttp.ClientSession | None = None

    @property
    def profile(self) -> Profile:
        return self._profile

    async def create(self, name: PodName, image: str, standby: bool = False) -> None:
        """See Provider.create. An unknown image is refused here, before the supervisor is asked."""
        image_root(self._profile, image)
        wish = CreatePod(name=name, image=image, profile=self._profile, pool=self._pool, standby=standby)
        await self._ask("POST", "/v1/pods", body=wish.model_dump_json())

    async def wait_ready(self, name: PodName, timeout_s: float) -> PodFacts:
        """See Provider.wait_ready."""
        deadline = time.monotonic() + timeout_s
        while True:
            left = max(0.0, deadline - time.monotonic())
            pod = await self.look_up(name, min(left, LONGEST_WAIT_S))
            if pod is None:
                return PodFacts(name=name, uid=PodUid(""), phase=Phase.FAILED, reason="gone")
            if pod.facts.phase is not Phase.PENDING or time.monotonic() >= deadline:
                return pod.facts

    async def look_up(self, name: PodName, wait_s: float = 0.0) -> SupervisedPod | None:
        """One pod as the supervisor sees it, once it is settled or `wait_s` is over; None if there is none.

        Raises:
            PoolUnavailable: the supervisor cannot be reached.
        """
        status, text = await self._request("GET", f"/v1/pods/{name}", {"wait_s": f"{wait_s:.3f}"})
        return None if status == 404 else SupervisedPod.model_validate_json(_checked(status, text))

    async def promote(self, name: PodName) -> str:
        """See Provider.promote."""
        return await self._step(f"/v1/pods/{name}/promote", "")

    async def swap(self, name: PodName, image: str, epoch: int) -> str:
        """See Provider.swap. A pod has the images that its profile named when it was started."""
        return await self._step(f"/v1/pods/{name}/swap", SwapPod(image=image, epoch=epoch).model_dump_json())

    async def restart(self, name: PodName, epoch: int) -> str:
        """See Provider.restart."""
        return await self._step(f"/v1/pods/{name}/restart", RestartPod(epoch=epoch).model_dump_json())

    async def _step(self, path: str, body: str) -> str:
        taken = StepTaken.model_validate_json(await self._ask("POST", path, body=body))
        log.info("%s: %s in %.0f ms", path, taken.problem or "done", taken.took_ms)
        return taken.problem

    async def delete(self, name: PodName) -> None:
        """See Provider.delete."""
        await self._ask("DELETE", f"/v1/pods/{name}")

    async def list(self) -> list[PodFacts]:
        """See Provider.list."""
        return [pod.facts for pod in (await self._list()).pods]

    async def watch(self) -> AsyncIterator[PodFacts]:
        """See Provider.watch. A pod that was deleted comes as FAILED with reason `gone`.

        Raises:
            PoolUnavailable: the supervisor is gone, and with it every pod.
        """
        known: dict[PodName, PodFacts] = {}
        last: PodList | None = None
        while True:
            last = await self._list(last)
            now = {pod.facts.name: pod.facts for pod in last.pods}
            for name, facts in known.items():
                if name not in now or now[name].uid != facts.uid:
                    yield facts.model_copy(update={"phase": Phase.FAILED, "reason": "gone"})
            for name, facts in now.items():
                if known.get(name) != facts:
                    yield facts
            known = now

    async def health(self) -> Health:
        """Ask the supervisor who it is; this is how a starter waits for it.

        Raises:
            PoolUnavailable: it cannot be reached.
        """
        return Health.model_validate_json(await self._ask("GET", "/v1/health"))

    async def aclose(self) -> None:
        """See Provider.aclose."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _list(self, last: PodList | None = None) -> PodList:
        query = {"pool": self._pool}
        if last is not None:
            query |= {"boot": last.boot, "after": str(last.version), "wait_s": str(LONGEST_WAIT_S)}
        return PodList.model_validate_json(await self._ask("GET", "/v1/pods", query))

    async def _ask(self, method: str, path: str, query: dict[str, str] | None = None, body: str = "") -> str:
        return _checked(*await self._request(method, path, query, body))

    async def _request(
        self, method: str, path: str, query: dict[str, str] | None = None, body: str = ""
    ) -> tuple[int, str]:
        if self._session is None:
            connector = aiohttp.UnixConnector(path=str(self._socket), limit=0)
            timeout = aiohttp.ClientTimeout(total=ANSWER_S)
            self._session = aiohttp.ClientSession("http://supervisor", connector=connector, timeout=timeout)
        try:
            async with self._session.request(method, path, params=query, data=body or None) as answer:
                return answer.status, await answer.text()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise PoolUnavailable(f"the supervisor at {self._socket} does not answer: {error!r}") from error


def _checked(status: int, text: str) -> str:
    """The text of a good answer.

    Raises:
        InvalidInput, PoolUnavailable: as the supervisor said.
    """
    if status == 200:
        return text
    try:
        problem = Problem.model_validate_json(text)
    except ValidationError:
        raise PoolUnavailable(f"the supervisor answered {status}: {text[:200]}") from None
    if problem.error == "invalid_input":
        raise InvalidInput(problem.field, problem.detail)
    raise PoolUnavailable(problem.detail)
