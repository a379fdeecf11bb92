"""Every error that emberpool raises at its callers, each with its fields and its remedy.

The names are part of the contract: they cross Temporal as `ApplicationError.type`, with the fields as details
(activities/errors.py translates both ways). A command's own failure is a result and none of these,
except where a caller asked for an exception by `CommandResult.check`.
"""

from typing import ClassVar


class EmberpoolError(Exception):
    """Base of all. `retryable` says whether the same call may succeed later; `remedy` is one sentence."""

    retryable: ClassVar[bool] = False
    remedy: ClassVar[str] = ""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} ({self.remedy})" if self.remedy else text


class InvalidInput(EmberpoolError):
    """An argument that can never work. Raised by models, workflows and activities before a pod is claimed; not
    retried."""

    remedy = "correct the named field and call again"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem


class SandboxLost(EmberpoolError):
    """The sandbox and all state in it are gone. Raised by any call on it, caught by the workflow; not retried.

    `reason` is one word (hold_expired, pod_gone, restarted, evicted, oom, fenced, ...); `executed` says whether the
    command of this call ran: yes, no or unknown.
    """

    remedy = "open a new sandbox and repeat from a state that you can rebuild"

    def __init__(self, reason: str, executed: str = "no", detail: str = "") -> None:
        super().__init__(f"sandbox lost: {reason}, executed={executed}{': ' + detail if detail else ''}")
        self.reason, self.executed, self.detail = reason, executed, detail


class NoCapacity(EmberpoolError):
    """No pod became free before the claim's deadline. Raised by the wait; the caller decides, emberpool does not
    retry."""

    remedy = "raise the pool's budget or the claim's wait_timeout, or open fewer sandboxes at once"

    def __init__(self, profile: str, waited_s: float, detail: str = "") -> None:
        super().__init__(f"no pod of profile {profile!r} within {waited_s:.0f} s{': ' + detail if detail else ''}")
        self.profile, self.waited_s, self.detail = profile, waited_s, detail


class SandboxClosed(EmberpoolError):
    """The sandbox was released. Raised by calls that come after it, also late retries; not retried."""

    remedy = "open a new sandbox; a handle ends with its `async with` block"

    def __init__(self, request_id: str) -> None:
        super().__init__(f"sandbox {request_id} is closed")
        self.request_id = request_id


class RequestMismatch(EmberpoolError):
    """A request id came back with another caller or profile, or a tool call's id with another command. Raised by the
    index and by ToolClient; not retried."""

    remedy = "make one request id per sandbox and one call id per tool call; never copy one"

    def __init__(self, request_id: str) -> None:
        super().__init__(f"request {request_id} belongs to another caller, profile or command")
        self.request_id = request_id


class NoCurrentSandbox(EmberpoolError):
    """A tool was called where no sandbox is current. Raised by the tools for agents; not retried."""

    remedy = "call it inside `async with sandbox.current():`, with EmberpoolPlugin on the workflow's client"

    def __init__(self, tool: str) -> None:
        super().__init__(f"tool {tool!r}: no sandbox is current")
        self.tool = tool


class PodUnreachable(EmberpoolError):
    """emberd did not answer, or not with a valid signature. Raised by pool/client; retried a bounded number of times.

    `sent` is False only where the request cannot have reached emberd: no connection was ever made.
    """

    retryable = True
    remedy = "transient; if it lasts, look at the pod's log"
    untrusted = False
    """Whether it is for a certificate, or for TLS that only one side speaks: that lasts. Does not cross Temporal."""
    silent_s = 0.0
    """Seconds for which nothing was heard of emberd before this was raised, as far as is known. Does not cross it
    either."""

    def __init__(self, pod: str, detail: str, sent: bool = True) -> None:
        super().__init__(f"pod {pod}: {detail}")
        self.pod, self.detail, self.sent = pod, detail, sent


class PodRefused(EmberpoolError):
    """emberd answered, rightly signed, that it will not: the lease is over, or was never this one.

    Raised by pool/client, caught by the activities, which turn it into SandboxLost or move a new claim; not retried.
    `word` is one of docs/emberd-protocol.md: other_boot, stale_epoch, lease_over, other_lease, other_tag, not_clean,
    not_fenced, unknown_execution, standing_by, no_image, no_room, no_network, other_gang. `sent` is True if the call's
    command may have started before the refusal.
    """

    remedy = "open a new sandbox"

    def __init__(self, word: str, detail: str = "", sent: bool = False) -> None:
        super().__init__(f"refused: {word}{': ' + detail if detail else ''}")
        self.word, self.detail, self.sent = word, detail, sent


