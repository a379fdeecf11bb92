"""What a failure is called in front of a person: cause, remedy, and the last lines of a log if there is one."""

from dataclasses import dataclass
from typing import cast

from pydantic import ValidationError
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError, TimeoutError
from temporalio.service import RPCError, RPCStatusCode

from emberpool.activities.errors import typed as typed_error
from emberpool.pool.model.errors import EmberpoolError
from emberpool.worker.stack.errors import StackError


@dataclass(frozen=True)
class Explained:
    """The words for one failure."""

    cause: str
    remedy: str
    log_tail: str = ""


def explain(error: BaseException) -> Explained:
    """The words for any exception. Of a group with one member, the member counts."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return explain(group.exceptions[0]) if len(group.exceptions) == 1 else _unexpected(group)
    if isinstance(error, StackError):
        return Explained(str(error), error.remedy, error.log_tail)
    if isinstance(error, EmberpoolError):
        return Explained(Exception.__str__(error), error.remedy)
    if isinstance(error, ValidationError):
        return _setting(error)
    if isinstance(error, WorkflowFailureError):
        return _workflow(error)
    if isinstance(error, RPCError):
        return _refused(error)
    if isinstance(error, RuntimeError) and str(error).startswith("Failed client connect"):
        remedy = "set TEMPORAL_ADDRESS to HOST:PORT of a server that runs, or start one with `emberpool dev`"
        return Explained(f"Temporal cannot be reached: {_core(str(error))}", remedy)
    if isinstance(error, KeyError) and "Unknown payload encoding" in str(error):
        remedy = "set EMBERPOOL_DATA_CONVERTER to what the workers have"
        return Explained(f"the workers' answer cannot be read: {error.args[0]}", remedy)
    return _unexpected(error)


def _workflow(error: WorkflowFailureError) -> Explained:
    cause = error.cause
    typed = typed_error(cause)
    if typed is not None:
        return explain(typed)
    if isinstance(cause, CancelledError | TerminatedError):
        return Explained("the workflow was ended from outside", "start it again")
    if isinstance(cause, TimeoutError):
        return Explained("the workflow's time ran out", "see that workers run: `temporal task-queue describe`")
    kind = cause.type if isinstance(cause, ApplicationError) else type(cause).__name__
    return Explained(f"the workflow failed: {kind}: {cause}", "look at it in the Temporal UI")


def _refused(error: RPCError) -> Explained:
    remedies = {
        RPCStatusCode.NOT_FOUND: "check --namespace, --deployment and the name",
        RPCStatusCode.UNAVAILABLE: "set TEMPORAL_ADDRESS to HOST:PORT of a server that runs",
        RPCStatusCode.PERMISSION_DENIED: "check the key or the certificate of Temporal's profile",
        RPCStatusCode.UNAUTHENTICATED: "check the key or the certificate of Temporal's profile",
    }
    return Explained(f"Temporal: {error.message}", remedies.get(error.status, "see the server's log"))


def _unexpected(error: BaseException) -> Explained:
    what = f"unexpected {type(error).__name__}: {error}"
    return Explained(what, "run `emberpool --debug ...` for the traceback, and report it")


def _setting(error: ValidationError) -> Explained:
    # Of several wrong settings the first is enough: the next one shows once it is corrected.
    first = error.errors()[0]
    name = "EMBERPOOL_" + "_".join(str(part) for part in first["loc"]).upper()
    return Explained(f"{name} ({error.title}): {first['msg']}", f"correct {name}, or unset it to have the default")


def _core(text: str) -> str:
    return text.removeprefix("Failed client connect: ")[:300]
