"""Files and folders of any size in and out of a pod, in bounded memory."""

import asyncio
import hmac
import json
import struct
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import aiohttp

from emberpool.pool.client.answers import LeaseProof
from emberpool.pool.client.refusals import error_at_end, error_of, path_bytes, unsigned
from emberpool.pool.client.signing import RequestSigner
from emberpool.pool.client.transport import LARGE, RawAnswer, Transport, unreachable
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.errors import PodUnreachable
from emberpool.pool.model.files import FileEntry, Folder, Moved
from emberpool.pool.model.ids import ExecutionId

PIECE = 256 * 1024
STALL_S = 30.0
"""Seconds without a byte moved after which a transfer is given up, and the call may be made again."""
SETTLE_S = 120.0
"""Seconds that the pod may take after the last byte, to put a folder in its place."""
DATA, END = 0, 1
MAX_FRAME = 1024 * 1024
MAC_BYTES = 32
_HEAD = struct.Struct("!BI")


class _Call(Protocol):
    def __call__(
        self,
        pod: PodAddress,
        proof: LeaseProof,
        method: str,
        target: str,
        body: bytes = b"",
        timeout_s: float = ...,
        path: str | None = None,
    ) -> Awaitable[RawAnswer]: ...


@dataclass
class Incoming:
    """What comes out of a pod. `pieces` must be read to its end: only then is it known to be whole."""

    folder: bool
    """Whether the bytes are a tar archive of a folder."""
    size: int | None
    """Bytes of the file; None of a folder, and of output."""
    mode: int
    pieces: AsyncGenerator[bytes]
    moved: Moved | None = None
    """What the pod says that it sent, once the end was reached."""


class Transfers:
    """Part of EmberdClient. Raises what that raises, and SandboxFileError naming the path."""

    def __init__(self, transport: Transport, signer: Callable[[str], RequestSigner], call: _Call) -> None:
        self._transport, self._signer, self._call = transport, signer, call

    async def upload(
        self,
        pod: PodAddress,
        proof: LeaseProof,
        path: str,
        pieces: AsyncIterable[bytes],
        *,
        folder: bool = False,
        mode: int = 0o644,
        size: int | None = None,
    ) -> Moved:
        """Write a file, or unpack a tar archive into a folder, whole or not at all. Parents are made.

        Args:
            size: bytes that will come, if known: what is too large is refused before it is sent.

        Raises:
            SandboxFileError: it cannot be written there, is over the profile's limit, or an entry is refused.
        """
        fields = {"path": path_bytes(path), "kind": "folder" if folder else "file", "mode": f"{mode:04o}"}
        fields |= {} if size is None else {"size": str(size)}
        target = f"/v1/upload?{urlencode(fields, quote_via=quote, safe='')}"
        return await self.put_stream(pod, proof, target, pieces, path)

    async def put_stream(
        self, pod: PodAddress, proof: LeaseProof, target: str, pieces: AsyncIterable[bytes], path: str
    ) -> Moved:
        """PUT `target` with a body of any length; `path` is what errors call it."""
        signer = self._signer(pod.name)
        hold = f"{proof.hold_s:.3f}" if proof.hold_s else ""
        headers = signer.streamed_headers("PUT", target, proof.request_id, proof.epoch, proof.tag, pod.boot_id, hold)
        failures: list[Exception] = []
        try:
            outgoing = _outgoing(_noting(pieces, failures), signer)
            async with asyncio.timeout(STALL_S) as stalled, aclosing(_clocked(outgoing, stalled)) as body:
                opening = self._transport.open(pod.name, pod.endpoint, "PUT", target, headers, body, SETTLE_S)
                async with opening as response:
                    stalled.reschedule(_in(SETTLE_S))
                    data = await _read(pod, response)
        except PodUnreachable:
            if failures:
                # aiohttp made it the cause of its own error: a circle of causes, of which no failure can be made.
                raise failures[0] from None
            raise
        except TimeoutError as error:
            raise PodUnreachable(pod.name, f"no byte was taken for {STALL_S:.0f} s") from error
        if not signer.accepts(response.status, data, response.headers.get("x-ember-mac", "")):
            raise unsigned(pod, response.status, data)
        if response.status != 200:
            raise error_of(pod, response.status, data, path)
        return Moved.model_validate_json(data)

    @asynccontextmanager
    async def download(self, pod: PodAddress, proof: LeaseProof, path: str) -> AsyncGenerator[Incoming]:
        """A file, or a folder as a tar archive.

        Raises:
            SandboxFileError: it is not there, is neither file nor folder, or changed while it was read.
        """
        target = f"/v1/download?{urlencode({'path': path_bytes(path)}, quote_via=quote, safe='')}"
        async with self.incoming(pod, proof, target, path) as incoming:
            yield incoming

    @asynccontextmanager
    async def output(
        self, pod: PodAddress, proof: LeaseProof, execution_id: ExecutionId, stream: str, offset: int = 0
    ) -> AsyncGenerator[Incoming]:
        """One whole stream of a command that has ended, as far as limits.file_mb let the pod keep it.

        Raises:
            SandboxFileError: the pod dropped it to make place for later ones.
            PodRefused: `unknown_execution`.
        """
        fields = urlencode({"stream": stream, "offset": str(offset)})
        target = f"/v1/exec/{quote(execution_id, safe='')}/output?{fields}"
        async with self.incoming(pod, proof, target, f"{stream} of {execution_id}") as incoming:
            yield incoming

    async def list_files(self, pod: PodAddress, proof: LeaseProof, path: str, after: str = "") -> Folder:
        """The entries of a folder in the order of their bytes, at most 2,000 behind the name `after`."""
        fields = {"path": path_bytes(path), "after": path_bytes(after)}
        target = f"/v1/files?{urlencode(fields, quote_via=quote, safe='')}"
        said: dict[str, Any] = json.loads((await self._call(pod, proof, "GET", target, path=path)).body)
        # From the texts and not the JSON: names that are not UTF-8 arrive with surrogates.
        entries = tuple(FileEntry.model_validate(entry) for entry in said["entries"])
        return Folder(entries=entries, more=said["more"])

    async def remove(self, pod: PodAddress, proof: LeaseProof, path: str, recursive: bool = False) -> None:
        """Remove a file, a link or a folder; one that is not empty only if `recursive`."""
        path_bytes(path)
        body = json.dumps({"path": path, "recursive": recursive}).encode("ascii")
        await self._call(pod, proof, "POST", "/v1/files/remove", body, SETTLE_S, path)

    @asynccontextmanager
    async def incoming(self, pod: PodAddress, proof: LeaseProof, target: str, path: str) -> AsyncGenerator[Incoming]:
        """The streamed answer to GET `target`; `path` is what errors call it."""
        signer = self._signer(pod.name)
        hold = f"{proof.hold_s:.3f}" if proof.hold_s else ""
        headers = signer.headers("GET", target, b"", proof.request_id, proof.epoch, proof.tag, pod.boot_id, hold)
        opening = self._transport.open(pod.name, pod.endpoint, "GET", target, headers, None, STALL_S)
        async with opening as response:
            named = response.headers
            mac = named.get("x-ember-mac", "")
            if response.status != 200:
                data = await _read(pod, response)
                if not signer.accepts(response.status, data, mac):
                    raise unsigned(pod, response.status, data)
                raise error_of(pod, response.status, data, path)
            if not signer.accepts_streamed(mac):
                raise PodUnreachable(pod.name, "answered 200 without a valid signature")
            size = named.get("x-ember-size")
            kind, mode = named.get("x-ember-kind") == "folder", int(named.get("x-ember-mode", "644"), 8)
            incoming = Incoming(kind, None if size is None else int(size), mode, _nothing())

            def at_end(said: dict[str, Any]) -> None:
                if "error" in said:
                    raise error_at_end(pod, said["error"], said.get("detail", ""), path)
                incoming.moved = Moved.model_validate(said)

            incoming.pieces = _pieces(pod, response.content, signer, at_end)
            async with aclosing(incoming.pieces):
                yield incoming


