"""HTTP requests to servers that run in a pod."""

import base64

from emberpool.pool.client.answers import LeaseProof
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.errors import PodRefused, PortUnreachable
from emberpool.pool.model.port import PortAnswer, PortRequest


async def request_port(client: EmberdClient, pod: PodAddress, proof: LeaseProof, request: PortRequest) -> PortAnswer:
    """One request to a port of the pod's loopback.

    Raises:
        PortUnreachable: nobody listens there, or no answer came within the request's time limit.
    """
    body = request.model_dump(mode="json")
    try:
        answer = await client.ask(pod, proof, "/v1/http", body, request.time_limit_s)
    except PodRefused as error:
        if error.word != "no_server":
            raise
        raise PortUnreachable(request.port, error.detail) from error
    answer["body"] = base64.b64decode(answer["body"])
    return PortAnswer.model_validate(answer)
