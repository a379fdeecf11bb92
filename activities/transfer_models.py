"""What goes into the transfer activities and comes out. Fields are only ever added, with defaults."""

from typing import Literal

from pydantic import Field

from emberpool.activities.models import CallInput, CallOutput
from emberpool.pool.model.files import FileName, Folder, Moved
from emberpool.pool.model.frozen import Frozen
from emberpool.pool.model.ids import ExecutionId

DEFAULT_TRANSFER_S = 1800.0


class UploadInput(CallInput):
    """Bring a file or folder from a URL into the sandbox."""

    source: str
    """fsspec URL below a prefix that the worker allows."""
    path: FileName
    unpack: bool = False
    """The source is a tar archive whose content becomes the folder `path`."""
    mode: int | None = None
    """Of a single file; default that of a local source, else 0644."""
    time_limit_s: float = DEFAULT_TRANSFER_S


class DownloadInput(CallInput):
    """Bring a file or folder of the sandbox to a URL."""

    path: FileName
    target: str
    """fsspec URL below a prefix that the worker allows; a folder whose target ends in .tar becomes an archive."""
    time_limit_s: float = DEFAULT_TRANSFER_S


class OutputInput(CallInput):
    """Bring the whole output of a command that has ended to a URL."""

    execution_id: ExecutionId
    target: str
    stream: Literal["stdout", "stderr"] = "stdout"
    time_limit_s: float = DEFAULT_TRANSFER_S


class TransferOutput(CallOutput):
    """What was moved."""

    moved: Moved = Moved()
    url: str = ""
    """Where it lies now, of a download."""
    folder: bool = False
    """Whether a download was one of a folder."""
    mode: int = 0o644
    """Of a downloaded file."""


class ListInput(CallInput):
    """List a folder."""

    path: FileName
    after: FileName = ""
    """Only names behind this one."""


class ListOutput(CallOutput):
    """Its entries."""

    folder: Folder = Folder()


class RemoveInput(CallInput):
    """Remove a file, link or folder."""

    path: FileName
    recursive: bool = False


class BlobPlaceInput(Frozen):
    """Ask for a place of the blob store."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,80}(\.tar)?$")


class BlobPlaceOutput(Frozen):
    """Where it is."""

    url: str


class TransferProgress(Frozen):
    """Heartbeat of a transfer, as the Temporal UI shows it."""

    bytes_moved: int = 0
