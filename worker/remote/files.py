"""Local files and folders in and out of a RemoteSandbox, through the blob store that its workers have."""

import os
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

from temporalio.workflow import ActivityConfig

from emberpool.activities import names
from emberpool.activities.blobs import Blobs, Place
from emberpool.activities.sinks import save
from emberpool.activities.sources import Source, open_source
from emberpool.activities.threads import in_thread
from emberpool.activities.transfer_models import BlobPlaceInput, BlobPlaceOutput
from emberpool.pool.client.transfers import Incoming
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.files import Moved
from emberpool.worker.remote.calls import RemoteCalls
from emberpool.workflows.transfers import DEFAULT_LIMIT

ANY_SIZE = 1 << 62
"""Local disks bound what is brought to them; the worker bounds what it takes out of a pod."""


class RemoteFiles(RemoteCalls):
    """Part of RemoteSandbox."""

    async def upload(
        self,
        source: str | os.PathLike[str],
        path: str,
        *,
        unpack: bool = False,
        mode: int | None = None,
        time_limit: timedelta = DEFAULT_LIMIT,
        config: ActivityConfig | None = None,
    ) -> Moved:
        """Bring a local file or folder, or what lies at a URL, into the sandbox, whole or not at all.

        As `Sandbox.upload` in a workflow; what is local goes through the workers' blob store, in pieces, and is removed
        from there.

        Args:
            source: a local path; a text with `://` is a URL that the worker opens.

        Raises:
            InvalidInput: nothing is there, or the workers have no blob store (EMBERPOOL_BLOB_URL).
            SandboxFileError: it cannot be written there, is over limits.file_mb, or an entry is refused.
        """
        if _is_url(source):
            return await super().upload(
                str(source), path, unpack=unpack, mode=mode, time_limit=time_limit, config=config
            )
        local = await open_source(_local(source))
        async with aclosing(local.pieces), self._staged(".tar" if local.folder else "") as blob:
            await save(_incoming(local, 0o644), blob, ANY_SIZE, _uncounted)
            whole = unpack or local.folder
            own = None if whole else (local.mode if mode is None else mode)
            return await super().upload(blob.url, path, unpack=whole, mode=own, time_limit=time_limit, config=config)

    async def download(
        self,
        path: str,
        target: str | os.PathLike[str],
        *,
        time_limit: timedelta = DEFAULT_LIMIT,
        config: ActivityConfig | None = None,
    ) -> Moved:
        """Bring a file or folder of the sandbox to a local path, or to a URL, whole or not at all.

        As `Sandbox.download` in a workflow: a folder becomes a tar archive if the target ends in .tar, else a folder.

        Args:
            target: a local path; a text with `://` is a URL that the worker opens.

        Raises:
            InvalidInput: the target cannot hold it, or the workers have no blob store (EMBERPOOL_BLOB_URL).
            SandboxFileError: it is not there, no file or folder, too large, or has a link that leads out.
        """
        if _is_url(target):
            return await super().download(path, str(target), time_limit=time_limit, config=config)
        async with self._staged(".tar") as blob:
            output = await self._downloaded(path, blob.url, time_limit, config)
            source = await open_source(blob)
            async with aclosing(source.pieces):
                incoming = _incoming(source, output.mode)
                incoming.folder = output.folder
                await save(incoming, _local(target), ANY_SIZE, _uncounted)
            return output.moved

    @asynccontextmanager
    async def _staged(self, suffix: str) -> AsyncGenerator[Place]:
        """A new place of the blob store, empty again after the block."""
        given = BlobPlaceInput(name=uuid.uuid4().hex + suffix)
        where = {"task_queue": names.control_queue(self.task_queue)}
        url = (await self.execute(names.BLOB_PLACE, given, BlobPlaceOutput, "a place for a transfer", where)).url
        place = Blobs(url).place("blob_url", url)
        if place.local and not await in_thread(lambda: os.path.isdir(os.path.dirname(place.path))):
            problem = f"{url} is a folder of the workers' machine: set EMBERPOOL_BLOB_URL to what both reach"
            raise InvalidInput("blob_url", problem)
        async with self.in_use():  # bringing it to the blob store or from there may outlast the session's idle time
            try:
                yield place
            finally:
                await in_thread(lambda: _removed(place))


def _removed(place: Place) -> None:
    with suppress(OSError):  # it was never written
        place.filesystem().rm_file(place.path if place.local else place.url)


def _incoming(source: Source, mode: int) -> Incoming:
    return Incoming(source.folder, source.size, mode, source.pieces)


def _local(path: str | os.PathLike[str]) -> Place:
    absolute = os.path.abspath(Path(path).expanduser())
    return Place(f"file://{absolute}", "file", absolute)


def _is_url(text: str | os.PathLike[str]) -> bool:
    return isinstance(text, str) and "://" in text


def _uncounted(_count: int) -> None:
    """Nobody watches how many bytes have gone."""
