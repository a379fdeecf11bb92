"""The activities on background processes, on the output of executions, and on ports of a sandbox."""

from temporalio import activity

from emberpool.activities import names
from emberpool.activities.calls import OpenCall
from emberpool.activities.errors import translated
from emberpool.activities.models import CallInput, CallOutput
from emberpool.activities.on_pod_calls import SHORT_S, answered
from emberpool.activities.pools import Pools
from emberpool.activities.process_models import (
    FollowOutputInput,
    FollowOutputOutput,
    ListProcessesOutput,
    ReadOutputInput,
    ReadOutputOutput,
    RequestPortInput,
    RequestPortOutput,
    StartProcessInput,
    SteerProcessInput,
    SteerProcessOutput,
    WaitForProcessInput,
    WaitForProcessOutput,
)
from emberpool.pool.client import following, ports, processes
from emberpool.pool.model.command import CommandResult
from emberpool.pool.model.errors import PodRefused, ProcessUnknown
from emberpool.pool.model.ids import ExecutionId
from emberpool.pool.model.port import PortAnswer
from emberpool.pool.model.process import ProcessLine, process_execution
from emberpool.pool.model.stream import OutputRead

UNKNOWN = "unknown_execution"


class ProcessCalls:
    """Activities that are short, or only wait; what they are about runs on in the pod meanwhile and after."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    @activity.defn(name=names.START_PROCESS)
    async def start_process(self, call: StartProcessInput) -> CallOutput:
        """Start a background process, unless this id was started before. It ends by itself or with the lease."""

        async def start(on: OpenCall) -> bool:
            execution = process_execution(call.process_id)
            return await processes.start_process(
                on.pool.client, on.pod, on.proof, execution, call.command, stdin_open=call.stdin_open
            )

        with translated():
            return await answered(self._pools, call, SHORT_S, start, CallOutput, lambda _: {})

    @activity.defn(name=names.LIST_PROCESSES)
    async def list_processes(self, call: CallInput) -> ListProcessesOutput:
        """The background processes of the sandbox; its commands are left out."""

        async def listed(on: OpenCall) -> tuple[ProcessLine, ...]:
            prefix = process_execution("")
            lines = await processes.list_processes(on.pool.client, on.pod, on.proof)
            return tuple(
                line.model_copy(update={"id": line.id.removeprefix(prefix)})
                for line in lines
                if line.id.startswith(prefix)
            )

        with translated():
            return await answered(
                self._pools, call, SHORT_S, listed, ListProcessesOutput, lambda lines: {"processes": lines}
            )

    @activity.defn(name=names.STEER_PROCESS)
    async def steer_process(self, call: SteerProcessInput) -> SteerProcessOutput:
        """Write to a process's stdin, resize its terminal, signal it, kill it."""

        async def steer(on: OpenCall) -> dict[str, object]:
            try:
                return await _steered(on, call)
            except PodRefused as error:
                raise _named(error, call.process_id) from error

        with translated():
            return await answered(self._pools, call, SHORT_S, steer, SteerProcessOutput, lambda told: told)

    @activity.defn(name=names.WAIT_FOR_PROCESS)
    async def wait_for_process(self, call: WaitForProcessInput) -> WaitForProcessOutput:
        """Wait for a process's end; the process does not care whether anybody waits."""

        async def wait(on: OpenCall) -> CommandResult | None:
            execution = process_execution(call.process_id)
            try:
                return await processes.await_end(
                    on.pool.client, on.pod, on.proof, execution, call.wait_s, poll_s=self._pools.heartbeat_s
                )
            except PodRefused as error:
                raise _named(error, call.process_id) from error

        with translated():
            limit_s = call.wait_s + SHORT_S
            return await answered(
                self._pools, call, limit_s, wait, WaitForProcessOutput, lambda result: {"result": result}
            )

    @activity.defn(name=names.READ_OUTPUT)
    async def read_output(self, call: ReadOutputInput) -> ReadOutputOutput:
        """Read on in the output of a process or a running command, from a cursor."""

        async def read(on: OpenCall) -> dict[str, object]:
            return await _read(on, call)

        with translated():
            return await answered(self._pools, call, call.wait_s + SHORT_S, read, ReadOutputOutput, lambda told: told)

    @activity.defn(name=names.FOLLOW_OUTPUT)
    async def follow_output(self, call: FollowOutputInput) -> FollowOutputOutput:
        """The same for a caller outside, who must not claim: what was not claimed is not held."""
        found: list[ExecutionId] = [call.execution_id] if call.execution_id else []

        async def read(on: OpenCall) -> dict[str, object]:
            if not found:
                lines = await processes.list_processes(on.pool.client, on.pod, on.proof)
                found.extend(ExecutionId(line.id) for line in lines if line.id.startswith(call.prefix))
            if not found:
                return {"known": False}
            return await _read(on, held.model_copy(update={"execution_id": found[-1]}))

        with translated():
            lease = await self._pools.get(call.ref.spec.profile).index.lease(call.ref.request_id)
            if lease is None or lease.state != "leased":
                return FollowOutputOutput()
            # With its epoch the claim finds this lease or none.
            held = call.model_copy(update={"ref": call.ref.model_copy(update={"epoch": lease.epoch})})
            seen = await answered(self._pools, held, call.wait_s + SHORT_S, read, ReadOutputOutput, lambda told: told)
            return FollowOutputOutput(
                held=seen.step is None,
                execution_id=found[-1] if found else ExecutionId(""),
                known=seen.known,
                output=seen.output,
            )

    @activity.defn(name=names.REQUEST_PORT)
    async def request_port(self, call: RequestPortInput) -> RequestPortOutput:
        """Send an HTTP request to a server in the sandbox. A repeated attempt sends it again."""

        async def request(on: OpenCall) -> PortAnswer:
            return await ports.request_port(on.pool.client, on.pod, on.proof, call.request)

        with translated():
            limit_s = call.request.time_limit_s + SHORT_S
            return await answered(
                self._pools, call, limit_s, request, RequestPortOutput, lambda answer: {"answer": answer}
            )


async def _steered(on: OpenCall, call: SteerProcessInput) -> dict[str, object]:
    execution, told = process_execution(call.process_id), dict[str, object]()
    where = (on.pool.client, on.pod, on.proof, execution)
    if call.write is not None:
        told["input"] = await processes.write_stdin(*where, call.write)
    if call.rows > 0 and call.cols > 0:
        told["reached"] = await processes.resize_terminal(*where, call.rows, call.cols)
    if call.signal > 0:
        told["reached"] = await processes.send_signal(*where, call.signal)
    if call.kill:
        told["result"] = await on.pool.client.kill(on.pod, on.proof, execution)
    return told


async def _read(on: OpenCall, call: ReadOutputInput) -> dict[str, object]:
    try:
        seen: OutputRead = await following.read_output(
            on.pool.client, on.pod, on.proof, call.execution_id, call.cursor, wait_s=call.wait_s, limit=call.limit
        )
    except PodRefused as error:
        if error.word != UNKNOWN:
            raise
        return {"known": False}
    return {"known": True, "output": seen}


def _named(error: PodRefused, process_id: str) -> Exception:
    return ProcessUnknown(process_id) if error.word == UNKNOWN else error
