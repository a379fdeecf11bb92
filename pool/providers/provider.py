"""The contract of a pod provider: every one passes the same tests (tests/providers/)."""

from collections.abc import AsyncIterator
from typing import Protocol

from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import PodFacts
from emberpool.pool.model.profile import Profile


class Provider(Protocol):
    """Creates and deletes the pods of one profile. Stateless towards the index: names are given, never chosen here."""

    @property
    def profile(self) -> Profile: ...

    async def create(self, name: PodName, image: str) -> None:
        """Ask for a pod. Idempotent by name; returns before it is ready.

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
