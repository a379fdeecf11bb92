"""Files of a sandbox in workflow code: in and out by URL, of any size; listing and removing."""

from datetime import timedelta
from functools import partial
from typing import Literal

from temporalio.workflow import ActivityConfig

from emberpool.activities import names
from emberpool.activities.models import CallOutput
from emberpool.activities.transfer_models import (
    DownloadInput,
    ListInput,
    ListOutput,
    OutputInput,
    RemoveInput,
    TransferOutput,
    UploadInput,
)
from emberpool.pool.model.claim import SandboxRef
from emberpool.pool.model.command import CommandResult
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.files import FileEntry, Moved
from emberpool.pool.model.ids import ExecutionId
from emberpool.workflows.invoker import Invoker

MARGIN = timedelta(seconds=60)
DEFAULT_LIMIT = timedelta(minutes=30)


class SandboxFiles(Invoker):
    """Part of Sandbox and of RemoteSandbox.

    Transfers are activities of the main queue: they may be long, and heartbeat the bytes moved.
    """

    async def upload(
        self,
        source: str,
        path: str,
        *,
        unpack: bool = False,
        mode: int | None = None,
        time_limit: timedelta = DEFAULT_LIMIT,
        config: ActivityConfig | None = None,
    ) -> Moved:
        """Bring a file or folder from a URL into the sandbox, whole or not at all; parents are made.

        A folder goes into one that is there, file by file. Its links stay links; one that leads out is refused.

        Args:
            source: fsspec URL below a prefix that the worker allows (its blob store, by default).
            path: where it will lie; a relative path is taken from /work.
            unpack: the source is a tar archive, whose content becomes the folder `path`.
            mode: of a single file.

        Raises:
            InvalidInput: the URL may not be opened by the worker, or nothing is there.
            SandboxFileError: it cannot be written there, is over limits.file_mb, or an entry is refused.
        """
        check_name(path)
        output = await self.invoke(
            names.UPLOAD,
            lambda ref: UploadInput(
                ref=ref, source=source, path=path, unpack=unpack, mode=mode, time_limit_s=time_limit.total_seconds()
            ),
            TransferOutput,
            summary=f"upload: {_shown(path)}",
            queue=self.task_queue,
            config=_limited(time_limit, config),
        )
        return output.moved

    async def download(
        self,
        path: str,
        target: str,
        *,
        time_limit: timedelta = DEFAULT_LIMIT,
        config: ActivityConfig | None = None,
    ) -> Moved:
        """Bring a file or folder of the sandbox to a URL, whole or not at all.

        A folder becomes a tar archive if the target ends in .tar (in an object store it must), else a folder.

        Raises:
            InvalidInput: the URL may not be opened by the worker, or cannot hold it.
            SandboxFileError: it is not there, no file or folder, too large, or has a link that leads out.
        """
        return (await self._downloaded(path, target, time_limit, config)).moved

    async def _downloaded(
        self, path: str, target: str, time_limit: timedelta, config: ActivityConfig | None
    ) -> TransferOutput:
        check_name(path)
        return await self.invoke(
            names.DOWNLOAD,
            lambda ref: DownloadInput(ref=ref, path=path, target=target, time_limit_s=time_limit.total_seconds()),
            TransferOutput,
            summary=f"download: {_shown(path)}",
            queue=self.task_queue,
            config=_limited(time_limit, config),
        )

    async def download_output(
        self,
        result: CommandResult,
        target: str,
        *,
        stream: Literal["stdout", "stderr"] = "stdout",
        time_limit: timedelta = DEFAULT_LIMIT,
    ) -> Moved:
        """Bring all that a command of this sandbox printed to a URL, also what its result left out.

        Raises:
            InvalidInput: the result names no command, or the URL may not be opened by the worker.
            SandboxFileError: the pod has dropped it to make place for later output.
        """
        if not result.execution_id:
            raise InvalidInput("result", "names no command: it is not a result of this sandbox's run")
        execution = ExecutionId(result.execution_id)
        output = await self.invoke(
            names.DOWNLOAD_OUTPUT,
            lambda ref: OutputInput(
                ref=ref, execution_id=execution, target=target, stream=stream, time_limit_s=time_limit.total_seconds()
            ),
            TransferOutput,
            summary=f"download: {stream}",
            queue=self.task_queue,
            config=_limited(time_limit, None),
        )
        return output.moved

    async def list_files(self, path: str = ".", *, limit: int = 10_000) -> tuple[FileEntry, ...]:
        """The entries of a folder in the order of their names' bytes; FIFOs and devices are told, never opened.

        Raises:
            SandboxFileError: it is no folder.
            InvalidInput: it has more than `limit` entries.
        """
        check_name(path)
        entries: list[FileEntry] = []
        while True:
            after = entries[-1].name if entries else ""
            output = await self.invoke(
                names.LIST_FILES,
                partial(_listing, path, after),
                ListOutput,
                summary=f"list: {_shown(path)}",
            )
            entries += output.folder.entries
            if len(entries) > limit:
                raise InvalidInput("limit", f"{path!r} has more than {limit} entries: raise it, or list a part")
            if not output.folder.more or not output.folder.entries:
                return tuple(entries)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a link (never what it names) or a folder; one that is not empty only if `recursive`.

        Raises:
            SandboxFileError: it is not there, or may not be removed.
        """
        check_name(path)
        await self.invoke(
            names.REMOVE_FILE,
            lambda ref: RemoveInput(ref=ref, path=path, recursive=recursive),
            CallOutput,
            summary=f"remove: {_shown(path)}",
        )


def _listing(path: str, after: str, ref: SandboxRef) -> ListInput:
    return ListInput(ref=ref, path=path, after=after)


def check_name(path: str) -> None:
    """Raises InvalidInput for a path that no kernel takes, before anything is claimed."""
    if not path or "\0" in path:
        raise InvalidInput("path", "must be non-empty and hold no NUL byte")
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidInput("path", "holds a lone surrogate") from error


def _shown(path: str) -> str:
    return path.encode("utf-8", "replace").decode("utf-8")[:80]


def _limited(time_limit: timedelta, config: ActivityConfig | None) -> ActivityConfig:
    return {"start_to_close_timeout": time_limit + MARGIN, **(config or {})}