async def _nothing() -> AsyncGenerator[bytes]:
    return
    yield b""


def _in(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def _read(pod: PodAddress, response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, OSError) as error:
        raise unreachable(pod.name, error) from error


async def _noting(pieces: AsyncIterable[bytes], failures: list[Exception]) -> AsyncGenerator[bytes]:
    """The pieces. Why they cannot be had is noted: the HTTP client makes a broken connection of it."""
    try:
        async for piece in pieces:
            yield piece
    except Exception as error:
        failures.append(error)
        raise


async def _outgoing(pieces: AsyncIterable[bytes], signer: RequestSigner) -> AsyncGenerator[bytes]:
    """The frames of a request."""
    index = 0
    async for piece in _cut(pieces):
        yield await _frame(signer, index, DATA, piece)
        index += 1
    yield await _frame(signer, index, END, b"{}")


async def _clocked(frames: AsyncGenerator[bytes], stalled: asyncio.Timeout) -> AsyncGenerator[bytes]:
    """Asking for the next frame shows that the last one left: the clock starts anew."""
    async with aclosing(frames):
        async for frame in frames:
            yield frame
            stalled.reschedule(_in(STALL_S))
    stalled.reschedule(_in(SETTLE_S))


async def _cut(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """No piece larger than a frame, none empty."""
    async for piece in pieces:
        for start in range(0, len(piece), MAX_FRAME):
            yield piece[start : start + MAX_FRAME]


async def _frame(signer: RequestSigner, index: int, kind: int, data: bytes) -> bytes:
    if len(data) < LARGE:
        mac = signer.frame_mac("request", index, kind, data)
    else:
        mac = await asyncio.to_thread(signer.frame_mac, "request", index, kind, data)
    return _HEAD.pack(kind, len(data)) + data + mac


async def _pieces(
    pod: PodAddress, content: aiohttp.StreamReader, signer: RequestSigner, at_end: Callable[[dict[str, Any]], None]
) -> AsyncGenerator[bytes]:
    """The data of an answer's frames, each checked before it is given on; `at_end` gets what the last one says."""
    index = 0
    while True:
        try:
            kind, size = _HEAD.unpack(await content.readexactly(_HEAD.size))
            if size > MAX_FRAME:
                raise PodUnreachable(pod.name, "sent a frame that is too large")
            data = await content.readexactly(size)
            mac = await content.readexactly(MAC_BYTES)
        except (aiohttp.ClientError, asyncio.IncompleteReadError, TimeoutError, OSError) as error:
            raise PodUnreachable(pod.name, f"the stream was cut: {type(error).__name__} {error}".rstrip()) from error
        if len(data) < LARGE:
            right = signer.frame_mac("answer", index, kind, data)
        else:
            right = await asyncio.to_thread(signer.frame_mac, "answer", index, kind, data)
        if not hmac.compare_digest(mac, right):
            raise PodUnreachable(pod.name, f"frame {index} was changed, moved or left out on the way")
        if kind == END:
            at_end(json.loads(data))
            return
        yield data
        index += 1
