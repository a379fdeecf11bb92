"""A queue of the cluster's that a pool makes way for, as its profile names it."""

from pydantic import Field

from emberpool.pool.model.frozen import Strict


class QueueShare(Strict):
    """Which quota a pool lives off, beside work that waits in line for it."""

    cluster_queue: str = Field(min_length=1)
    """Name of a ClusterQueue of Kueue's. The worker's account must be able to read it (deploy/overlays/kueue)."""
    resource: str = ""
    """The resource by which it is shared; empty: the profile's GPUs, or `cpu` where it has none."""
    keep: int = Field(default=0, ge=0)
    """Pods that the pool holds whatever waits."""
