"""Profiles: what one kind of pod is, written by people as YAML and checked here."""

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Self

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.frozen import Strict
from emberpool.pool.model.gpu_share import Sharing
from emberpool.pool.model.kubernetes import KubernetesPods
from emberpool.pool.model.recycle import RecycleTier
from emberpool.pool.model.weight import Weights, check_weights

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
"""A DNS label that leaves room for a pod's suffix within Kubernetes' 63 characters."""


class ProviderKind(StrEnum):
    """Where the pods of a profile come from."""

    LOCAL = "local"
    """This machine, through bubblewrap."""
    KUBERNETES = "kubernetes"
    """A Kubernetes namespace."""


class Isolation(StrEnum):
    """How a local pod is shut off from its host."""

    BUBBLEWRAP = "bubblewrap"
    """Own mount, PID, IPC, UTS and network namespaces."""
    PLAIN = "plain"
    """A plain process: no isolation of files, network or processes. For trusted code only."""


class Network(StrEnum):
    """What a job may reach."""

    NONE = "none"
    """Its own loopback only, and with `gang_peers` its gang's network."""
    OPEN = "open"
    """The outside, never the host's loopback; a provider that cannot promise that refuses the profile."""


class Limits(Strict):
    """What one pod may use. Enforced inside the pod."""

    memory_mb: int = Field(default=1024, ge=16)
    """Resident memory of all of a sandbox's processes, MiB; beyond it the command ends as oom_killed."""
    pids: int = Field(default=256, ge=8)
    """Processes and threads at once."""
    open_files: int = Field(default=1024, ge=64)
    file_mb: int = Field(default=1024, ge=1)
    """Largest single file, MiB."""
    time_limit_s: float = Field(default=3600.0, gt=0)
    """Ceiling for any command's own time limit; a larger one is clamped."""
    disk_mb: int = Field(default=10240, ge=1)
    """Files of all of a sandbox's jobs together, MiB, each counted as 4 KiB at least; beyond it what runs ends as
    disk_full."""


