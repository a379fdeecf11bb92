"""The calls of a RemoteSandbox that go past its session's workflow: each is a standalone activity on the sandbox that
the session holds, so that what is moved goes through no workflow's history. Reading output works the same way.
"""

import asyncio
import time
import uuid
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.client import ActivityFailureError, Client
from temporalio.workflow import ActivityConfig

from emberpool.activities import names
from emberpool.activities.models import CallInput, StepOutput, WaitInput
from emberpool.pool.model.claim import SandboxRef, Step, Wait
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.frozen import Frozen
from emberpool.pool.model.session import SessionUsed
from emberpool.worker.remote.errors import typed_failure
from emberpool.workflows.dispatch import HEARTBEAT_TIMEOUT, RETRY, demand_fits
from emberpool.workflows.invoker import Out
from emberpool.workflows.ladder import SLACK
from emberpool.workflows.parts import SandboxParts
from emberpool.workflows.transfers import SandboxFiles

Any_ = TypeVar("Any_", bound=Frozen)

TOLD = 0.25
"""Part of the session's idle time-out after which it is told anew that the sandbox is in use."""


class RemoteCalls(SandboxFiles, SandboxParts):
    """Part of RemoteSandbox: files, processes, shells and ports, as they are in workflows."""

    _used: SessionUsed | None = None
    _told = 0.0

    @property
    @abstractmethod
    def client(self) -> Client:
        """The Temporal client that it speaks through."""

    @abstractmethod
    async def used(self) -> SessionUsed:
        """Ask the session for its sandbox, and tell it of a call."""

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
        """Call one of emberpool's activities on the session's sandbox; its claim comes first.

        Raises:
            InvalidInput: the argument is too large for a payload; nothing was started.
            SandboxClosed: the session has ended.
        """
        where = {"task_queue": queue or names.control_queue(self.task_queue)}
        async with self.in_use() as ref:
            while True:
                output = await self.execute(name, argument(ref), result, summary, {**where, **(config or {})})
                if output.step is None:
                    return output
                await self._waited(ref, output.step)

    async def execute(
        self, name: str, argument: Frozen, result: type[Any_], summary: str, options: dict[str, Any]
    ) -> Any_:
        """Run one standalone activity to its end. If we are cancelled it is cancelled too.

        Raises:
            EmberpoolError: the typed error that it failed with.
            ActivityFailureError: it failed otherwise.
        """
        demand_fits(name, argument)
        given: dict[str, Any] = {
            "start_to_close_timeout": timedelta(minutes=5),
            "heartbeat_timeout": HEARTBEAT_TIMEOUT,
            "retry_policy": RETRY,
            "summary": summary,
            **options,
        }
        activity_id = f"emberpool-call/{uuid.uuid4().hex}"
        handle: Any = await self.client.start_activity(name, argument, id=activity_id, result_type=result, **given)
        try:
            output: Any_ = await handle.result()
            return output
        except ActivityFailureError as error:
            raise typed_failure(error) or error from error
        except asyncio.CancelledError:
            await asyncio.shield(handle.cancel())
            raise

    @asynccontextmanager
    async def in_use(self) -> AsyncGenerator[SandboxRef]:
        """The session's sandbox; the session does not count as idle within the block."""
        used = self._used
        if used is None or time.monotonic() > self._told + used.idle_timeout_s * TOLD:
            used = await self._tell()
        telling = asyncio.create_task(self._keep_telling(used.idle_timeout_s * TOLD))
        try:
            yield used.ref
        finally:
            telling.cancel()

    async def _tell(self) -> SessionUsed:
        self._used, self._told = await self.used(), time.monotonic()
        return self._used

    async def _keep_telling(self, gap_s: float) -> None:
        while True:
            await asyncio.sleep(gap_s)
            try:
                await self._tell()
            except EmberpoolError:
                return  # the call itself hears of the session's end

    async def _waited(self, ref: SandboxRef, step: Step) -> None:
        """The sandbox has its pod, so that the only step is to wait for the index."""
        if not isinstance(step, Wait):
            raise RuntimeError(f"a sandbox that has its pod was told to {step.kind}")
        where = {"task_queue": names.wait_queue(self.task_queue)}
        limit = {"start_to_close_timeout": timedelta(seconds=step.left_s) + SLACK}
        given = WaitInput(ref=ref, drain=step.drain)
        await self.execute(names.WAIT_FOR_POD, given, StepOutput, "wait for the index", {**where, **limit})
