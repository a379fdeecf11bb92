"""What a profile of provider kubernetes says of its pods beside what every profile says."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from pydantic import Field, JsonValue, model_validator

from emberpool.pool.model.frozen import Strict
from emberpool.pool.model.gpu_share import GpuShare
from emberpool.pool.model.queue_share import QueueShare


class Boundary(StrEnum):
    """What stands between a pod's root and its node: rooms are made with CAP_SYS_ADMIN, which only that makes safe."""

    USER_NAMESPACE = "user_namespace"
    """`hostUsers: false`: the capability counts inside the pod alone, and its root is nobody on the node."""
    GVISOR = "gvisor"
    """The runtime class is gVisor's: the capability counts in a kernel of its own. What jobs write lies in memory."""


class KubernetesPods(Strict):
    """Pods of one profile in a cluster."""

    cpu: float = Field(default=1.0, gt=0)
    """Cores that one pod asks for."""
    cpu_limit: float | None = Field(default=None, gt=0)
    """Cores that it may use at most. None: what its node has to spare, shared by what pods asked for."""
    gpu: GpuShare | None = None
    """GPUs of each pod. None: none, whatever its image's variables ask of the node."""
    queue: QueueShare | None = None
    """The queue whose waiting work lowers the pool's ceiling. None: its budget alone says how many pods there are."""
    extra_memory_mb: int = Field(default=64, ge=32)
    """MiB beside `limits.memory_mb`: emberd's own, so that a job meets its limit before the container does."""
    scratch_mb: int = Field(default=4096, ge=64)
    """MiB that jobs of one pod may write; a pod that writes more is evicted by its node. In gVisor it is memory of the
    pod's, beside `limits.memory_mb`, and a job that writes more finds the disk full."""
    boundary: Boundary = Boundary.USER_NAMESPACE
    """What holds a job that breaks out of its room. emberd looks for itself, and does not serve where it is not so."""
    runtime_class: str = ""
    """A RuntimeClass of the cluster; empty is its default."""
    emberd_image: str = ""
    """Image with emberd and a Python for it (deploy/images/emberd.Dockerfile), mounted read-only into pods whose own
    images then need neither, nor a C library. Kubernetes 1.35 or newer, or the feature ImageVolume. Empty: images have
    emberd at /opt/emberpool/emberd."""
    image_prefixes: tuple[str, ...] = ()
    """Images that a claim may name by their full reference must begin with one of these, as in `ghcr.io/acme/`."""
    node_selector: Mapping[str, str] = Field(default_factory=dict[str, str])
    """Labels that a node must have to get these pods."""
    tolerations: tuple[Mapping[str, JsonValue], ...] = ()
    """As in a pod's specification."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets in the pods' namespace, for registries that want a login."""
    service_account: str = ""
    """Its token is never mounted; it matters for admission only."""
    tls_secret: str = ""
    """Name of a Secret in the pods' namespace, of type kubernetes.io/tls: the certificate by which their emberds speak
    TLS with workers, whose setting tls_ca_file names its authority. Empty: they speak in the clear, signed."""
    ask_capabilities: bool = True
    """Whether pods ask for the capabilities that rooms are made with (SYS_ADMIN, NET_ADMIN; by `hostUsers: false` they
    count inside the pod only). False where the cluster's policy refuses them; it takes `least_tier: sweep`."""
    labels: Mapping[str, str] = Field(default_factory=dict[str, str])
    """Further labels of each pod, such as the queue's that admits it: `kueue.x-k8s.io/queue-name`,
    `kai.scheduler/queue`."""
    scheduler_name: str = ""
    """Who places the pods; empty is the cluster's own scheduler."""
    priority_class: str = ""
    """A PriorityClass of the cluster; empty is its default."""
    patience_s: float = Field(default=20.0, ge=0)
    """Seconds that a new pod may stand unschedulable, or fail to get its image, before it is given up. Raise it where a
    node must be started first."""
    creates_per_s: float = Field(default=20.0, gt=0)
    """Pods created a second at most, by each worker."""
    starting_at_once: int = Field(default=50, ge=1)
    """Pods of this profile that may be starting at once, by each worker; a new one waits."""

    @property
    def shared_resource(self) -> tuple[str, float]:
        """The resource by which the pool shares its queue's quota, and what one pod takes of it."""
        if self.gpu is not None and (self.queue is None or self.queue.resource in ("", self.gpu.resource)):
            return self.gpu.resource, float(self.gpu.count)
        return "cpu", self.cpu

    @model_validator(mode="after")
    def _queue_is_shared_by_something(self) -> Self:
        has = ["cpu"] if self.gpu is None else ["cpu", self.gpu.resource]
        if self.queue is not None and self.queue.resource not in ["", *has]:
            raise ValueError(f"queue.resource {self.queue.resource!r} is nothing that these pods take; they take {has}")
        return self
