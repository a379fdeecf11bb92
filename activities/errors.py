"""The one translator between emberpool's errors and Temporal's: the only place that decides what is retried."""

from collections.abc import Generator
from contextlib import contextmanager

from temporalio.exceptions import ActivityError, ApplicationError, ApplicationErrorCategory

from emberpool.pool.model.errors import (
    CommandFailed,
    CommandFilledDisk,
    CommandOutOfMemory,
    CommandTimedOut,
    EmberpoolError,
    InvalidInput,
    NoCapacity,
    NoCurrentSandbox,
    PodRefused,
    PodUnreachable,
    PoolUnavailable,
    PortUnreachable,
    ProcessUnknown,
    RequestMismatch,
    SandboxClosed,
    SandboxFileError,
    SandboxLost,
    ShellOver,
)

_ARGUMENTS: dict[type[EmberpoolError], tuple[str, ...]] = {
    InvalidInput: ("field", "problem"),
    SandboxLost: ("reason", "executed", "detail"),
    NoCapacity: ("profile", "waited_s", "detail"),
    SandboxClosed: ("request_id",),
    RequestMismatch: ("request_id",),
    NoCurrentSandbox: ("tool",),
    SandboxFileError: ("path", "reason", "detail"),
    PodUnreachable: ("pod", "detail", "sent"),
    PodRefused: ("word", "detail", "sent"),
    CommandFailed: ("outcome", "exit_code", "signal", "tail"),
    CommandTimedOut: ("time_limit_s", "tail"),
    CommandFilledDisk: ("tail",),
    CommandOutOfMemory: ("tail",),
    ShellOver: ("shell_id", "exit_code"),
    PortUnreachable: ("port", "detail"),
    ProcessUnknown: ("process_id",),
}
"""Each error's constructor arguments, in order: they travel as the details of the ApplicationError."""

NON_RETRYABLE = [kind.__name__ for kind in _ARGUMENTS if not kind.retryable] + ["PayloadsTooLarge", "PayloadSizeError"]
"""For retry policies. A payload over the limit can never succeed, and is retried for ever by default
(pydantic-ai#7157)."""


def to_temporal(error: EmberpoolError, final: bool = False) -> ApplicationError:
    """The error as Temporal carries it: type is the class name, details are the constructor's arguments.

    `final` says that even a transient error is not to be retried any more.
    """
    names = _ARGUMENTS.get(type(error), ())
    return ApplicationError(
        str(error)[:2000],
        *[getattr(error, name) for name in names],
        type=type(error).__name__,
        non_retryable=final or not error.retryable,
        category=ApplicationErrorCategory.UNSPECIFIED,
    )


def from_temporal(error: ActivityError) -> EmberpoolError | None:
    """The typed error that an activity failed with, or None if it is none of ours."""
    return typed(error.cause)


def typed(cause: BaseException | None) -> EmberpoolError | None:
    """The typed error that crossed Temporal as an ApplicationError, or None if it is none of ours."""
    if not isinstance(cause, ApplicationError):
        return None
    for kind, names in _ARGUMENTS.items():
        if kind.__name__ == cause.type and len(cause.details) >= len(names):
            return kind(*cause.details[: len(names)])
    if cause.type in (PoolUnavailable.__name__, "IndexRebuilding"):
        return PoolUnavailable(cause.message)
    return None


@contextmanager
def translated() -> Generator[None]:
    """Around an activity's body: typed errors leave as ApplicationErrors, everything else as it is."""
    try:
        yield
    except EmberpoolError as error:
        raise to_temporal(error) from error
