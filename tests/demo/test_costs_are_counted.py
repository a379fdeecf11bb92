"""What a rollout costs on Temporal is counted in its history, by the rules that people are billed by."""

from pathlib import Path

from google.protobuf.json_format import Parse
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import History

from emberpool.worker.demo.costs import cost_of

HISTORIES = Path(__file__).resolve().parents[1] / "histories" / "0.1.0"


def test_a_recorded_call_costs_its_start_and_its_activities() -> None:
    """One action for the start and one per activity that was started; every payload's data, nothing around it."""
    text = (HISTORIES / "tool-call.json").read_text()
    history = Parse(text, History(), ignore_unknown_fields=True)
    started = [one for one in history.events if one.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED]
    cost = cost_of(history.events)
    assert started and cost.actions == 1 + len(started)
    given = history.events[0].workflow_execution_started_event_attributes.input.payloads[0].data
    assert len(given) < cost.payload_bytes < len(text)


def test_retries_cost_as_much_as_they_are() -> None:
    """An activity that needed three attempts counts three times; timers and upserts count, workflow tasks do not."""
    history = History()
    attempt = history.events.add(event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
    attempt.activity_task_started_event_attributes.attempt = 3
    history.events.add(event_type=EventType.EVENT_TYPE_TIMER_STARTED)
    history.events.add(event_type=EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES)
    history.events.add(event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
    assert cost_of(history.events).actions == 5
