"""Connecting a sandbox to the network of its gang."""

from dataclasses import asdict

from emberpool.pool.client.answers import LeaseProof
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.errors import PodRefused, PodUnreachable
from emberpool.pool.model.gang_network import GangSeat


async def join_network(client: EmberdClient, pod: PodAddress, proof: LeaseProof, seat: GangSeat) -> str:
    """Give the lease's room its device in the gang's network; again, it does nothing. Returns the device's name.

    Raises:
        PodRefused: `no_network` (the pod has none for gangs, or its kernel makes none), `other_gang`.
        PodUnreachable: besides the usual, the pod says that it cannot at the moment.
    """
    try:
        answer = await client.ask(pod, proof, "/v1/network", asdict(seat))
    except PodRefused as error:
        if error.word != "network_busy":
            raise
        # It is the lease's room that is to be tried again: the claim does not move for it.
        raise PodUnreachable(pod.name, error.detail, sent=True) from error
    return str(answer["device"])
