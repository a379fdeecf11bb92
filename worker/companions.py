"""The workers beside the main one, and the connections that all of them share."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, Literal, cast

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker, WorkerConfig

from emberpool.activities import names
from emberpool.activities.agent_tools import AGENT_TOOLS, AgentCalls
from emberpool.activities.batch import Batching
from emberpool.activities.blobs import Blobs
from emberpool.activities.checkpoints import Checkpointing
from emberpool.activities.ladder import Ladder
from emberpool.activities.manage import Managing
from emberpool.activities.pools import Pools
from emberpool.activities.prepare import Preparing
from emberpool.activities.processes import ProcessCalls
from emberpool.activities.recycle import Recycling
from emberpool.activities.run_tool import OneShot
from emberpool.activities.sandbox_calls import SandboxCalls
from emberpool.activities.shells import ShellCalls
from emberpool.activities.tend import Tending
from emberpool.activities.transfers import Transferring
from emberpool.pool.model.profile import Profile
from emberpool.worker.connections import open_layers, open_pools
from emberpool.worker.metrics_server import MetricsServer
from emberpool.worker.search_attributes import are_registered
from emberpool.worker.settings import Settings
from emberpool.workflows.pool_manager import Budget, PoolManagerInput

Role = Literal["main", "control", "wait", "tools"]
"""Which of emberpool's queues a worker polls."""


def queue_role(settings: Settings | None, task_queue: str | None) -> Role | None:
    """The role of a worker on `task_queue`, or None if the queue is not one of ours."""
    if settings is None or task_queue is None:
        return None
    roles: dict[str, Role] = {
        settings.task_queue: "main",
        names.control_queue(settings.task_queue): "control",
        names.wait_queue(settings.task_queue): "wait",
        names.tools_queue(settings.task_queue): "tools",
    }
    return roles.get(task_queue)


