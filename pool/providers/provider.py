"""The contract of a pod provider: every one passes the same tests (tests/providers/)."""

from collections.abc import AsyncIterator
from typing import Protocol

from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import PodFacts
from emberpool.pool.model.profile import Profile

HELD_BACK = "held_back: "
"""How a refusal begins that says nothing of what was asked for, only that this pod cannot have it yet."""


class Provider(Protocol):
    """Creates and deletes the pods of one profile. Stateless towards the index: names are given, never chosen here."""

    @property
    def profile(self) -> Profile: ...

    async def create(self, name: PodName, image: str, standby: bool = False) -> None:
        """Ask for a pod. Idempotent by name; returns before it is ready.

        `standby` asks for one that holds a tiny share and serves nobody until it is promoted; a provider that has none
        such makes a usual pod, and emberd's state says which it is.

        Raises:
            PoolUnavailable: the provider cannot be reached.
            InvalidInput: the image is unknown, or the profile asks for what this provider refuses.
        """
        ...

    async def wait_ready(self, name: PodName, timeout_s: float) -> PodFacts:
        """Wait until the pod is READY or FAILED and return its facts; PENDING if the time is over.

        A name that does not exist is FAILED with reason `gone`.
        """
        ...

    async def promote(self, name: PodName) -> str:
        """Give a ready standby pod its full share, and return when its emberd serves leases. Idempotent.

        Returns "", or why this pod cannot be promoted: the caller then replaces it.

        Raises:
            PoolUnavailable: the provider cannot be reached; ask again.
        """
        ...

    async def swap(self, name: PodName, image: str, epoch: int) -> str:
        """Replace the image of a ready pod that nobody holds; what emberd told of its tag and its name stay.

        `epoch` is the one that the index gave to this swap, above every other that the pod has had: it tells a late
        call from the one that is meant. Idempotent. `list` and `wait_ready` name the new image afterwards.

        Returns "", or why it cannot be done in this pod, which then has its old image or is not ready: the caller
        replaces it. Beginning with HELD_BACK, it serves on, and the same swap of another pod is likely to be done.

        Raises:
            PoolUnavailable: the provider cannot be reached; ask again.
        """
        ...

    async def restart(self, name: PodName, epoch: int) -> str:
        """Start a pod's container anew, with its volumes wiped but for emberd's own account: the pod was fenced at
        `epoch`, and is so again when this returns, its emberd with another boot id. At most once in ten minutes.

        Returns "", or why it cannot be done in this pod now: the caller replaces it.

        Raises:
            PoolUnavailable: the provider cannot be reached; the caller replaces the pod.
        """
        ...

    async def delete(self, name: PodName) -> None:
        """Delete a pod and return when nothing of it is left. Idempotent.

        Raises:
            PoolUnavailable: the provider cannot be reached, or the pod does not go.
        """
        ...

    async def list(self) -> list[PodFacts]:
        """Every pod of this profile that exists."""
        ...

    def watch(self) -> AsyncIterator[PodFacts]:
        """Facts of every pod now, then each change, until closed. Ends of pods come as FAILED."""
        ...

    async def aclose(self) -> None:
        """Let go of connections; pods stay."""
        ...
