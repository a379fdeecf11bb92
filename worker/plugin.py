"""EmberpoolPlugin: what a Temporal client and its workers need for emberpool, in one argument.

Register it on the Client; workers made from that client inherit it. With settings, a worker on the settings' task queue
also runs the activities, with companion workers for the queues NAME-control, NAME-wait and NAME-tools.
"""

import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter, DefaultPayloadConverter
from temporalio.plugin import SimplePlugin
from temporalio.service import ConnectConfig, ServiceClient
from temporalio.worker import Replayer, Worker, WorkerConfig, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from emberpool.activities.agent_tools import AgentCalls
from emberpool.pool.model.errors import EmberpoolError
from emberpool.worker.companions import Companions, queue_role
from emberpool.worker.interceptor import CurrentSandboxInterceptor
from emberpool.worker.settings import Settings
from emberpool.worker.workflow_loading import steady
from emberpool.workflows.batch import RolloutBatch, RolloutShard
from emberpool.workflows.gang_job import GangJob
from emberpool.workflows.pool_manager import PoolManager
from emberpool.workflows.rollout import Rollout
from emberpool.workflows.session import SandboxSession
from emberpool.workflows.tool_call import ToolCall

WORKFLOWS: tuple[type, ...] = (ToolCall, SandboxSession, Rollout, RolloutBatch, RolloutShard, GangJob, PoolManager)

PASSED_THROUGH = {
    "emberpool.pool": "its models must be the very classes that the data converter builds",
    "emberpool.activities": "names and payload models, likewise",
    "emberpool.worker": "a file that holds a workflow and the program that registers this plugin imports it",
    "emberpool.workflows": "deterministic and without state of their own; loading them anew took 7-10 ms of each run",
}
"""Modules that Temporal's workflow sandbox does not load anew, each with its reason."""


class EmberpoolPlugin(SimplePlugin):
    """Registers emberpool's workflows and, given settings, runs its activities.

    It extends the data converter (replacing only the SDK's default payload converter) and the workflow runner that it
    is given, so list it after plugins that bring a converter of their own. Registering it twice is harmless.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        """Without settings: workflows only, for clients and for workers that leave the activities to others."""
        self._settings = settings
        self._companions = Companions(settings) if settings is not None else None
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            "emberpool.EmberpoolPlugin",
            data_converter=extended_converter,
            interceptors=[CurrentSandboxInterceptor(self._agent_calls)],
            workflows=with_workflows,
            workflow_runner=extended_runner,
            workflow_failure_exception_types=[EmberpoolError],
        )

    def _agent_calls(self) -> AgentCalls | None:
        return self._companions.agent_calls if self._companions is not None else None

    async def metrics_url(self) -> str:
        """Where this worker's metrics are served, once they are; empty if the settings ask for none."""
        server = self._companions.metrics_server if self._companions is not None else None
        if server is None:
            return ""
        await server.serving.wait()
        return server.url

    async def connect_service_client(
        self, config: ConnectConfig, next: Callable[[ConnectConfig], Awaitable[ServiceClient]]
    ) -> ServiceClient:
        """Where metrics are wanted, give the client a runtime that keeps the SDK's; one of the user's own stays."""
        server = self._companions.metrics_server if self._companions is not None else None
        if server is not None and config.runtime is None:
            config = dataclasses.replace(config, runtime=server.runtime())
        return await super().connect_service_client(config, next)

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add our activities to the queues that are ours, and nothing but workflows elsewhere."""
        config = super().configure_worker(config)
        companions = self._companions
        given = cast(dict[str, Any], config)  # one of its types is only partly known
        role = queue_role(self._settings, given.get("task_queue"))
        if companions is None or role is None:
            return config
        present: list[Callable[..., Any]] = list(given.get("activities") or [])
        config["activities"] = _without_repeats(present, companions.activities(role))
        companions.tune(role, config)
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Around the worker on our main queue: connections, companion workers and the pool managers."""
        if self._companions is None or queue_role(self._settings, worker.task_queue) != "main":
            await next(worker)
            return
        async with self._companions.running(worker.client):
            await next(worker)

    @asynccontextmanager
    async def run_replayer(self, replayer: Replayer, histories: Any, next: Any) -> AsyncGenerator[Any]:
        """A replay opens no connection."""
        async with next(replayer, histories) as results:
            yield results


def extended_converter(given: DataConverter | None) -> DataConverter:
    """The given converter, with the SDK's default payload converter replaced by the pydantic one; codec and rest
    stay."""
    given = given or DataConverter.default
    if given.payload_converter_class is not DefaultPayloadConverter:
        return given
    return dataclasses.replace(given, payload_converter_class=PydanticPayloadConverter)


def extended_runner(given: WorkflowRunner | None) -> WorkflowRunner:
    """The given runner with our modules passed through and steady loading; an unsandboxed runner stays as it is."""
    if given is None:
        raise ValueError("EmberpoolPlugin: the worker has no workflow runner to extend")
    if not isinstance(given, SandboxedWorkflowRunner):
        return given
    passing = dataclasses.replace(given, restrictions=given.restrictions.with_passthrough_modules(*PASSED_THROUGH))
    return steady(passing)


def with_workflows(given: Sequence[type] | None) -> Sequence[type]:
    """The given workflows and ours, each once."""
    present = list(given or [])
    return present + [workflow for workflow in WORKFLOWS if workflow not in present]


def _without_repeats(present: list[Callable[..., Any]], ours: list[Callable[..., Any]]) -> list[Callable[..., Any]]:
    """Ours come once, also when the plugin was registered on client and worker both."""
    names = {_name(one) for one in present}
    return present + [one for one in ours if _name(one) not in names]


def _name(function: Callable[..., Any]) -> str | None:
    definition = getattr(function, "__temporal_activity_definition", None)
    return definition.name if definition is not None else None