class Companions:
    """Everything that runs beside the main worker while it runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pools = Pools(settings.heartbeat_s, settings.sweep_quiet_s)
        self._runs = 0
        address = settings.metrics_address
        self._metrics_server = MetricsServer(address, self._pools) if address else None
        calls, ladder, recycling = SandboxCalls(self._pools), Ladder(self._pools), Recycling(self._pools)
        processes, shells = ProcessCalls(self._pools), ShellCalls(self._pools)
        preparing = Preparing(self._pools, *open_layers(settings))
        one_shot = OneShot(self._pools, calls, ladder, preparing)
        self.agent_calls = AgentCalls(self._pools, calls)
        """What the tools of agents work through; the plugin's interceptor hands it to them."""
        blobs = Blobs(settings.blob_url, settings.allowed_urls)
        transferring = Transferring(self._pools, blobs, settings.max_transfer_mb * 1024 * 1024)
        checkpointing = Checkpointing(self._pools, blobs, settings.max_transfer_mb * 1024 * 1024)
        managing, tending = Managing(self._pools), Tending(self._pools)
        batching = Batching(settings.heartbeat_s, blobs, lambda: self._pools.searchable)
        self._activities: Mapping[Role, list[Callable[..., Any]]] = {
            "main": [
                calls.run_command,
                shells.run_in_shell,
                preparing.prepare_job,
                transferring.upload,
                transferring.download,
                transferring.download_output,
                checkpointing.save_checkpoint,
                checkpointing.restore_checkpoint,
                *AGENT_TOOLS,
            ],
            "control": [
                calls.open_sandbox,
                calls.bind_job,
                calls.write_file,
                calls.read_file,
                transferring.list_files,
                transferring.remove_file,
                transferring.blob_place,
                calls.detach_sandbox,
                calls.adopt_sandbox,
                calls.watch_command,
                processes.start_process,
                processes.list_processes,
                processes.steer_process,
                processes.request_port,
                shells.open_shell,
                recycling.recycle_pod,
                ladder.provision_pod,
                ladder.promote_standby,
                ladder.swap_image,
                managing.plan_pool,
                managing.look_at_pool,
                managing.set_targets,
                managing.provision_warm,
                managing.retire_pods,
                tending.tend_pool,
                batching.load_tasks,
                batching.record_result,
            ],
            "wait": [
                ladder.wait_for_pod,
                processes.wait_for_process,
                processes.read_output,
                processes.follow_output,
            ],
            "tools": [one_shot.run_tool],
        }

    @property
    def metrics_server(self) -> MetricsServer | None:
        """What serves this worker's metrics, if the settings ask for it."""
        return self._metrics_server

    def activities(self, role: Role) -> list[Callable[..., Any]]:
        """The activities of one queue."""
        return self._activities[role]

    def tune(self, role: Role, config: WorkerConfig) -> None:
        """Slots, heartbeats and shutdown of one queue's worker; what its owner has set stays."""
        settings = self._settings
        slots = {
            "main": settings.max_concurrent_commands,
            "control": settings.max_concurrent_control,
            "wait": settings.max_concurrent_waits,
            "tools": settings.max_concurrent_tools,
        }
        if role != "main":
            config["workflows"] = []
        given = cast(dict[str, Any], config)  # one of its types is only partly known
        if given.get("tuner") is None and given.get("max_concurrent_activities") is None:
            config["max_concurrent_activities"] = slots[role]
        # The SDK sends a heartbeat at most this often, and a cancellation only comes back with one.
        config["max_heartbeat_throttle_interval"] = timedelta(seconds=settings.heartbeat_s)
        if not given.get("graceful_shutdown_timeout"):
            config["graceful_shutdown_timeout"] = timedelta(seconds=settings.graceful_shutdown_s)

    @asynccontextmanager
    async def running(self, client: Client) -> AsyncGenerator[None]:
        """Open the pools, run the companion workers, and see that the pool managers run. Entered twice, it runs
        once."""
        self._runs += 1
        try:
            if self._runs > 1:
                yield
                return
            async with AsyncExitStack() as stack:
                pools = await open_pools(self._settings, stack, self._pools.metrics)
                self._pools.fill(pools)
                self._pools.searchable = self._settings.search_attributes and await are_registered(client)
                if self._metrics_server is not None:
                    await stack.enter_async_context(self._metrics_server)
                for queue in (names.control_queue, names.wait_queue, names.tools_queue):
                    worker = Worker(client, task_queue=queue(self._settings.task_queue))
                    await stack.enter_async_context(worker)
                if self._settings.start_pool_managers:
                    for pool in pools:
                        await start_pool_manager(client, self._settings, pool.profile)
                yield
        finally:
            self._runs -= 1


STEERING = """Keeps the pool warm within its budget; claims go on without it.

- `emberpool pool status` shows it as it is now; *Current Details* shows it as of the last plan, at most a minute ago.
- `emberpool pool budget PROFILE --max-pods N` or the signal `set_budget` (`{"max_pods": N, "min_warm": M}`) changes
  the budget.
- `emberpool pool drain PROFILE` or the signal `drain` sets it to zero.
"""
"""What a person who finds a pool manager in Temporal's UI is told."""


async def start_pool_manager(client: Client, settings: Settings, profile: Profile) -> None:
    """Start the pool's manager, or tell the one that runs what the profile says now."""
    said = Budget(max_pods=profile.max_pods, min_warm=profile.min_warm)
    await client.start_workflow(
        names.POOL_MANAGER,
        PoolManagerInput(
            deployment=settings.deployment,
            profile=profile.name,
            max_pods=profile.max_pods,
            min_warm=profile.min_warm,
            profile_max_pods=profile.max_pods,
            profile_min_warm=profile.min_warm,
            task_queue=settings.task_queue,
        ),
        id=names.pool_manager_id(settings.deployment, profile.name),
        task_queue=settings.task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal=names.APPLY_PROFILE,
        start_signal_args=[said],
        static_summary=f"pool of profile {profile.name}",
        static_details=STEERING,
    )
