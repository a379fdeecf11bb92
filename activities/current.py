"""Which sandbox is current: in a workflow a context variable, in an activity what the header says.

Temporal's workflow sandbox passes this module through, so that the plugin's interceptor and the code of a workflow look
at one variable.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol

from temporalio.api.common.v1 import Payload

from emberpool.activities import names
from emberpool.pool.model.claim import SandboxRef


class Current(Protocol):
    """A sandbox handle, as far as the interceptor needs it."""

    @property
    def ref(self) -> SandboxRef: ...

    @property
    def task_queue(self) -> str: ...


CURRENT: ContextVar[Current | None] = ContextVar("emberpool_current_sandbox", default=None)
"""Of the workflow's running task and of the tasks that it starts; set by `Sandbox.current`."""


def to_headers(headers: Mapping[str, Payload], ref: SandboxRef) -> dict[str, Payload]:
    """The headers with the ref: plain JSON whatever converter is in use, since it must come back as it was."""
    data = ref.model_dump_json().encode()
    return {**headers, names.SANDBOX_HEADER: Payload(metadata={"encoding": b"json/plain"}, data=data)}


def from_headers(headers: Mapping[str, Payload]) -> SandboxRef | None:
    """The ref in the headers, if there is one."""
    payload = headers.get(names.SANDBOX_HEADER)
    return SandboxRef.model_validate_json(payload.data) if payload is not None else None
