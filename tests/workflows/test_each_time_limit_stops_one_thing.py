"""docs/time-limits.md is true: each limit stops what it names, alone or beside the others (e2b-dev/E2B#500)."""

import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from fixtures.stack import Site
from fixtures.waiting import wait_until
from scenarios.flows import Commands

from emberpool.pool.model.claim import ClaimSpec
from emberpool.pool.model.command import DEFAULT_TIME_LIMIT_S, Command, Outcome
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.rollout import RolloutInput
from emberpool.pool.model.session import SessionInput

TABLE = Path(__file__).parents[2] / "docs" / "time-limits.md"
FOREVER = 900.0


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"time_limit_s": 0.7}, Outcome.TIMED_OUT),
        ({"wait_timeout_s": 0.7, "time_limit_s": FOREVER}, Outcome.EXITED),
        ({"hold_s": 0.7, "time_limit_s": FOREVER}, Outcome.EXITED),
        ({"time_limit_s": 0.7, "wait_timeout_s": 0.7, "hold_s": 0.7}, Outcome.TIMED_OUT),
        ({}, Outcome.EXITED),
    ],
    ids=["time_limit", "wait_timeout", "hold", "all", "none"],
)
async def test_only_the_time_limit_ends_a_command(site: Site, fields: dict[str, Any], outcome: Outcome) -> None:
    """A command of 1.5 s ends by its own time limit of 0.7 s; a wait or a hold of that length does not touch it, and
    the sandbox serves the next command all the same."""

    async def warm() -> bool:
        return (await site.index.counts()).idle_fresh > 0

    await wait_until(warm)  # so that a short wait is long enough
    plan = site.plan(commands=("echo begun; sleep 1.5", "echo next"), **fields)
    seen = await site.client.execute_workflow(Commands.run, plan, id=uuid.uuid4().hex, task_queue=site.queue)
    assert [result.outcome for result in seen.results] == [outcome, Outcome.EXITED]
    assert [result.stdout for result in seen.results] == [b"begun\n", b"next\n"]


def test_the_table_names_what_there_is() -> None:
    """Every row's name is a field of the model that it stands for, with the default that the row gives."""
    rows = re.findall(r"^\| `([a-z_.]+)` \| .*? \| (\d+) (s|min) \|", TABLE.read_text(), re.MULTILINE)
    told = {name: int(number) * (60 if unit == "min" else 1) for name, number, unit in rows}
    assert told == {
        "time_limit": Command.model_fields["time_limit_s"].default,
        "limits.time_limit_s": Profile(name="p").limits.time_limit_s,
        "wait_timeout": ClaimSpec.model_fields["wait_timeout_s"].default,
        "hold": ClaimSpec.model_fields["hold_s"].default,
        "idle_timeout": SessionInput.model_fields["idle_timeout_s"].default,
        "keep_alive_s": Profile.model_fields["keep_alive_s"].default,
        "policy_timeout_s": RolloutInput.model_fields["policy_timeout_s"].default,
    }
    assert told["time_limit"] == DEFAULT_TIME_LIMIT_S
