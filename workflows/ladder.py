"""The steps that a claim may ask for, each an activity of its own, visible in the Temporal UI."""

from datetime import timedelta

from temporalio import workflow
from temporalio.workflow import ActivityCancellationType, ActivityConfig

from emberpool.activities import names
from emberpool.activities.models import CallInput, ProvisionInput, ReservedPodInput, StepOutput, WaitInput
from emberpool.pool.model.claim import Promote, Provision, SandboxRef, Step, Swap, Wait
from emberpool.pool.model.errors import NoCapacity
from emberpool.workflows.dispatch import call

MAX_FAILURES = 3
"""Pods in a row that may fail, to start or to take another image, for one claim before it ends with NoCapacity and the
reason: an image that cannot be had must not cost a caller every idle pod."""
SWAPS_COUNT_PATCH = "emberpool-failed-swaps-count"
"""Histories without it are of claims that went on however many swaps had failed."""
SLACK = timedelta(seconds=30)
"""What a wait may take beyond its deadline, for the activity to say so itself."""


async def climb(ref: SandboxRef, step: Step, task_queue: str, failures: list[str]) -> None:
    """Take one step; the caller then claims again. `failures` collects reasons over the steps of one claim.

    Raises:
        NoCapacity: the wait's deadline passed, or pods fail one after the other.
    """
    match step:
        case Wait():
            await _step(
                names.WAIT_FOR_POD,
                WaitInput(ref=ref, drain=step.drain),
                names.wait_queue(task_queue),
                f"wait in line for a pod of {ref.spec.profile}",
                timedelta(seconds=step.left_s) + SLACK,
            )
        case Provision():
            output = await _step(
                names.PROVISION_POD,
                ProvisionInput(ref=ref, pod=step.pod, image=step.image),
                names.control_queue(task_queue),
                f"provision pod {step.pod}",
                timedelta(minutes=10),
            )
            _count(output, ref, failures)
        case Promote():
            await _step(
                names.PROMOTE_STANDBY,
                ReservedPodInput(ref=ref, pod=step.pod),
                names.control_queue(task_queue),
                f"promote standby pod {step.pod}",
                timedelta(minutes=5),
            )
        case Swap():
            output = await _step(
                names.SWAP_IMAGE,
                ReservedPodInput(ref=ref, pod=step.pod, image=step.image),
                names.control_queue(task_queue),
                f"swap image of pod {step.pod}",
                timedelta(minutes=5),
            )
            if output.failure and workflow.patched(SWAPS_COUNT_PATCH):
                _count(output, ref, failures)


def _count(output: StepOutput, ref: SandboxRef, failures: list[str]) -> None:
    if output.failure:
        failures.append(output.failure)
        if len(failures) >= MAX_FAILURES:
            raise NoCapacity(ref.spec.profile, 0.0, f"{MAX_FAILURES} pods in a row failed: {output.failure}")


async def _step(name: str, argument: CallInput, queue: str, summary: str, limit: timedelta) -> StepOutput:
    # Abandoned on cancellation: the release that follows takes the request out of line and wakes the activity.
    config: ActivityConfig = {
        "task_queue": queue,
        "start_to_close_timeout": limit,
        "cancellation_type": ActivityCancellationType.ABANDON,
    }
    return await call(name, argument, StepOutput, summary=summary, config=config)
