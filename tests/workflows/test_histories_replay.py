"""Recorded histories of every workflow replay with today's code: what would break running ones is seen here."""

import json
from pathlib import Path

import pytest
from scenarios.bindings import BINDING_FLOWS
from scenarios.checkpoints import CHECKPOINT_FLOWS
from scenarios.files import FILE_FLOWS
from scenarios.flows import FLOWS
from scenarios.gangs import GROUP_FLOWS
from scenarios.process_flows import PROCESS_FLOWS
from scenarios.tool_flows import TOOL_FLOWS
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from emberpool.activities import names
from emberpool.worker.plugin import PASSED_THROUGH, EmberpoolPlugin

ALL_FLOWS = (
    *FLOWS,
    *PROCESS_FLOWS,
    *FILE_FLOWS,
    *BINDING_FLOWS,
    *CHECKPOINT_FLOWS,
    *GROUP_FLOWS,
    *TOOL_FLOWS,
)
NO_WORKFLOWS = {names.RUN_TOOL, names.BLOB_PLACE, names.FOLLOW_OUTPUT, names.LOOK_AT_POOL}
"""Activities that programs outside start, and no workflow does."""
HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*/*.json"))


def history(path: Path) -> WorkflowHistory:
    """A recorded history."""
    text = path.read_text()
    started = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
    return WorkflowHistory.from_json(started["workflowId"], text)


def replayer(path: Path) -> Replayer:
    """With the plugin: its workflows, converter and runner; and the tests' own one, if the history is of such a one."""
    started = json.loads(path.read_text())["events"][0]["workflowExecutionStartedEventAttributes"]
    kind = started["workflowType"]["name"]
    return Replayer(workflows=[flow for flow in ALL_FLOWS if flow.__name__ == kind], plugins=[EmberpoolPlugin()])


@pytest.fixture(autouse=True)
def loaded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our workflows are loaded inside the sandbox here, so that it sees what they do."""
    monkeypatch.delitem(PASSED_THROUGH, "emberpool.workflows")


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_recorded_history_replays(path: Path) -> None:
    """No server is needed; the workflow sandbox is in place."""
    await replayer(path).replay_workflow(history(path))


def test_every_call_of_a_workflow_is_in_a_history() -> None:
    """What a workflow can have done is guarded: each activity that workflows call, and each of our workflows, is in one
    of them."""
    recorded = "".join(path.read_text() for path in HISTORIES)
    given = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    kinds = {value for value in given.values() if value.startswith(("emberpool.", "sandbox_", "Emberpool"))}
    missing = {value for value in kinds if f'"{value}"' not in recorded}
    new = missing - NO_WORKFLOWS - set(names.SEARCH_ATTRIBUTES)
    assert not new, f"record them, by tests/record_histories.py: {new}"


async def test_a_changed_activity_is_noticed() -> None:
    """The check can fail: a history with another activity in it does not replay."""
    path = next(path for path in HISTORIES if path.stem == "tool-call")
    changed = history(path).to_json().replace("emberpool.run_command", "emberpool.run_other")
    with pytest.raises(Exception, match="[Nn]ondeterminism|TMPRL1100"):
        await replayer(path).replay_workflow(WorkflowHistory.from_json(path.stem, changed))