class Profile(Strict):
    """One kind of pod: all pods of a profile in one trust domain are one pool and interchangeable."""

    name: str
    provider: ProviderKind = ProviderKind.LOCAL
    base_image: str = "base"
    """Image of a claim that names none. Local: `base` is the host's own /usr, read-only."""
    images: Mapping[str, str] = Field(default_factory=dict[str, str])
    """Further images by name. Local: absolute root folders. Kubernetes: references; `base_image` may be one of the
    names, or a reference itself."""
    limits: Limits = Limits()
    min_warm: int = Field(default=1, ge=0)
    """Pods kept warm and free, so long as the ceiling allows."""
    standby: int = Field(default=0, ge=0)
    """Pods kept standing by besides, ready but with a tiny share, so long as the ceiling allows."""
    max_pods: int = Field(default=4, ge=0)
    """Ceiling until a budget signal says otherwise; counts starting and dying pods too."""
    keep_alive_s: float = Field(default=300.0, ge=0)
    """How long an idle used pod is kept for the caller that used it last."""
    max_uses: int = Field(default=1000, ge=1)
    """Leases after which a pod is rotated out."""
    max_age_s: float | None = Field(default=None, gt=0)
    """Age at which a used pod is rotated out after its next reset; None: never. Its emberd counts from its start."""
    least_tier: RecycleTier | None = None
    """The weakest reset after which a pod is let again. None: `room`, of plain pods `sweep`. `restart` and `sweep` let
    Kubernetes pods do without namespaces where their nodes have none to give. `restart`: a pod that has no room to give
    is started anew in place, at most once in ten minutes; else it is deleted."""
    isolation: Isolation = Isolation.BUBBLEWRAP
    network: Network = Network.NONE
    weights: Weights = Field(default_factory=dict[str, int])
    """What callers weigh in the line, 1 to 1000 by name; 1 for who is not named. A full pool gives one of weight 3
    three pods for each one of weight 1 while both wait. It holds for the callers of that name of every tenant."""
    gang_peers: bool = False
    """Whether pods of one gang may reach each other. Rooms of isolated local pods then have a network of their own, and
    those of a gang one in common; plain ones share the host's loopback with everything. Kubernetes pods get a network
    policy for each gang, which the cluster's network must enforce; it takes `network: open`."""
    warm_up: tuple[str, ...] = ()
    """Command run once in a new pod before it counts as ready."""
    kubernetes: KubernetesPods = KubernetesPods()
    """Kubernetes only: what its pods are beside this."""

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            raise ValueError("use 1-40 lower-case letters, digits and dashes, as in 'python-small'")
        return value

    @field_validator("weights")
    @classmethod
    def _weights(cls, value: Weights) -> Weights:
        check_weights(value)
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.min_warm > self.max_pods:
            raise ValueError(
                f"min_warm ({self.min_warm}) is above max_pods ({self.max_pods}): lower one or raise the other"
            )
        if self.min_warm + self.standby > self.max_pods:
            raise ValueError(
                f"standby ({self.standby}) and min_warm ({self.min_warm}) together are above max_pods "
                f"({self.max_pods}): lower one or raise the ceiling"
            )
        self._agree_on_tier()
        gpu = self.kubernetes.gpu
        if gpu is not None and gpu.sharing is Sharing.NONE and self.standby:
            raise ValueError(
                f"standby ({self.standby}) with kubernetes.gpu and sharing 'none' would hold whole devices for pods "
                "that do nothing: set standby to 0, or sharing to 'time_slicing' where the device plugin shares"
            )
        if self.gang_peers and self.provider is ProviderKind.KUBERNETES and self.network is Network.NONE:
            raise ValueError(
                "gang_peers is refused for provider 'kubernetes' with network 'none', by which each job has a network "
                "of its own: use network 'open', whose reach your network policies bound"
            )
        for name, root in self.images.items():
            if self.provider is ProviderKind.LOCAL and not Path(root).is_absolute():
                raise ValueError(f"images.{name}: {root!r} must be an absolute folder")
        if self.base_image != "base" and self.provider is ProviderKind.LOCAL and self.base_image not in self.images:
            raise ValueError(f"base_image {self.base_image!r} is not in images: add it there, or use 'base'")
        if (
            self.network is Network.OPEN
            and self.provider is ProviderKind.LOCAL
            and self.isolation is Isolation.BUBBLEWRAP
        ):
            raise ValueError(
                "network 'open' is refused for local pods: it would share the host's loopback; "
                "use 'none', or provider 'kubernetes' with an egress policy"
            )
        return self

    def _agree_on_tier(self) -> None:
        plain = self.provider is ProviderKind.LOCAL and self.isolation is Isolation.PLAIN
        if self.least_tier is RecycleTier.NONE:
            raise ValueError("least_tier 'none' is refused: use 'room', 'restart' or 'sweep'")
        if self.least_tier in (RecycleTier.ROOM, RecycleTier.RESTART) and plain:
            raise ValueError(
                f"least_tier {self.demanded_tier.value!r} is refused for isolation 'plain', which has no rooms: "
                "leave one out"
            )
        if not self.kubernetes.ask_capabilities and not self.may_lack_rooms:
            raise ValueError(
                "kubernetes.ask_capabilities false is refused without least_tier 'sweep' or 'restart': "
                "no room can be made"
            )
        if self.may_lack_rooms and self.network is Network.NONE:
            raise ValueError(
                f"least_tier {self.demanded_tier.value!r} is refused with network 'none': without namespaces a job has "
                "its pod's network; use network 'open', or leave least_tier out"
            )

    @property
    def may_lack_rooms(self) -> bool:
        """Whether pods may do without namespaces for rooms, and jobs be another user of the pod instead."""
        weaker = (RecycleTier.RESTART, RecycleTier.SWEEP)
        return self.provider is ProviderKind.KUBERNETES and self.least_tier in weaker

    @property
    def restarts(self) -> bool:
        """Whether a pod that has no room to give is started anew in place."""
        return self.least_tier is RecycleTier.RESTART

    @property
    def demanded_tier(self) -> RecycleTier:
        """The weakest tier of a reset that counts."""
        return self.least_tier or (RecycleTier.SWEEP if self.isolation is Isolation.PLAIN else RecycleTier.ROOM)


def parse_profiles(text: str, where: str = "profiles") -> tuple[Profile, ...]:
    """Read one profile or a list of them from YAML.

    Raises:
        InvalidInput: the text is no YAML, a field is wrong (it is named), or two profiles share a name.
    """
    try:
        data: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(where, f"not valid YAML: {error}") from error
    items: list[object] = list(data) if isinstance(data, list) else [data]  # pyright: ignore[reportUnknownArgumentType]
    profiles: list[Profile] = []
    for index, item in enumerate(items):
        try:
            profiles.append(Profile.model_validate(item))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "profile"
            raise InvalidInput(f"{where}[{index}].{field}", first["msg"].removeprefix("Value error, ")) from error
    names = [profile.name for profile in profiles]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"{where}.name", f"{name!r} stands twice: every profile needs a name of its own")
    return tuple(profiles)
