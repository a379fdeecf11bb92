"""The activities that save a sandbox's changes to the blob store and restore them in another.

A checkpoint is named by its content, which is known only at its end. So it is spooled to a file without a name first:
what is there already is not written again, and nobody ever sees a half one.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, TypeVar

from temporalio import activity

from emberpool.activities import names
from emberpool.activities.blobs import Blobs, Place
from emberpool.activities.calls import Answer, OpenCall, on_pod
from emberpool.activities.checkpoint_models import CheckpointInput, CheckpointOutput, RestoreInput
from emberpool.activities.errors import translated
from emberpool.activities.heartbeats import heartbeating
from emberpool.activities.models import CallInput, CallOutput
from emberpool.activities.pools import Pools
from emberpool.activities.sinks import save
from emberpool.activities.sources import PIECE, open_source
from emberpool.activities.threads import in_thread
from emberpool.activities.transfer_models import TransferProgress
from emberpool.pool.client.checkpoints import restore_checkpoint, save_checkpoint
from emberpool.pool.client.transfers import Incoming
from emberpool.pool.model.checkpoint import Checkpoint
from emberpool.pool.model.errors import InvalidInput, PoolUnavailable, SandboxFileError
from emberpool.pool.model.files import Moved

T = TypeVar("T")


@dataclass
class _Spool:
    """An archive on its way to the blob store."""

    file: IO[bytes]
    digest: Any
    size: int = 0

    def add(self, data: bytes) -> None:
        self.file.write(data)
        self.digest.update(data)
        self.size += len(data)

    async def pieces(self) -> AsyncGenerator[bytes]:
        """All of it again."""
        await in_thread(lambda: self.file.seek(0))
        while piece := await in_thread(lambda: self.file.read(PIECE)):
            yield piece


@dataclass
class _Meter:
    """Bytes moved, for heartbeats."""

    moved: int = 0

    def progress(self) -> TransferProgress:
        return TransferProgress(bytes_moved=self.moved)


class Checkpointing:
    """Activities on a claimed pod. A retry does all of it again, which changes nothing: content names the blob."""

    def __init__(self, pools: Pools, blobs: Blobs, max_bytes: int) -> None:
        """`max_bytes`: of one checkpoint."""
        self._pools, self._blobs, self._max_bytes = pools, blobs, max_bytes

    @activity.defn(name=names.SAVE_CHECKPOINT)
    async def save_checkpoint(self, call: CheckpointInput) -> CheckpointOutput:
        """Save what the sandbox's jobs have changed in its files."""
        image, meter = self._image(call), _Meter()

        async def save_(open_call: OpenCall) -> Checkpoint:
            transfers = open_call.pool.client.transfers
            with tempfile.TemporaryFile() as file:
                spool = _Spool(file, hashlib.sha256())
                async with save_checkpoint(transfers, open_call.pod, open_call.proof, image) as incoming:
                    await self._spool(incoming, spool, meter)
                    moved = incoming.moved or Moved()
                saved = Checkpoint(
                    sha256=spool.digest.hexdigest(),
                    image=image,
                    bytes=spool.size,
                    entries=moved.entries,
                    skipped=moved.skipped,
                )
                await self._store(saved, spool)
                return saved

        with translated():
            self._blobs.default("blob_url", "checkpoints")  # without a store nothing is read
            answer = await self._within(call, call.time_limit_s, meter, save_)
            return CheckpointOutput(**self._about(answer), checkpoint=answer.value)

    @activity.defn(name=names.RESTORE_CHECKPOINT)
    async def restore_checkpoint(self, call: RestoreInput) -> CallOutput:
        """Put back what a checkpoint holds."""
        meter, asked = _Meter(), call.checkpoint

        async def restore(open_call: OpenCall) -> Moved:
            source = await open_source(self._place(asked))
            async with aclosing(source.pieces) as pieces, aclosing(_checked(pieces, asked, meter)) as checked:
                transfers = open_call.pool.client.transfers
                return await restore_checkpoint(transfers, open_call.pod, open_call.proof, asked.image, checked)

        with translated():
            if asked.image != self._image(call):
                problem = f"the checkpoint is of image {asked.image!r}, and the sandbox of {self._image(call)!r}"
                raise InvalidInput("from_", problem)
            self._place(asked)
            return CallOutput(**self._about(await self._within(call, call.time_limit_s, meter, restore)))

    async def _spool(self, incoming: Incoming, spool: _Spool, meter: _Meter) -> None:
        async for piece in incoming.pieces:
            if spool.size + len(piece) > self._max_bytes:
                limit = f"more than {self._max_bytes} bytes: the worker's max_transfer_mb"
                raise SandboxFileError("checkpoint", "too_large", limit)
            try:
                await in_thread(partial(spool.add, piece))
            except OSError as error:
                raise PoolUnavailable(f"the worker's temporary folder cannot be written: {error}") from error
            meter.moved = spool.size

    async def _store(self, saved: Checkpoint, spool: _Spool) -> None:
        place = self._place(saved)
        if await _is_there(place, saved.bytes):
            return
        pieces = spool.pieces()
        await save(Incoming(False, saved.bytes, 0o600, pieces), place, self._max_bytes, lambda _: None)

    def _place(self, checkpoint: Checkpoint) -> Place:
        return self._blobs.place("from_", self._blobs.default("blob_url", checkpoint.blob))

    def _image(self, call: CallInput) -> str:
        return call.ref.spec.image or self._pools.get(call.ref.spec.profile).profile.base_image

    async def _within(
        self, call: CallInput, limit_s: float, meter: _Meter, do: Callable[[OpenCall], Awaitable[T]]
    ) -> Answer[T]:
        async with heartbeating(self._pools.heartbeat_s, meter.progress):
            clock = asyncio.timeout(limit_s)
            try:
                async with clock:
                    return await on_pod(self._pools.get(call.ref.spec.profile), call.ref, limit_s, do, limit_s)
            except TimeoutError as error:
                if not clock.expired():
                    raise
                raise InvalidInput("time_limit", f"the checkpoint took longer than its {limit_s:g} s") from error

    def _about(self, answer: Answer[Any]) -> dict[str, Any]:
        about = {"step": answer.step, "lease": answer.lease, "first_scheduled": answer.first_scheduled}
        return about | {"searchable": self._pools.searchable}


async def _is_there(place: Place, size: int) -> bool:
    """Whether the blob store has it whole."""

    def look() -> bool:
        try:
            return bool(place.filesystem().info(place.url)["size"] == size)
        except FileNotFoundError:
            return False

    try:
        return await in_thread(look)
    except OSError as error:
        raise PoolUnavailable(f"{place.url} cannot be looked for: {error}") from error


async def _checked(pieces: AsyncGenerator[bytes], asked: Checkpoint, meter: _Meter) -> AsyncGenerator[bytes]:
    """The pieces. If at their end they are not what was saved, the pod never hears of an end."""
    digest = hashlib.sha256()
    async for piece in pieces:
        digest.update(piece)
        yield piece
        meter.moved += len(piece)
    if digest.hexdigest() != asked.sha256:
        raise InvalidInput("from_", f"what lies under {asked.blob} in the blob store is not what was saved")
