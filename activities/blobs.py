"""The outside that a worker reads from and writes to, by fsspec URL, and which of it a workflow may name.

A workflow's input is not trusted: what it names is opened with the worker's own rights. So only URLs below the prefixes
of the worker's settings are opened (file:///etc/... is none), and a link does not lead out of them.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote

import fsspec

from emberpool.pool.model.errors import InvalidInput

_FSSPEC = cast(Any, fsspec)
"""fsspec has no types."""
_LOCAL = ("file", "local")


@dataclass(frozen=True)
class Place:
    """A URL that may be opened."""

    url: str
    scheme: str
    path: str
    """As its file system names it; of a local one the real path."""

    @property
    def local(self) -> bool:
        """Whether it lies in a file system of the worker's machine, where links and modes are kept."""
        return self.scheme in _LOCAL

    def filesystem(self) -> Any:
        """fsspec's file system for it. May connect: not for the event loop. Raises InvalidInput: nothing reads it."""
        try:
            return cast(tuple[Any, str], _FSSPEC.url_to_fs(self.url))[0]
        except (ImportError, ValueError) as error:
            raise InvalidInput("url", f"{self.url} cannot be opened: {error}") from error


class Blobs:
    """The places that the settings allow."""

    def __init__(self, blob_url: str = "", allowed_urls: Iterable[str] = ()) -> None:
        """`blob_url`: where large things go that name no place of their own; allowed with all below it."""
        self.blob_url = blob_url.rstrip("/")
        self._allowed = [_split("allowed_urls", url) for url in (blob_url, *allowed_urls) if url]

    def place(self, field: str, url: str) -> Place:
        """The place that a URL names; `field` is what an error calls it.

        Raises:
            InvalidInput: it is no plain URL, or lies below no allowed prefix.
        """
        scheme, rest = _split(field, url)
        if scheme in _LOCAL:
            rest = os.path.realpath(rest)
        for allowed_scheme, prefix in self._allowed:
            known = os.path.realpath(prefix) if scheme in _LOCAL else prefix
            if scheme == allowed_scheme and _is_below(rest, known):
                return Place(f"{scheme}://{rest}", scheme, rest)
        shown = ", ".join(f"{scheme}://{prefix}" for scheme, prefix in self._allowed) or "nothing"
        raise InvalidInput(
            field,
            f"{url} may not be opened by this worker, which opens only what lies below: {shown}. "
            "Whoever runs the worker can add a prefix to EMBERPOOL_ALLOWED_URLS",
        )

    def default(self, field: str, name: str) -> str:
        """URL of `name` in the blob store.

        Raises:
            InvalidInput: there is none.
        """
        if not self.blob_url:
            raise InvalidInput(field, "names no URL, and this worker has no blob store: set EMBERPOOL_BLOB_URL")
        return f"{self.blob_url}/{name}"


def _split(field: str, url: str) -> tuple[str, str]:
    """Scheme and rest. Of several URLs in one (simplecache::file:///...) only the first would be checked."""
    scheme, colon, rest = url.partition("://")
    if not colon or not scheme or not rest.strip("/") or "::" in url or "\0" in url:
        raise InvalidInput(field, f"{url!r} is no plain URL: SCHEME://PLACE")
    if any(part in (".", "..") for part in unquote(rest).replace("\\", "/").split("/")):
        raise InvalidInput(field, f"{url!r} holds '.' or '..'")
    scheme = scheme.lower()
    if scheme in _LOCAL and not rest.startswith("/"):
        raise InvalidInput(field, f"{url!r}: a local file has an absolute path, as in file:///folder/name")
    return ("file" if scheme in _LOCAL else scheme), rest


def _is_below(path: str, prefix: str) -> bool:
    prefix = prefix.rstrip("/")
    return path.rstrip("/") == prefix or path.startswith(prefix + "/")
