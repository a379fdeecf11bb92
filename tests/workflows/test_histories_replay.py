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

NOT_RECORDED: tuple[str, ...] = ()
"""Calls that no workflow makes, or only in trouble."""
HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*/*.json"))


def history(path: Path) -> WorkflowHistory:
    """A recorded history."""
    text = path.read_text()
    started = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
    return WorkflowHistory.from_json(started["workflowId"], text)


def replayer() -> Replayer:
    """With the plugin only: its workflows, converter and runner."""
    flows = [*FLOWS, *PROCESS_FLOWS, *FILE_FLOWS, *BINDING_FLOWS, *CHECKPOINT_FLOWS, *GROUP_FLOWS, *TOOL_FLOWS]
    return Replayer(workflows=flows, plugins=[EmberpoolPlugin()])


@pytest.fixture(autouse=True)
def loaded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our workflows are loaded inside the sandbox here, so that it sees what they do."""
    monkeypatch.delitem(PASSED_THROUGH, "emberpool.workflows")


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_recorded_history_replays(path: Path) -> None:
    """No server is needed; the workflow sandbox is in place."""
    await replayer().replay_workflow(history(path))


def test_every_call_of_a_workflow_is_in_a_history() -> None:
    """What a workflow can have done is guarded: each activity that workflows call, and each of our workflows, is in one
    of them."""
    recorded = "".join(path.read_text() for path in HISTORIES)
    given = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    kinds = {value for value in given.values() if value.startswith(("emberpool.", "sandbox_", "Emberpool"))}
    missing = {value for value in kinds if f'"{value}"' not in recorded}
    assert missing == set(NOT_RECORDED) | set(names.SEARCH_ATTRIBUTES), missing


async def test_a_changed_activity_is_noticed() -> None:
    """The check can fail: a history with another activity in it does not replay."""
    path = next(path for path in HISTORIES if path.stem == "tool-call")
    changed = history(path).to_json().replace("emberpool.run_command", "emberpool.run_other")
    with pytest.raises(Exception, match="[Nn]ondeterminism|TMPRL1100"):
        await replayer().replay_workflow(WorkflowHistory.from_json(path.stem, changed))
