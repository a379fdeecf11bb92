"""Saving what a lease has changed in its pod, and restoring it, in bounded memory."""

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from emberpool.pool.client.answers import LeaseProof
from emberpool.pool.client.transfers import Incoming, Transfers
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.files import Moved

_NAMED = "checkpoint"
"""What errors call it."""


@asynccontextmanager
async def save_checkpoint(
    transfers: Transfers, pod: PodAddress, proof: LeaseProof, image: str
) -> AsyncGenerator[Incoming]:
    """All changes of the lease as an archive.

    Raises:
        SandboxFileError: a file changed while it was read, or cannot be saved; its detail names it.
        InvalidInput: the pod shows its jobs another image than `image`.
    """
    async with transfers.incoming(pod, proof, _target(image), _NAMED) as incoming:
        yield incoming


async def restore_checkpoint(
    transfers: Transfers, pod: PodAddress, proof: LeaseProof, image: str, pieces: AsyncIterable[bytes]
) -> Moved:
    """Put back what a checkpoint holds. Until it has answered the room may hold a part of it.

    Raises:
        SandboxFileError: an entry is refused or cannot be written; its detail names it.
        InvalidInput: the pod shows its jobs another image than `image`.
    """
    return await transfers.put_stream(pod, proof, _target(image), pieces, _NAMED)


def _target(image: str) -> str:
    return f"/v1/checkpoint?{urlencode({'image': image})}"
