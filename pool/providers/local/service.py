"""The supervisor's HTTP face: wire.py says what it answers."""

import asyncio
import os
from collections.abc import Awaitable, Callable

from aiohttp import web
from pydantic import BaseModel, ValidationError

from emberpool.pool.model.errors import InvalidInput, PoolUnavailable
from emberpool.pool.model.pod import Phase
from emberpool.pool.providers.local.pods import Pods
from emberpool.pool.providers.local.wire import (
    LONGEST_WAIT_S,
    CreatePod,
    Health,
    Problem,
    RestartPod,
    SupervisedPod,
    SwapPod,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _answer(model: BaseModel, status: int = 200) -> web.Response:
    return web.Response(text=model.model_dump_json(), status=status, content_type="application/json")


def _wait_s(request: web.Request) -> float:
    """Seconds to wait, from the query; bounded, so that a lost client is noticed.

    Raises:
        InvalidInput: it is no number.
    """
    text = request.query.get("wait_s", "0")
    try:
        return min(max(float(text), 0.0), LONGEST_WAIT_S)
    except ValueError:
        raise InvalidInput("wait_s", f"{text!r} is no number of seconds") from None


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except InvalidInput as error:
        return _answer(Problem(error="invalid_input", field=error.field, detail=error.problem), 400)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        return _answer(Problem(error="invalid_input", field=field, detail=first["msg"]), 400)
    except PoolUnavailable as error:
        return _answer(Problem(error="unavailable", detail=str(error)), 503)


class Service:
    """Answers questions about `pods`."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(middlewares=[_problems])
        app.add_routes(
            [
                web.get("/v1/health", self.health),
                web.post("/v1/pods", self.create),
                web.get("/v1/pods", self.list),
                web.get("/v1/pods/{name}", self.settled),
                web.delete("/v1/pods/{name}", self.delete),
                web.post("/v1/pods/{name}/promote", self.promote),
                web.post("/v1/pods/{name}/swap", self.swap),
                web.post("/v1/pods/{name}/restart", self.restart),
            ]
        )
        return app

    async def health(self, request: web.Request) -> web.Response:
        return _answer(Health(boot=self._pods.boot, pid=os.getpid(), pods=len(self._pods)))

    async def create(self, request: web.Request) -> web.Response:
        return _answer(self._pods.create(CreatePod.model_validate_json(await request.read())))

    async def list(self, request: web.Request) -> web.Response:
        query = request.query
        seen = (query.get("boot", ""), query.get("after", "0"))
        await self._until(lambda: (self._pods.boot, str(self._pods.version)) != seen, _wait_s(request))
        return _answer(self._pods.list(query.get("pool", "")))

    async def settled(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]

        def settled() -> bool:
            pod = self._pods.get(name)
            return pod is None or pod.facts.phase is not Phase.PENDING

        await self._until(settled, _wait_s(request))
        pod: SupervisedPod | None = self._pods.get(name)
        return _answer(pod) if pod else _answer(Problem(error="gone", detail=f"there is no pod {name}"), 404)

    async def delete(self, request: web.Request) -> web.Response:
        await self._pods.delete(request.match_info["name"])
        return web.json_response({})

    async def promote(self, request: web.Request) -> web.Response:
        return _answer(await self._pods.promote(request.match_info["name"]))

    async def swap(self, request: web.Request) -> web.Response:
        wish = SwapPod.model_validate_json(await request.read())
        return _answer(await self._pods.swap(request.match_info["name"], wish))

    async def restart(self, request: web.Request) -> web.Response:
        wish = RestartPod.model_validate_json(await request.read())
        return _answer(await self._pods.restart(request.match_info["name"], wish.epoch))

    async def _until(self, true: Callable[[], bool], wait_s: float) -> None:
        """Wait until `true` holds, the time is over, or the supervisor closes."""
        try:
            async with asyncio.timeout(wait_s):
                while not true() and not self._pods.closing:
                    await self._pods.changed()
        except TimeoutError:
            pass
