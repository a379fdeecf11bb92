"""Bodies of any size: frames with a MAC each, in HTTP chunks.

A MAC covers the frame's place in the stream, and the last frame says that it is the last. So what was cut, replayed,
swapped or left out is noticed, and nothing has to be held until the end to be trusted.
"""

import hmac
import json
import re
import struct
from io import BufferedIOBase
from typing import Any, Dict, Iterator

from emberpool.pool.emberd.refusal import Refused, bad_request
from emberpool.pool.emberd.signing import Signer

DATA, END = 0, 1
MAX_FRAME = 1024 * 1024
MAC_BYTES = 32
_HEAD = struct.Struct("!BI")
_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,8}")
"""int() would take a sign too, and read(-1) reads on to the end of the connection."""


class ChunkedBody:
    """The bytes of a request's body that is sent in HTTP chunks."""

    def __init__(self, file: BufferedIOBase) -> None:
        self._file = file
        self._left = 0
        self._began = False
        self.ended = False

    def exactly(self, size: int) -> bytes:
        """The next `size` bytes. Raises Refused (400) if the body ends before."""
        data = bytearray()
        while len(data) < size:
            part = self._some(size - len(data))
            if not part:
                raise bad_request("body", "ended early")
            data += part
        return bytes(data)

    def drain(self) -> None:
        """Read what is left, so that the connection can be answered and used on. Raises Refused, OSError if cut."""
        while self._some(MAX_FRAME):
            pass

    def _some(self, most: int) -> bytes:
        if not self._left and not self.ended:
            self._next_chunk()
        if self.ended:
            return b""
        part = self._file.read(min(most, self._left))
        if not part:
            raise bad_request("body", "ended early")
        self._left -= len(part)
        return part

    def _next_chunk(self) -> None:
        if self._began:
            self._line()  # what ends the chunk before
        self._began = True
        text = self._line().split(b";", 1)[0].strip()
        if not _CHUNK_SIZE.fullmatch(text):
            raise bad_request("body", "is not sent in chunks, or ended early")
        self._left = int(text, 16)
        if self._left == 0:
            while self._line() not in (b"\r\n", b"\n"):
                pass
            self.ended = True

    def _line(self) -> bytes:
        line = self._file.readline(1024)
        if not line.endswith(b"\n"):
            raise bad_request("body", "ended early")
        return line


def incoming(body: ChunkedBody, signer: Signer, nonce: str) -> Iterator[bytes]:
    """The data of a request's frames, each checked before it is given on, up to the last.

    Raises:
        Refused: 400 the body ended early; 401 a frame is not the one that was signed for this place.
    """
    index = 0
    while True:
        kind, size = _HEAD.unpack(body.exactly(_HEAD.size))
        if size > MAX_FRAME:
            raise bad_request("body", f"a frame may have {MAX_FRAME} bytes")
        data = body.exactly(size)
        mac = body.exactly(MAC_BYTES)
        if not hmac.compare_digest(mac, signer.frame_mac("request", nonce, index, kind, data)):
            raise Refused(401, "bad_signature", f"frame {index} was changed, moved or left out on the way")
        if kind == END:
            return
        if data:
            yield data
        index += 1


class Outgoing:
    """Writes an answer's frames."""

    def __init__(self, file: BufferedIOBase, signer: Signer, nonce: str) -> None:
        self._file, self._signer, self._nonce = file, signer, nonce
        self._index = 0

    def data(self, data: bytes) -> None:
        """One frame of at most `MAX_FRAME` bytes. Raises OSError if nobody reads."""
        self._frame(DATA, data)

    def end(self, about: Dict[str, Any]) -> None:
        """The last frame: what was sent, or `error` and `detail`; then the end of the body."""
        self._frame(END, json.dumps(about).encode("ascii"))
        self._file.write(b"0\r\n\r\n")

    def _frame(self, kind: int, data: bytes) -> None:
        mac = self._signer.frame_mac("answer", self._nonce, self._index, kind, data)
        self._index += 1
        size = _HEAD.size + len(data) + MAC_BYTES
        self._file.write(b"%x\r\n" % size + _HEAD.pack(kind, len(data)))
        self._file.write(data)
        self._file.write(mac + b"\r\n")