class SandboxFileError(EmberpoolError):
    """A file of the sandbox cannot be read or written. Raised by file calls; the sandbox lives on; not retried.

    `reason` is one word: not_found, too_large, not_a_file (a folder, FIFO, device or socket), bad_archive (an entry is
    refused: `detail` names it), or file_refused (no permission, read-only, no space: `detail` says which).
    """

    remedy = "give the path of a regular file in a folder that jobs may write, within the size limit"

    def __init__(self, path: str, reason: str, detail: str = "") -> None:
        super().__init__(f"{path!r}: {reason}{': ' + detail if detail else ''}")
        self.path, self.reason, self.detail = path, reason, detail


class PoolUnavailable(EmberpoolError):
    """Redis or the provider cannot be reached, or the index is being rebuilt. Retried until the claim's deadline."""

    retryable = True
    remedy = "transient; if it lasts, look at Redis and at the provider"


class CommandFailed(EmberpoolError):
    """The command did not succeed. Raised only by `CommandResult.check`."""

    remedy = "read the command's output"

    def __init__(self, outcome: str, exit_code: int | None, signal: int | None, tail: str) -> None:
        how = f"signal {signal}" if signal is not None else f"exit status {exit_code}"
        super().__init__(f"command {outcome}, {how}: {tail}")
        self.outcome, self.exit_code, self.signal, self.tail = outcome, exit_code, signal, tail


class CommandTimedOut(CommandFailed):
    """The command's time limit passed. Raised only by `CommandResult.check`."""

    remedy = "raise time_limit_s, or make the command end sooner"

    def __init__(self, time_limit_s: float, tail: str) -> None:
        EmberpoolError.__init__(self, f"command timed out after {time_limit_s:g} s: {tail}")
        self.outcome, self.exit_code, self.signal, self.tail = "timed_out", None, 9, tail
        self.time_limit_s = time_limit_s


class CommandOutOfMemory(CommandFailed):
    """The command went over the sandbox's memory limit. Raised only by `CommandResult.check`."""

    remedy = "raise limits.memory_mb of the profile, or use less memory"

    def __init__(self, tail: str) -> None:
        EmberpoolError.__init__(self, f"command used more memory than the profile allows: {tail}")
        self.outcome, self.exit_code, self.signal, self.tail = "oom_killed", None, 9, tail


class ShellOver(EmberpoolError):
    """The shell had ended before the call. Raised by calls in a shell; the sandbox lives on; not retried.

    `exit_code` is its exit status, None if it was killed.
    """

    remedy = "open a new shell; what was set in the old one is gone, files are not"

    def __init__(self, shell_id: str, exit_code: int | None) -> None:
        how = "was killed" if exit_code is None else f"ended with exit status {exit_code}"
        super().__init__(f"shell {shell_id!r} {how}; the command did not run")
        self.shell_id, self.exit_code = shell_id, exit_code


class PortUnreachable(EmberpoolError):
    """No server of the sandbox answered on the port. Raised by requests to ports; the sandbox lives on; not retried."""

    remedy = "wait until the server listens on 127.0.0.1 or 0.0.0.0, or raise time_limit_s"

    def __init__(self, port: int, detail: str) -> None:
        super().__init__(f"port {port}: {detail}")
        self.port, self.detail = port, detail


class ProcessUnknown(EmberpoolError):
    """The sandbox has no process of that id. Raised by calls on processes; not retried."""

    remedy = "start it first; ids of an earlier sandbox are not known"

    def __init__(self, process_id: str) -> None:
        super().__init__(f"process {process_id!r} was never started in this sandbox")
        self.process_id = process_id


class CommandFilledDisk(CommandFailed):
    """The sandbox's files went over its disk limit. Raised only by `CommandResult.check`."""

    remedy = "raise limits.disk_mb of the profile, or write less; deleting files in the sandbox makes room again"

    def __init__(self, tail: str) -> None:
        EmberpoolError.__init__(self, f"the sandbox used more disk than the profile allows: {tail}")
        self.outcome, self.exit_code, self.signal, self.tail = "disk_full", None, 9, tail


class IndexRebuilding(PoolUnavailable):
    """The index has no generation: Redis was lost or is new. Raised by every transition but `claim`; retried."""

    remedy = "transient: a worker rebuilds the index from the pods"
