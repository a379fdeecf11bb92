"""What every handle of a sandbox is, whatever is done with it: a lease that its first call claims, which is detached,
adopted and released; and the way in which its calls become activities.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityCancellationType, ActivityConfig

from emberpool.activities import names
from emberpool.activities.models import (
    AdoptInput,
    CallInput,
    CallOutput,
    Lease,
    Nothing,
    RecycleInput,
    RecycleResult,
)
from emberpool.pool.model.claim import SandboxRef, Step
from emberpool.pool.model.errors import PoolUnavailable, SandboxClosed
from emberpool.pool.model.frozen import Frozen
from emberpool.workflows.dispatch import HASTY, PATIENT, RETRY, call
from emberpool.workflows.invoker import Invoker, Out
from emberpool.workflows.ladder import climb

AnyOut = TypeVar("AnyOut", bound=Frozen)


class Handle(Invoker):
    """The lease of one sandbox. Entering adopts a detached one; leaving releases it, whatever happened."""

    def __init__(self, ref: SandboxRef, task_queue: str, adopt: bool = False) -> None:
        self._ref = ref
        self._loop = asyncio.get_running_loop()
        self._task_queue = task_queue
        self._adopt = adopt
        # Its first call takes pods for the whole gang, so that a member is released though it was never called.
        self._used = adopt or ref.gang is not None
        self._detached = False
        self.closed = False
        """Whether it was left: its pod was released, or it was never used."""
        self._climbing = asyncio.Lock()
        self.lease: Lease | None = None
        """The last answer's lease; None until the first call was answered."""
        self.ttfc_s: float | None = None
        """Time to first command of this sandbox, in seconds, once known."""
        self.searchable = False
        """Whether the namespace has emberpool's search attributes, as the worker that answered says."""
        self.recycled: RecycleResult | None = None
        """What became of the pod, once the sandbox was left."""

    @property
    def ref(self) -> SandboxRef:
        """What names this sandbox. Holds no secret."""
        return self._ref

    @property
    def task_queue(self) -> str:
        """Name of emberpool's task queues."""
        return self._task_queue

    async def detach(self) -> SandboxRef:
        """Give the sandbox on to a continue-as-new or a child: leaving keeps it, `Sandbox.adopt(ref)` takes it over.

        Until then it is not swept, only its hold runs on.
        """
        await self._control(names.DETACH_SANDBOX, CallInput(ref=self._ref), Nothing, "detach sandbox")
        self._detached = True
        return self._ref

    async def __aenter__(self) -> Self:
        if self._adopt:
            try:
                await self._control(names.ADOPT_SANDBOX, AdoptInput(ref=self._ref), Nothing, "adopt sandbox")
            except (asyncio.CancelledError, ActivityError):
                await self.close()  # detached, it is not swept: nobody else releases it before its hold ends
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, PoolUnavailable):
            await self.close()
            return
        # It has waited for the index long enough; what it may hold is taken back by the sweep.
        with suppress(PoolUnavailable):
            await self._close(HASTY)

    async def close(self) -> None:
        """Release the sandbox and recycle its pod. A cancellation waits until that has ended, and is raised then."""
        await self._close(PATIENT)

    @property
    def astray(self) -> bool:
        """Whether this is no code of its workflow that runs, but what an eviction left of it and is now thrown away:
        outside of any event loop, or in that of another workflow, wherever the garbage collector finds it."""
        return not workflow.in_workflow() or asyncio.get_running_loop() is not self._loop

    async def _close(self, retry: RetryPolicy) -> None:
        if self.astray:
            return
        if self.closed or self._detached or not self._used:
            self.closed = True
            return
        self.closed = True
        releasing = self._release(retry)
        try:
            release = asyncio.create_task(releasing)
        except BaseException:
            releasing.close()  # a workflow that is being evicted from the cache starts no task: nothing is released
            raise
        cancelled: asyncio.CancelledError | None = None
        while not release.done():
            try:
                await asyncio.shield(release)
            except asyncio.CancelledError as error:
                cancelled = error
        if not release.cancelled() and release.exception() is None:
            self.recycled = release.result()
        if cancelled is not None:
            raise cancelled
        release.result()  # raises what the release failed with

    async def _release(self, retry: RetryPolicy) -> RecycleResult:
        return await self._control(
            names.RECYCLE_POD, RecycleInput(ref=self._ref), RecycleResult, "release and recycle the pod", retry
        )

    async def _control(
        self, name: str, argument: CallInput, result: type[AnyOut], summary: str, retry: RetryPolicy = RETRY
    ) -> AnyOut:
        config: ActivityConfig = {
            "task_queue": names.control_queue(self._task_queue),
            "cancellation_type": ActivityCancellationType.ABANDON,
            "retry_policy": retry,
        }
        return await call(name, argument, result, summary=summary, config=config)

    async def invoke(
        self,
        name: str,
        argument: Callable[[SandboxRef], CallInput],
        result: type[Out],
        *,
        summary: str,
        queue: str | None = None,
        config: ActivityConfig | None = None,
    ) -> Out:
        """Call one of emberpool's activities on this sandbox and take the steps that its claim asks for. What the
        handle's own calls and its parts (files, processes) are made of; `queue` defaults to that of short work.
        """
        if self.closed or self._detached:
            raise SandboxClosed(self._ref.request_id)
        self._used = True
        options: ActivityConfig = {"task_queue": queue or names.control_queue(self._task_queue), **(config or {})}
        failures: list[str] = []
        while True:
            output = await call(name, argument(self._ref), result, summary=summary, config=options)
            self._learn(output)
            if output.step is None:
                return output
            await self._climb(output.step, failures)

    async def _climb(self, step: Step, failures: list[str]) -> None:
        """Take one step; of concurrent first calls only one takes it, the others ask again after it."""
        if self._climbing.locked():
            async with self._climbing:
                return
        async with self._climbing:
            await climb(self._ref, step, self._task_queue, failures)

    def _learn(self, output: CallOutput) -> None:
        if self._ref.first_scheduled is None and output.first_scheduled is not None:
            self._ref = self._ref.model_copy(update={"first_scheduled": output.first_scheduled})
        self.searchable = self.searchable or output.searchable
        if output.lease is None:
            return
        if self.ttfc_s is None:
            self.ttfc_s = output.lease.ttfc_s
        self.lease = output.lease
        if self._ref.epoch is None:
            self._ref = self._ref.model_copy(update={"epoch": output.lease.epoch})
