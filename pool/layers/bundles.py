"""Fetches code bundles by URL and holds them to their hash."""

import asyncio
import hashlib
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit, urlunsplit

import fsspec

from emberpool.pool.emberd.unpack import BadArchive, check
from emberpool.pool.layers.store import Make
from emberpool.pool.model.binding import Bundle
from emberpool.pool.model.errors import EmberpoolError, InvalidInput, PoolUnavailable

_FSSPEC = cast(Any, fsspec)
"""fsspec has no types."""
MOST_BYTES = 2 * 1024 * 1024 * 1024
"""Size of a bundle's archive."""
_PIECE = 1024 * 1024


def bundle_maker(bundle: Bundle) -> Make:
    """What fetches the bundle.

    Raises:
        InvalidInput: (when it is called) nothing is there, its hash is another one, or an entry of it would lie outside
            of its folder.
        PoolUnavailable: the other side failed; a later try may succeed.
    """

    async def make(into: Path) -> None:
        await asyncio.to_thread(_fetch, bundle, into)

    return make


def shown(url: str) -> str:
    """A URL for error texts: without user, password and query, which may be the key to it."""
    parts = urlsplit(url)
    host = parts.netloc.rsplit("@", 1)[-1]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _fetch(bundle: Bundle, into: Path) -> None:
    digest, size = hashlib.sha256(), 0
    try:
        with _FSSPEC.open(bundle.url, "rb") as opened, into.open("wb") as file:
            source = cast(IO[bytes], opened)
            while piece := source.read(_PIECE):
                size += len(piece)
                if size > MOST_BYTES:
                    raise InvalidInput("bundle.url", f"{shown(bundle.url)} is over {MOST_BYTES} bytes")
                digest.update(piece)
                file.write(piece)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        why = error.strerror or "there is nothing"
        raise InvalidInput("bundle.url", f"{shown(bundle.url)} cannot be read: {why}") from None
    except (ValueError, ImportError) as error:
        raise InvalidInput("bundle.url", f"{shown(bundle.url)} cannot be opened: {type(error).__name__}") from None
    except EmberpoolError:
        raise
    except Exception as error:  # fsspec passes on what its file systems' own libraries raise, OSError or not
        raise PoolUnavailable(f"bundle {shown(bundle.url)} cannot be fetched: {type(error).__name__}") from None
    if digest.hexdigest() != bundle.sha256:
        raise InvalidInput("bundle.sha256", f"{shown(bundle.url)} holds {digest.hexdigest()}, not {bundle.sha256}")
    try:
        check(str(into))
    except BadArchive as error:
        raise InvalidInput("bundle.url", f"{shown(bundle.url)}: {error}") from error
