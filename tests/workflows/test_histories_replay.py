"""Recorded histories of every workflow replay with today's code: what would break running ones is seen here."""

import json
from pathlib import Path

import pytest
from scenarios.flows import FLOWS
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from emberpool.worker.plugin import PASSED_THROUGH, EmberpoolPlugin

HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*/*.json"))


def history(path: Path) -> WorkflowHistory:
    """A recorded history."""
    text = path.read_text()
    started = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
    return WorkflowHistory.from_json(started["workflowId"], text)


def replayer() -> Replayer:
    """With the plugin only: its workflows, converter and runner."""
    return Replayer(workflows=FLOWS, plugins=[EmberpoolPlugin()])


@pytest.fixture(autouse=True)
def loaded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our workflows are loaded inside the sandbox here, so that it sees what they do."""
    monkeypatch.delitem(PASSED_THROUGH, "emberpool.workflows")


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_recorded_history_replays(path: Path) -> None:
    """No server is needed; the workflow sandbox is in place."""
    await replayer().replay_workflow(history(path))


async def test_a_changed_activity_is_noticed() -> None:
    """The check can fail: a history with another activity in it does not replay."""
    path = next(path for path in HISTORIES if path.stem == "tool-call")
    changed = history(path).to_json().replace("emberpool.run_command", "emberpool.run_other")
    with pytest.raises(Exception, match="[Nn]ondeterminism|TMPRL1100"):
        await replayer().replay_workflow(WorkflowHistory.from_json(path.stem, changed))
