"""The calls of docs/emberd-protocol.md that move files and output of any size, list and remove."""

from typing import Any, Dict, Iterator, Optional

from emberpool.pool.emberd import filecalls, transfers
from emberpool.pool.emberd.calls import Answer, Calls, json_answer
from emberpool.pool.emberd.refusal import bad_request
from emberpool.pool.emberd.room import RoomError
from emberpool.pool.emberd.signing import Claim
from emberpool.pool.emberd.transfers import Pieces, Streamed


class FileTransfers:
    """What each call does. Every method may be called from any thread; the caller has admitted the claim."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def upload(self, claim: Claim, fields: Dict[str, str], pieces: Iterator[bytes]) -> Answer:
        """PUT /v1/upload."""
        path = filecalls.checked_path(fields.get("path"))
        kind = fields.get("kind", "file")
        if kind not in ("file", "folder"):
            raise bad_request("kind", "must be file or folder")
        size, mode = number_in(fields, "size"), mode_in(fields)
        room = self._calls.holder_room(claim)
        try:
            return json_answer(transfers.take(room, path, mode, kind == "folder", size, pieces))
        except RoomError as error:
            raise self._calls.gone(claim, error) from error

    def download(self, claim: Claim, fields: Dict[str, str]) -> Streamed:
        """GET /v1/download."""
        path = filecalls.checked_path(fields.get("path"))
        try:
            found = transfers.give(self._calls.holder_room(claim), path)
        except RoomError as error:
            raise self._calls.gone(claim, error) from error
        return found._replace(pieces=self._while_held(claim, found.pieces))

    def _while_held(self, claim: Claim, pieces: Pieces) -> Pieces:
        try:
            yield from pieces
        except RoomError as error:
            raise self._calls.gone(claim, error) from error

    def output(self, claim: Claim, execution_id: str, fields: Dict[str, str]) -> Streamed:
        """GET /v1/exec/ID/output."""
        stream = fields.get("stream", "stdout")
        if stream not in ("stdout", "stderr"):
            raise bad_request("stream", "must be stdout or stderr")
        offset = number_in(fields, "offset") or 0
        pieces = self._calls.execution(claim, execution_id).whole_output(stream, offset)
        return Streamed((("x-ember-kind", "file"),), self._output(claim, pieces))

    def _output(self, claim: Claim, pieces: Iterator[bytes]) -> Pieces:
        size = 0
        for piece in pieces:
            self._calls.demand_holder(claim)  # emberd holds the file, so that no room's end would cut it
            size += len(piece)
            yield piece
        yield {"bytes": size, "entries": 1}

    def list(self, claim: Claim, fields: Dict[str, str]) -> Answer:
        """GET /v1/files."""
        path = filecalls.checked_path(fields.get("path"))
        return self._ask(claim, {"do": "list", "path": path, "after": fields.get("after", "")})

    def remove(self, claim: Claim, body: Dict[str, Any]) -> Answer:
        """POST /v1/files/remove."""
        path = filecalls.checked_path(body.get("path"))
        return self._ask(claim, {"do": "remove", "path": path, "recursive": bool(body.get("recursive"))})

    def _ask(self, claim: Claim, message: Dict[str, Any]) -> Answer:
        try:
            return json_answer(transfers.ask(self._calls.holder_room(claim), message))
        except RoomError as error:
            raise self._calls.gone(claim, error) from error


def number_in(fields: Dict[str, str], name: str, base: int = 10) -> Optional[int]:
    """A whole number of a query, 0 or more; None if it is not there. Raises Refused (400)."""
    text = fields.get(name)
    if not text:
        return None
    try:
        value = int(text, base)
    except ValueError:
        raise bad_request(name, "not a number") from None
    if value < 0:
        raise bad_request(name, "must not be below 0")
    return value


def mode_in(fields: Dict[str, str]) -> int:
    """Permission bits of a query, 0644 if there are none. Raises Refused (400)."""
    return filecalls.checked_mode(number_in(fields, "mode", 8) if fields.get("mode") else 0o644)
