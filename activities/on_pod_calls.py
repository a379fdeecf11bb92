"""What the activities on processes, shells and ports have in common: heartbeats, claim, and the answer's base."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import BaseModel

from emberpool.activities.calls import OpenCall, on_pod
from emberpool.activities.heartbeats import heartbeating
from emberpool.activities.models import CallInput, CallOutput
from emberpool.activities.pools import Pools

T = TypeVar("T")
Out = TypeVar("Out", bound=CallOutput)

SHORT_S = 60.0
"""What a short call adds to its lease while it runs."""


async def answered(
    pools: Pools,
    call: CallInput,
    limit_s: float,
    do: Callable[[OpenCall], Awaitable[T]],
    output: type[Out],
    fields: Callable[[T], dict[str, object]],
    details: Callable[[], BaseModel | None] = lambda: None,
) -> Out:
    """Call `do` on the sandbox's pod, with heartbeats of `details`; its value becomes `fields` of the answer."""
    pool = pools.get(call.ref.spec.profile)
    async with heartbeating(pools.heartbeat_s, details):
        answer = await on_pod(pool, call.ref, limit_s, do)
    base: dict[str, object] = {"step": answer.step, "lease": answer.lease, "first_scheduled": answer.first_scheduled}
    base["searchable"] = pools.searchable
    own = {} if answer.value is None else fields(answer.value)
    return output.model_validate(base | own)
