"""How the members of a gang get to reach each other, where a network or a policy is made for them."""

from emberpool.activities.pools import Pool
from emberpool.pool.client.answers import LeaseProof
from emberpool.pool.client.network import join_network
from emberpool.pool.model.claim import PodAddress, SandboxRef
from emberpool.pool.model.errors import InvalidInput, PodRefused
from emberpool.pool.model.gang_network import GangSeat, seat_of
from emberpool.pool.model.profile import Isolation, ProviderKind
from emberpool.pool.providers.kubernetes.gangs import gang_label

DEVICE = "gang0"
"""Name of the device, as emberd makes it."""


def seat(pool: Pool, ref: SandboxRef) -> GangSeat | None:
    """The sandbox's place in a network that its gang has to itself; None if its pod has another one, or none is asked.

    Plain local pods share the host's network. Kubernetes pods have the cluster's, and a
    policy of their gang's.
    """
    profile, gang = pool.profile, ref.gang
    apart = profile.provider is ProviderKind.LOCAL and profile.isolation is not Isolation.PLAIN
    if gang is None or not gang.peers or not apart:
        return None
    return seat_of(gang.id, gang.members.index(ref.request_id))


async def join(pool: Pool, pod: PodAddress, proof: LeaseProof, ref: SandboxRef) -> None:
    """Connect the sandbox to its gang, if it has a place in such a network, or if its pod is in a cluster.

    Raises:
        InvalidInput: this machine cannot connect its pods (its kernel has no veth, say), or its account may not.
        PodRefused, PodUnreachable: as every call of a lease; the latter too if the network is busy.
        PoolUnavailable: the cluster's API cannot be reached.
    """
    if pool.gangs is not None and ref.gang is not None and ref.gang.peers:
        label = gang_label(pool.tag(ref), ref.gang.id)
        await pool.gangs.join(pod.name, label, lambda: pool.client.bind(pod, proof, {}, ()))
        return
    place = seat(pool, ref)
    if place is None:
        return
    try:
        await join_network(pool.client, pod, proof, place)
    except PodRefused as error:
        if error.word != "no_network":
            raise
        problem = f"pods of profile {pool.profile.name!r} cannot be connected here: {error.detail}"
        raise InvalidInput("peers", problem) from error
