"""The activities that move files and folders of any size between sandboxes and URLs, list and remove."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

from temporalio import activity

from emberpool.activities import names
from emberpool.activities.blobs import Blobs
from emberpool.activities.calls import Answer, OpenCall, on_pod
from emberpool.activities.errors import translated
from emberpool.activities.execution import execution_id
from emberpool.activities.heartbeats import heartbeating
from emberpool.activities.models import CallInput, CallOutput
from emberpool.activities.pools import Pools
from emberpool.activities.sandbox_calls import FILE_CALL_S
from emberpool.activities.sinks import save
from emberpool.activities.sources import open_source
from emberpool.activities.threads import in_thread
from emberpool.activities.transfer_models import (
    BlobPlaceInput,
    BlobPlaceOutput,
    DownloadInput,
    ListInput,
    ListOutput,
    OutputInput,
    RemoveInput,
    TransferOutput,
    TransferProgress,
    UploadInput,
)
from emberpool.pool.client.transfers import Incoming
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.files import Folder, Moved

T = TypeVar("T")


class _Meter:
    """Counts what went through, for heartbeats."""

    def __init__(self) -> None:
        self.moved = 0

    def add(self, count: int) -> None:
        self.moved += count

    def progress(self) -> TransferProgress:
        return TransferProgress(bytes_moved=self.moved)

    async def counted(self, pieces: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
        async for piece in pieces:
            yield piece
            self.add(len(piece))


class _Saved(NamedTuple):
    moved: Moved
    folder: bool = False
    mode: int = 0o644


class Transferring:
    """Activities on a claimed pod. A retry moves all of it again; what is there by then is replaced as a whole."""

    def __init__(self, pools: Pools, blobs: Blobs, max_bytes: int) -> None:
        """`max_bytes`: of one transfer out of a pod."""
        self._pools, self._blobs, self._max_bytes = pools, blobs, max_bytes

    @activity.defn(name=names.UPLOAD)
    async def upload(self, call: UploadInput) -> TransferOutput:
        """Bring a file or folder from a URL into the sandbox."""
        meter = _Meter()

        async def upload(open_call: OpenCall) -> Moved:
            source = await open_source(self._blobs.place("source", call.source))
            async with aclosing(source.pieces):
                if call.unpack and source.folder:
                    raise InvalidInput("unpack", f"{call.source} is a folder, and no archive")
                return await open_call.pool.client.transfers.upload(
                    open_call.pod,
                    open_call.proof,
                    call.path,
                    meter.counted(source.pieces),
                    folder=source.folder or call.unpack,
                    mode=source.mode if call.mode is None else call.mode,
                    size=None if source.folder or call.unpack else source.size,
                )

        with translated():
            self._blobs.place("source", call.source)  # what can never work claims no pod
            answer = await self._within(call, call.time_limit_s, meter, upload)
            return TransferOutput(**self._about(answer), moved=answer.value or Moved())

    @activity.defn(name=names.DOWNLOAD)
    async def download(self, call: DownloadInput) -> TransferOutput:
        """Bring a file or folder of the sandbox to a URL."""

        async def download(open_call: OpenCall, meter: _Meter) -> _Saved:
            transfers = open_call.pool.client.transfers
            async with transfers.download(open_call.pod, open_call.proof, call.path) as incoming:
                return await self._save(incoming, call.target, meter)

        with translated():
            return await self._out(call, call.target, call.time_limit_s, download)

    @activity.defn(name=names.DOWNLOAD_OUTPUT)
    async def download_output(self, call: OutputInput) -> TransferOutput:
        """Bring the whole output of a command that has ended to a URL."""

        async def download(open_call: OpenCall, meter: _Meter) -> _Saved:
            transfers = open_call.pool.client.transfers
            execution, stream = call.execution_id, call.stream
            async with transfers.output(open_call.pod, open_call.proof, execution, stream) as incoming:
                return await self._save(incoming, call.target, meter)

        with translated():
            return await self._out(call, call.target, call.time_limit_s, download)

    @activity.defn(name=names.LIST_FILES)
    async def list_files(self, call: ListInput) -> ListOutput:
        """List a folder."""

        async def look(open_call: OpenCall) -> Folder:
            return await open_call.pool.client.transfers.list_files(
                open_call.pod, open_call.proof, call.path, call.after
            )

        with translated():
            answer = await self._within(call, FILE_CALL_S, None, look)
            return ListOutput(**self._about(answer), folder=answer.value or Folder())

    @activity.defn(name=names.REMOVE_FILE)
    async def remove_file(self, call: RemoveInput) -> CallOutput:
        """Remove a file, a link or a folder."""

        async def remove(open_call: OpenCall) -> None:
            await open_call.pool.client.transfers.remove(open_call.pod, open_call.proof, call.path, call.recursive)

        with translated():
            return CallOutput(**self._about(await self._within(call, FILE_CALL_S, None, remove)))

    @activity.defn(name=names.BLOB_PLACE)
    async def blob_place(self, call: BlobPlaceInput) -> BlobPlaceOutput:
        """A place of the blob store for a transfer between a caller outside and a sandbox; its folder is there.

        Raises InvalidInput if there is no blob store.
        """
        with translated():
            place = self._blobs.place("blob_url", self._blobs.default("blob_url", f"transfers/{call.name}"))
            if place.local:
                await in_thread(lambda: os.makedirs(os.path.dirname(place.path), exist_ok=True))
            return BlobPlaceOutput(url=place.url)

    async def _out(
        self,
        call: CallInput,
        target: str,
        limit_s: float,
        do: Callable[[OpenCall, _Meter], Awaitable[_Saved]],
    ) -> TransferOutput:
        meter = _Meter()
        self._blobs.place("target", target)
        answer = await self._within(call, limit_s, meter, lambda open_call: do(open_call, meter))
        saved = answer.value or _Saved(Moved())
        return TransferOutput(
            **self._about(answer), moved=saved.moved, url=target, folder=saved.folder, mode=saved.mode
        )

    async def _save(self, incoming: Incoming, target: str, meter: _Meter) -> _Saved:
        # A worker that died in the middle of it left its part, which the next attempt finds by the owner's name.
        await save(incoming, self._blobs.place("target", target), self._max_bytes, meter.add, owner=execution_id())
        return _Saved(incoming.moved or Moved(bytes=meter.moved), incoming.folder, incoming.mode)

    async def _within(
        self, call: CallInput, limit_s: float, meter: _Meter | None, do: Callable[[OpenCall], Awaitable[T]]
    ) -> Answer[T]:
        pool = self._pools.get(call.ref.spec.profile)
        async with heartbeating(self._pools.heartbeat_s, (lambda: None) if meter is None else meter.progress):
            clock = asyncio.timeout(limit_s)
            try:
                async with clock:
                    return await on_pod(pool, call.ref, limit_s, do, limit_s)
            except TimeoutError as error:
                if not clock.expired():
                    raise
                problem = f"the transfer took longer than its {limit_s:g} s: raise it, or move less at once"
                raise InvalidInput("time_limit", problem) from error

    def _about(self, answer: Answer[Any]) -> dict[str, Any]:
        return {
            "step": answer.step,
            "lease": answer.lease,
            "first_scheduled": answer.first_scheduled,
            "searchable": self._pools.searchable,
        }
