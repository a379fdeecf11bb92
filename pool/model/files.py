"""Files of a sandbox, and transfers of them."""

import base64
from typing import Annotated, Any, Literal, cast

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from emberpool.pool.model.frozen import Frozen


def _decode(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        encoded = cast(dict[str, Any], value).get("base64")
        if isinstance(encoded, str):
            return base64.b64decode(encoded, validate=True).decode("utf-8", "surrogateescape")
    raise ValueError('expected a text, or {"base64": bytes} of one that is not UTF-8')


def _encode(value: str) -> str | dict[str, str]:
    raw = value.encode("utf-8", "surrogateescape")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode("ascii")}


FileName = Annotated[
    str,
    PlainValidator(_decode),
    PlainSerializer(_encode),
    WithJsonSchema({"type": ["string", "object"]}),
]
"""A name or path of any bytes: those that are not UTF-8 are surrogate escapes in Python, as `os.fsdecode` makes them,
and base64 in JSON."""


class Moved(Frozen):
    """What a transfer moved."""

    bytes: int = 0
    """Of the files; an archive's own bytes do not count."""
    entries: int = 0
    """Files, folders and links."""
    skipped: int = 0
    """FIFOs, sockets and devices of a folder, which are left out."""
    skipped_names: tuple[FileName, ...] = ()
    """The first 20 of them."""


class FileEntry(Frozen):
    """One entry of a folder. A link is told as itself."""

    name: FileName
    kind: Literal["file", "folder", "link", "fifo", "other"]
    size: int = 0
    mode: int = 0
    modified_s: float = 0.0
    """Seconds since 1970."""
    target: FileName = ""
    """Of a link."""


class Folder(Frozen):
    """Some entries of a folder, in the order of their bytes."""

    entries: tuple[FileEntry, ...] = ()
    more: bool = False
    """Whether there are more behind the last one."""
