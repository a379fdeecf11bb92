"""What a rollout costs on Temporal: billable actions and payload bytes, counted in its own history.

Actions are counted by Temporal Cloud's rules (docs.temporal.io/cloud/actions). What no history shows is left out:
heartbeats (none in commands under three seconds), queries, and what the pool manager does for all rollouts together.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

SAMPLE: Final = 64
"""Histories read: enough for quantiles, few enough to take no time."""
AT_ONCE: Final = 8

_E = EventType
ACTIONS: Final = {
    _E.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: 1,
    # One per attempt; a failed attempt that is retried leaves no event, but the next one tells its number.
    _E.EVENT_TYPE_ACTIVITY_TASK_STARTED: 1,
    _E.EVENT_TYPE_TIMER_STARTED: 1,
    _E.EVENT_TYPE_MARKER_RECORDED: 1,
    _E.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED: 1,
    _E.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES: 1,
}
"""Actions per event."""


@dataclass(frozen=True)
class Cost:
    """Of one workflow run."""

    actions: int
    payload_bytes: int
    """Inputs, results, summaries and memos, as Temporal stores them, without the events around them."""


def cost_of(events: Iterable[HistoryEvent]) -> Cost:
    """Count one history."""
    actions, size = 0, 0
    for event in events:
        actions += ACTIONS.get(event.event_type, 0)
        if event.HasField("activity_task_started_event_attributes"):
            actions += max(0, event.activity_task_started_event_attributes.attempt - 1)
        size += _payload_bytes(event)
    return Cost(actions, size)


async def sampled_costs(client: Client, workflow_ids: Sequence[str]) -> tuple[Cost, ...]:
    """The costs of up to SAMPLE of these children of a batch, evenly chosen."""
    step = max(1, len(workflow_ids) // SAMPLE)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(workflow_id: str) -> Cost:
        async with gate:
            history = await client.get_workflow_handle(workflow_id).fetch_history()
        return cost_of(history.events)

    return tuple(await asyncio.gather(*[one(name) for name in workflow_ids[::step][:SAMPLE]]))


def _payload_bytes(message: Message) -> int:
    """The data of every payload inside, however deep."""
    if isinstance(message, Payload):
        return len(message.data)
    return sum(_payload_bytes(part) for _, value in message.ListFields() for part in _messages(value))


def _messages(value: Any) -> Iterable[Message]:
    if isinstance(value, Message):
        return (value,)
    if hasattr(value, "values"):  # a map
        return tuple(one for one in value.values() if isinstance(one, Message))
    if isinstance(value, str | bytes | int | float):
        return ()
    return tuple(one for one in value if isinstance(one, Message))
