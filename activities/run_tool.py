"""A whole tool call as one standalone activity: claim, climb the ladder, bind, run, release, recycle.

Its id is the caller's idempotency key, and the server sees that it runs once. A worker may die at any point of it, so
each step must be found again by the next attempt: the claim by a request id that is made from the activity's identity,
the command by its execution id, and what it came to, once the pod is given back, by a heartbeat that the server has
acknowledged.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import ValidationError
from temporalio import activity
from temporalio.api.common.v1 import Payloads
from temporalio.api.workflowservice.v1 import RecordActivityTaskHeartbeatRequest
from temporalio.exceptions import ApplicationError

from emberpool.activities import names
from emberpool.activities.errors import translated
from emberpool.activities.execution import execution_id
from emberpool.activities.ladder import Ladder
from emberpool.activities.models import (
    BindInput,
    CallOutput,
    Lease,
    ProvisionInput,
    ReservedPodInput,
    RunInput,
    StepOutput,
    WaitInput,
)
from emberpool.activities.pools import Pools
from emberpool.activities.prepare import Preparing
from emberpool.activities.prepare_models import PrepareInput
from emberpool.activities.recycle import release_request
from emberpool.activities.sandbox_calls import SandboxCalls
from emberpool.activities.sweep import release_if_closed
from emberpool.pool.model.claim import ClaimSpec, Holder, Promote, Provision, SandboxRef, Step, Swap, Wait
from emberpool.pool.model.errors import EmberpoolError, InvalidInput, NoCapacity
from emberpool.pool.model.ids import RequestId
from emberpool.pool.model.recycle import RecycleOutcome
from emberpool.pool.model.tool import RunToolInput, RunToolOutput

log = logging.getLogger(__name__)

MAX_FAILURES = 3
"""Pods in a row that may fail, to start or to take another image, for one claim before it ends with NoCapacity and the
reason."""

Out = TypeVar("Out", bound=CallOutput)


class OneShot:
    """The activity of callers outside Temporal; it goes through the same calls and steps as a workflow's sandbox."""

    def __init__(self, pools: Pools, calls: SandboxCalls, ladder: Ladder, preparing: Preparing) -> None:
        self._pools, self._calls, self._ladder, self._preparing = pools, calls, ladder, preparing

    @activity.defn(name=names.RUN_TOOL)
    async def run_tool(self, call: RunToolInput) -> RunToolOutput:
        """Run one command in a sandbox of its own and give the pod back; a failing command is a result.

        Raises InvalidInput if a workflow calls it: a workflow has `Sandbox`, which costs one activity too.
        """
        with translated():
            ref = _ref(call)
            known = _recorded()
            if known is not None:
                return known.model_copy(update={"recycled": await self._leave(ref)})
            try:
                output = await self._run(ref, call)
            except asyncio.CancelledError:
                await asyncio.shield(self._on_cancel(ref))
                raise
            except Exception as error:
                if not _retried(error):
                    await self._leave(ref)
                raise
            await _record(output)
            return output.model_copy(update={"recycled": await self._leave(ref)})

    async def _run(self, ref: SandboxRef, call: RunToolInput) -> RunToolOutput:
        opening: Lease | None = None
        if call.files or not call.binding().empty:
            bound = await self._answered(ref, lambda now: self._bind(now, call))
            ref, opening = _learnt(ref, bound), bound.lease
        done = await self._answered(ref, lambda now: self._calls.run_command(RunInput(ref=now, command=call.command)))
        if done.result is None:
            raise RuntimeError("an answered command has a result")
        lease = done.lease
        opening = opening or lease
        return RunToolOutput(
            result=done.result,
            digest=call.digest(),
            pod=lease.pod if lease else "",
            source=lease.source if lease else None,
            ttfc_s=opening.ttfc_s if opening else None,
        )

    async def _bind(self, ref: SandboxRef, call: RunToolInput) -> CallOutput:
        if call.binding().empty:
            return await self._calls.bind_job(BindInput(ref=ref, files=call.files))
        bundle, requirements, secrets = call.bundle, call.requirements, call.secrets
        return await self._preparing.prepare_job(
            PrepareInput(ref=ref, files=call.files, bundle=bundle, requirements=requirements, secrets=secrets)
        )

    async def _answered(self, ref: SandboxRef, ask: Callable[[SandboxRef], Awaitable[Out]]) -> Out:
        """Ask, take the step that the answer names, and ask again, until it is answered."""
        failures: list[str] = []
        while True:
            output = await ask(ref)
            if output.step is None:
                return output
            await self._climb(ref, output.step, failures)

    async def _climb(self, ref: SandboxRef, step: Step, failures: list[str]) -> None:
        match step:
            case Wait():
                await self._ladder.wait_for_pod(WaitInput(ref=ref, drain=step.drain))
            case Promote():
                await self._ladder.promote_standby(ReservedPodInput(ref=ref, pod=step.pod))
            case Swap():
                output = await self._ladder.swap_image(ReservedPodInput(ref=ref, pod=step.pod, image=step.image))
                _count(output, ref, failures)
            case Provision():
                output = await self._ladder.provision_pod(ProvisionInput(ref=ref, pod=step.pod, image=step.image))
                _count(output, ref, failures)

    async def _leave(self, ref: SandboxRef) -> RecycleOutcome | None:
        """Give the pod back. Trouble here is no trouble of the call: `tend_pool` finishes what is left."""
        try:
            return (await release_request(self._pools.get(ref.spec.profile), ref.request_id, False)).outcome
        except EmberpoolError as error:
            log.warning("request %s: not released yet: %s", ref.request_id, error)
            return None

    async def _on_cancel(self, ref: SandboxRef) -> None:
        """Release if the caller asked for the end; a worker that stops leaves everything to the next attempt."""
        details = activity.cancellation_details()
        if details is None:
            return
        if details.cancel_requested:
            await self._leave(ref)
        elif details.not_found:
            await release_if_closed(self._pools.get(ref.spec.profile), ref)


