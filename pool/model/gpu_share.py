"""What a Kubernetes pod has of GPUs: how many, and whether others have the same ones."""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from emberpool.pool.model.frozen import Strict


class Sharing(StrEnum):
    """How the cluster's device plugin gives out a device."""

    NONE = "none"
    """To one pod at a time, standby or not: a resize gives it no device, so it holds its own from the start."""
    TIME_SLICING = "time_slicing"
    """To several, as `sharing.timeSlicing.replicas` of NVIDIA's plugin: each of them may use all of it in turn, memory
    is kept apart by nobody. A pod that stands by may be on the device of one that works."""


class GpuShare(Strict):
    """Devices of each pod of a profile."""

    resource: str = Field(default="nvidia.com/gpu", pattern=r"[a-z0-9.-]+/[A-Za-z0-9._-]+")
    """The extended resource that nodes offer; of time-slicing with `renameByDefault` it is `nvidia.com/gpu.shared`."""
    count: int = Field(default=1, ge=1)
    """Devices, or with time-slicing replicas, that a pod asks for."""
    sharing: Sharing = Sharing.NONE

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.sharing is Sharing.TIME_SLICING and self.count > 1:
            raise ValueError(
                f"count ({self.count}) with sharing 'time_slicing' would take places from others and give no more of "
                "the device: leave it out"
            )
        return self
