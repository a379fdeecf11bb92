"""Reads .xz and .lzma files within a bound of memory: lzma.LZMAFile knows none, and a header may ask for gigabytes."""

import lzma
from typing import IO

MOST_MEMORY = 96 * 1024 * 1024
"""Of one decompressor; `xz -9` asks for 65 MiB."""
_PIECE = 64 * 1024


class XzReader:
    """The unpacked bytes of one stream or of several one after the other."""

    def __init__(self, file: "IO[bytes]") -> None:
        self._file, self._unpacker = file, _unpacker()
        self._begun = False
        """Whether anything of the stream that comes next was read."""
        self._rest = b""

    def read(self, size: int) -> bytes:
        """At most `size` bytes, none only at the end.

        Raises:
            lzma.LZMAError: it is damaged, or wants more memory than that.
            EOFError: it was cut.
        """
        while size > 0:
            if self._unpacker.eof:
                self._rest, self._unpacker, self._begun = self._unpacker.unused_data, _unpacker(), False
            data = b""
            if self._unpacker.needs_input:
                data, self._rest = self._rest or self._file.read(_PIECE), b""
                if not data and self._begun:
                    raise EOFError("the compressed data ends early")
                if not data:
                    return b""
                if not self._begun:
                    data = data.lstrip(b"\0")  # padding between streams
                    if not data:
                        continue
                self._begun = True
            found = self._unpacker.decompress(data, size)
            if found:
                return found
        return b""


def _unpacker() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(memlimit=MOST_MEMORY)
