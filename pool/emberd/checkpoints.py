"""The calls of docs/emberd-protocol.md that save what a lease has changed, and restore it."""

import os
from typing import Dict, Iterator, List, Tuple

from emberpool.pool.emberd import archive
from emberpool.pool.emberd.calls import Answer, Calls, json_answer
from emberpool.pool.emberd.config import RoomSpec
from emberpool.pool.emberd.refusal import Refused, bad_request
from emberpool.pool.emberd.room import Room, RoomError
from emberpool.pool.emberd.saving import Part, Saver
from emberpool.pool.emberd.signing import Claim
from emberpool.pool.emberd.transfers import Pieces, Streamed, deliver

_HOME = "home/job"
"""Name of the home folder in an archive, wherever a plain pod has it."""


class Checkpoints:
    """What each call does. Every method may be called from any thread; the caller has admitted the claim."""

    def __init__(self, calls: Calls, spec: RoomSpec) -> None:
        self._calls, self._spec = calls, spec

    def save(self, claim: Claim, fields: Dict[str, str]) -> Streamed:
        """GET /v1/checkpoint."""
        room = self._calls.holder_room(claim)
        _demand_image(room, fields)
        saver = Saver(_parts(room, self._spec))
        return Streamed((("x-ember-kind", "folder"),), self._pieces(claim, saver))

    def _pieces(self, claim: Claim, saver: Saver) -> Pieces:
        try:
            yield from saver.pieces()
        except archive.BadEntry as error:
            raise self._calls.judged(claim, Refused(422, error.word, str(error))) from error
        except OSError as error:
            raise self._calls.judged(claim, Refused(422, "file_refused", str(error))) from error
        self._calls.holder_room(claim)  # a fence meanwhile would have made it a half one
        about = {"entries": saver.entries, "bytes": saver.size}
        yield dict(about, skipped=saver.skipped, skipped_names=saver.skipped_names)

    def restore(self, claim: Claim, fields: Dict[str, str], pieces: Iterator[bytes]) -> Answer:
        """PUT /v1/checkpoint."""
        room = self._calls.holder_room(claim)
        _demand_image(room, fields)
        try:
            return json_answer(deliver(room, {"do": "restore", "homes": _homes(room, self._spec)}, pieces))
        except RoomError as error:
            raise self._calls.gone(claim, error) from error


def _demand_image(room: Room, fields: Dict[str, str]) -> None:
    asked, has = fields.get("image", ""), room.shape.image
    if asked and has and asked != has:
        raise bad_request("image", f"the checkpoint is of image {asked!r}, and this sandbox has {has!r}")


def _parts(room: Room, spec: RoomSpec) -> List[Part]:
    if spec.mode == "plain":
        return [Part(path, name.encode("ascii")) for name, path in _homes(room, spec)]
    upper = os.path.join(room.folder, "upper")
    if room.shape.root.overlay is not None:
        return [Part(upper, b"", overlay=True)]
    folders = (("work", "work"), (_HOME, "home"), ("tmp", "tmp"))
    return [Part(os.path.join(upper, folder), name.encode("ascii")) for name, folder in folders]


def _homes(room: Room, spec: RoomSpec) -> List[Tuple[str, str]]:
    if spec.mode == "namespaces" and room.shape.root.overlay is not None:
        return [("", "/")]
    return [("work", room.work), (_HOME, room.env["HOME"]), ("tmp", room.env["TMPDIR"])]