def _count(output: StepOutput, ref: SandboxRef, failures: list[str]) -> None:
    if output.failure:
        failures.append(output.failure)
        if len(failures) >= MAX_FAILURES:
            raise NoCapacity(ref.spec.profile, 0.0, f"{MAX_FAILURES} pods in a row failed: {output.failure}")


def _ref(call: RunToolInput) -> SandboxRef:
    info = activity.info()
    if info.activity_run_id is None:
        raise InvalidInput(names.RUN_TOOL, "is for callers outside Temporal; in a workflow open a Sandbox")
    spec = ClaimSpec(
        profile=call.profile,
        caller=call.caller,
        image=call.image,
        reuse_key=call.reuse_key,
        fingerprint=call.binding().fingerprint(),
        wait_timeout_s=call.wait_timeout_s,
        priority=call.priority,
    )
    holder = Holder(namespace=info.namespace, activity_id=info.activity_id, run_id=info.activity_run_id)
    # The same in every attempt, so that a later one finds the lease of the one before.
    request_id = RequestId(hashlib.sha256(execution_id().encode()).hexdigest()[:32])
    return SandboxRef(request_id=request_id, spec=spec, holder=holder)


def _retried(error: Exception) -> bool:
    """Whether Temporal tries again after this error: then the request stays as it is for the next attempt."""
    if isinstance(error, ApplicationError):
        return not error.non_retryable
    return not isinstance(error, EmberpoolError) or error.retryable


def _learnt(ref: SandboxRef, answer: CallOutput) -> SandboxRef:
    """The ref with what its first answer told: from then on a lost pod is SandboxLost, never a new pod."""
    epoch = answer.lease.epoch if answer.lease else None
    return ref.model_copy(update={"epoch": epoch, "first_scheduled": answer.first_scheduled})


def _recorded() -> RunToolOutput | None:
    """What an earlier attempt had recorded: the command's end."""
    for detail in activity.info().heartbeat_details:
        try:
            return RunToolOutput.model_validate(detail)
        except ValidationError:
            continue
    return None


async def _record(output: RunToolOutput) -> None:
    """Have the server keep the command's end before the pod is given back: the pod forgets it then.

    The worker's own heartbeats are throttled and may never be sent, so this one is sent by hand and awaited.
    """
    activity.heartbeat(output)  # whatever the worker still sends is this one
    info, client = activity.info(), activity.client()
    payloads = await client.data_converter.encode([output])
    await client.workflow_service.record_activity_task_heartbeat(
        RecordActivityTaskHeartbeatRequest(
            namespace=info.namespace,
            task_token=info.task_token,
            details=Payloads(payloads=payloads),
            identity=client.identity,
        )
    )
