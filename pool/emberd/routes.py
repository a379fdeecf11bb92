"""Which call of docs/emberd-protocol.md a request is, once its signature is known to be right."""

import json
from contextlib import contextmanager
from typing import Any, Callable, Dict, Generator, Iterator, Optional, Tuple, Union
from urllib.parse import parse_qsl, unquote

from emberpool.pool.emberd import filecalls
from emberpool.pool.emberd.calls import Answer, Calls, json_answer
from emberpool.pool.emberd.checkpoints import Checkpoints
from emberpool.pool.emberd.filetransfer import FileTransfers, mode_in, number_in
from emberpool.pool.emberd.refusal import bad_request
from emberpool.pool.emberd.shape import as_object
from emberpool.pool.emberd.signing import Claim
from emberpool.pool.emberd.transfers import Streamed

Where = Tuple[str, ...]
"""The method, and the parts of the path."""
_OF_POD = {("v1", "state"), ("v1", "promote"), ("v1", "image"), ("v1", "fence"), ("v1", "recycle"), ("v1", "restart")}
"""Paths of the calls that belong to no lease."""


class Routes:
    """Every method may be called from any thread, and raises what the call does: Refused, if it is not one at all."""

    def __init__(self, calls: Calls) -> None:
        self._calls, self._transfers = calls, FileTransfers(calls)
        self._checkpoints = Checkpoints(calls, calls.room_spec)

    def answer(
        self, method: str, target: str, claim: Claim, body: bytes, send: Callable[[Streamed], None]
    ) -> Optional[Answer]:
        """The answer; None if it is streamed: then `send` has sent it, while its lease had a call in flight."""
        path, _, query = target.partition("?")
        where = (method, *path.split("/")[1:])
        if where[1:] in _OF_POD:
            return self._of_pod(where, claim, body)
        with self._admitted(claim):
            answer = self._of_lease(where, claim, query, body)
            if not isinstance(answer, Streamed):
                return answer
            send(answer)
            return None

    def take(self, method: str, target: str, claim: Claim, pieces: Iterator[bytes]) -> Answer:
        """The answer to a request whose body is streamed."""
        path, _, query = target.partition("?")
        take = {"/v1/upload": self._transfers.upload, "/v1/checkpoint": self._checkpoints.restore}.get(path)
        if method != "PUT" or take is None:
            raise bad_request("x-ember-stream", "this call takes no stream")
        with self._admitted(claim):
            return take(claim, _fields(query), pieces)

    @contextmanager
    def _admitted(self, claim: Claim) -> Generator[None, None, None]:
        if claim.epoch <= 0 or not claim.lease or not claim.tag:
            raise bad_request("x-ember-lease, x-ember-epoch, x-ember-tag", "this call needs a claim")
        self._calls.begin(claim)
        try:
            yield
        finally:
            self._calls.end(claim)

    def _of_pod(self, where: Where, claim: Claim, body: bytes) -> Answer:
        if where == ("GET", "v1", "state"):
            return self._calls.state()
        if where == ("POST", "v1", "promote"):
            return self._calls.promote()
        if where == ("POST", "v1", "image"):
            return self._calls.swap(_epoch(claim, _object(body)), _object(body))
        if where == ("POST", "v1", "fence"):
            return self._calls.fence(_epoch(claim, _object(body)))
        if where == ("POST", "v1", "recycle"):
            return self._calls.recycle(_epoch(claim, _object(body)))
        if where == ("POST", "v1", "restart"):
            return self._calls.restart(_epoch(claim, _object(body)))
        raise bad_request("path", "there is no such call")

    def _of_lease(self, where: Where, claim: Claim, query: str, body: bytes) -> "Union[Answer, Streamed]":
        if where == ("POST", "v1", "exec"):
            return self._calls.start(claim, _object(body))
        if where == ("GET", "v1", "exec"):
            return self._calls.list(claim)
        if where[:3] == ("POST", "v1", "exec") and len(where) == 5:
            execution_id = unquote(where[3], errors="surrogateescape")
            if where[4] == "wait":
                return self._calls.wait(claim, execution_id, _object(body))
            if where[4] == "kill":
                return self._calls.kill(claim, execution_id)
            return self._calls.steer(claim, execution_id, where[4], _object(body))
        if where == ("POST", "v1", "shell"):
            return self._calls.start_shell(claim, _object(body))
        if where[:3] == ("POST", "v1", "shell") and len(where) == 5 and where[4] == "run":
            return self._calls.run_in_shell(claim, unquote(where[3], errors="surrogateescape"), _object(body))
        if where == ("POST", "v1", "http"):
            return self._calls.request_port(claim, _object(body))
        if where == ("POST", "v1", "network"):
            return self._calls.join_network(claim, _object(body))
        if where[:3] == ("GET", "v1", "exec") and where[4:] == ("output",):
            return self._transfers.output(claim, unquote(where[3], errors="surrogateescape"), _fields(query))
        if where == ("GET", "v1", "download"):
            return self._transfers.download(claim, _fields(query))
        if where == ("GET", "v1", "checkpoint"):
            return self._checkpoints.save(claim, _fields(query))
        if where == ("GET", "v1", "files"):
            return self._transfers.list(claim, _fields(query))
        if where == ("POST", "v1", "files", "remove"):
            return self._transfers.remove(claim, _object(body))
        if where == ("PUT", "v1", "file"):
            fields = _fields(query)
            path = filecalls.checked_path(fields.get("path"))
            return self._calls.put_file(claim, path, mode_in(fields), body)
        if where == ("GET", "v1", "file"):
            fields = _fields(query)
            limit = number_in(fields, "limit")
            limit = filecalls.MAX_BYTES if limit is None else min(limit, filecalls.MAX_BYTES)
            path = filecalls.checked_path(fields.get("path"))
            return self._calls.get_file(claim, path, number_in(fields, "offset"), limit)
        if where[1:3] == ("v1", "layer") and len(where) > 3:
            return self._of_layer(where, claim, query, body)
        if where == ("POST", "v1", "bind"):
            return self._calls.bind(claim, _object(body))
        raise bad_request("path", "there is no such call")

    def _of_layer(self, where: Where, claim: Claim, query: str, body: bytes) -> Answer:
        layers, key = self._calls.layers, where[3]
        call = (where[0], *where[4:])
        if call == ("GET",):
            return json_answer(layers.tell(key))
        if call == ("PUT",):
            return json_answer(layers.append(key, number_in(_fields(query), "offset") or 0, body))
        if call == ("POST",):
            return json_answer(layers.finish(key))
        if call == ("POST", "place"):
            return self._calls.place_layer(claim, key, _object(body))
        raise bad_request("path", "there is no such call")


def _object(body: bytes) -> Dict[str, Any]:
    try:
        data = as_object(json.loads(body or b"{}"))
    except ValueError:
        raise bad_request("body", "is no JSON") from None
    if data is None:
        raise bad_request("body", "must be a JSON object")
    return data


def _fields(query: str) -> Dict[str, str]:
    return dict(parse_qsl(query, keep_blank_values=True, errors="surrogateescape"))


def _epoch(claim: Claim, body: Dict[str, Any]) -> int:
    epoch = body.get("epoch")
    if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch != claim.epoch:
        raise bad_request("epoch", "must be the header's epoch")
    return epoch
