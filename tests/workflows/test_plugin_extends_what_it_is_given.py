"""The plugin extends the converter and the runner that it is given, and names what it passes through."""

import dataclasses
from collections.abc import Sequence

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import DataConverter, DefaultPayloadConverter, PayloadCodec
from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from emberpool.activities import names
from emberpool.pool.model.command import CommandResult, Outcome
from emberpool.worker.plugin import PASSED_THROUGH, extended_converter, extended_runner, with_workflows


class Codec(PayloadCodec):
    """A codec that changes nothing."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)


def test_only_the_default_payload_converter_is_replaced() -> None:
    """A codec stays, the default payload converter becomes pydantic's, any other converter is left alone."""
    codec = Codec()
    extended = extended_converter(DataConverter(payload_codec=codec))
    assert extended.payload_converter_class is PydanticPayloadConverter and extended.payload_codec is codec
    mine = dataclasses.replace(
        pydantic_data_converter, payload_converter_class=type("Mine", (DefaultPayloadConverter,), {})
    )
    assert extended_converter(mine) is mine
    assert extended_converter(None).payload_converter_class is PydanticPayloadConverter


def test_the_runner_keeps_what_it_passes_through() -> None:
    """The given runner's own modules stay passed through; an unsandboxed runner stays as it is."""
    given = SandboxedWorkflowRunner()
    given = dataclasses.replace(given, restrictions=given.restrictions.with_passthrough_modules("mine"))
    extended = extended_runner(given)
    assert isinstance(extended, SandboxedWorkflowRunner)
    assert {"mine", *PASSED_THROUGH} <= extended.restrictions.passthrough_modules
    plain = UnsandboxedWorkflowRunner()
    assert extended_runner(plain) is plain
    with pytest.raises(ValueError, match="EmberpoolPlugin"):
        extended_runner(None)


def test_workflows_come_once() -> None:
    """Registering the plugin twice adds nothing the second time."""
    once = with_workflows(None)
    assert list(with_workflows(once)) == list(once)


def test_results_survive_both_converters() -> None:
    """Bytes of any kind come back the same (temporalio/sdk-python#1449)."""
    raw = bytes(range(256)) * 16 + b"\x89PNG\xff\xfe\x00"
    result = CommandResult(outcome=Outcome.EXITED, exit_code=0, stdout=raw, stderr=b"\xed\xa0\x80")
    pydantic = pydantic_data_converter.payload_converter
    assert pydantic.from_payload(pydantic.to_payload(result), CommandResult) == result


def test_names_are_for_ever() -> None:
    """Activity, workflow, signal and query names as histories hold them: adding is fine, changing is not."""
    held = {key: value for key, value in vars(names).items() if key.isupper()}
    assert held == {**held, **FOR_EVER}


FOR_EVER = {
    "RUN_COMMAND": "emberpool.run_command",
    "WRITE_FILE": "emberpool.write_file",
    "READ_FILE": "emberpool.read_file",
    "BIND_JOB": "emberpool.bind_job",
    "OPEN_SANDBOX": "emberpool.open_sandbox",
    "ADOPT_SANDBOX": "emberpool.adopt_sandbox",
    "DETACH_SANDBOX": "emberpool.detach_sandbox",
    "RECYCLE_POD": "emberpool.recycle_pod",
    "WAIT_FOR_POD": "emberpool.wait_for_pod",
    "PROVISION_POD": "emberpool.provision_pod",
    "PROMOTE_STANDBY": "emberpool.promote_standby",
    "SWAP_IMAGE": "emberpool.swap_image",
    "PLAN_POOL": "emberpool.plan_pool",
    "TEND_POOL": "emberpool.tend_pool",
    "SET_TARGETS": "emberpool.set_targets",
    "PROVISION_WARM": "emberpool.provision_warm",
    "RETIRE_PODS": "emberpool.retire_pods",
    "LOAD_TASKS": "emberpool.load_tasks",
    "RECORD_RESULT": "emberpool.record_result",
    "RUN_TOOL": "emberpool.run_tool",
    "WATCH_COMMAND": "emberpool.watch_command",
    "SANDBOX_BASH": "sandbox_bash",
    "SANDBOX_READ": "sandbox_read",
    "SANDBOX_WRITE": "sandbox_write",
    "TOOL_CALL": "EmberpoolToolCall",
    "ROLLOUT": "EmberpoolRollout",
    "ROLLOUT_BATCH": "EmberpoolRolloutBatch",
    "ROLLOUT_SHARD": "EmberpoolRolloutShard",
    "POOL_MANAGER": "EmberpoolPoolManager",
    "SET_BUDGET": "set_budget",
    "APPLY_PROFILE": "apply_profile",
    "DRAIN": "drain",
    "POOL_STATUS": "status",
    "BATCH_PROGRESS": "progress",
    "SANDBOX_SESSION": "EmberpoolSandboxSession",
    "SESSION_OPEN": "open",
    "SESSION_START": "start",
    "SESSION_WAIT": "wait",
    "SESSION_KILL": "kill",
    "SESSION_WRITE": "write_file",
    "SESSION_READ": "read_file",
    "SESSION_CLOSE": "close",
    "SANDBOX_HEADER": "emberpool-sandbox",
}
