"""Requests to servers that run in a sandbox, from workflow code."""

from datetime import timedelta

from emberpool.activities import names
from emberpool.activities.process_models import RequestPortInput, RequestPortOutput
from emberpool.pool.model.port import PortAnswer, PortRequest
from emberpool.workflows.invoker import Invoker

MARGIN = timedelta(seconds=60)


async def request_port(sandbox: Invoker, given: PortRequest) -> PortAnswer:
    """One request to a port of the sandbox, as an activity. A retry sends it again.

    Raises:
        PortUnreachable: no server answered.
    """
    output = await sandbox.invoke(
        names.REQUEST_PORT,
        lambda ref: RequestPortInput(ref=ref, request=given),
        RequestPortOutput,
        summary=f"{given.method} :{given.port}{given.path[:60]}",
        config={"start_to_close_timeout": timedelta(seconds=given.time_limit_s) + MARGIN},
    )
    if output.answer is None:
        raise RuntimeError("an answered request has an answer")
    return output.answer
