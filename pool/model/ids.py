"""The identifiers that travel through every layer, each a type of its own so that none is mistaken for another."""

from typing import NewType

RequestId = NewType("RequestId", str)
"""Made once per sandbox handle; also the lease id: at most one pod ever answers to it."""

PodName = NewType("PodName", str)
"""Unique for ever: chosen before the pod is created, so that an intent can be recorded first."""

PodUid = NewType("PodUid", str)
"""What the provider calls this incarnation of a pod; a pod of the same name with another UID is another pod."""

BootId = NewType("BootId", str)
"""Random per start of emberd; with the UID it tells a restarted pod from the one that was leased."""

Tag = NewType("Tag", str)
"""Keyed hash of (namespace, tenant, caller, reuse key), 32 hex digits: whom a used pod may serve again."""

ExecutionId = NewType("ExecutionId", str)
"""Names one start of a command; starting the same id twice runs it once."""


def activity_execution(namespace: str, workflow_id: str, run_id: str, activity_id: str) -> ExecutionId:
    """The execution that belongs to an activity; a standalone one has the workflow id "-" and its own run id."""
    return ExecutionId(f"{namespace}/{workflow_id}/{run_id}/{activity_id}")
