"""HTTP/1.1 over TCP or a unix socket: reads a request, checks its signature, routes it, signs the answer."""

import json
import socket
import socketserver
import sys
import traceback
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Callable, Dict, Generator, Optional, Tuple
from urllib.parse import parse_qsl, unquote

from emberpool.pool.emberd import filecalls, headers
from emberpool.pool.emberd.calls import Answer, Calls, json_answer
from emberpool.pool.emberd.checkpoints import Checkpoints
from emberpool.pool.emberd.connections import Connections
from emberpool.pool.emberd.filetransfer import FileTransfers, mode_in, number_in
from emberpool.pool.emberd.frames import ChunkedBody, Outgoing, incoming
from emberpool.pool.emberd.listening import FIRST_S, bound
from emberpool.pool.emberd.refusal import Refused, bad_request
from emberpool.pool.emberd.shape import as_object
from emberpool.pool.emberd.signing import Claim, Signed, Signer
from emberpool.pool.emberd.transfers import Streamed, told

if TYPE_CHECKING:
    from emberpool.pool.emberd.tls import Tls

IDLE_S = 120.0
"""A kept-alive connection without a request for this long is closed."""
UNSIGNED_BYTES = 64 * 1024
"""Longest body that is read before it is known that its request was made with the key."""
STALL_S = 30.0
"""A streamed body or answer of which no byte moves for this long is given up, as the other side does."""


def make_server(
    listen: str, signer: Signer, calls: Calls, connections: Connections, tls: "Optional[Tls]" = None
) -> "Tuple[socketserver.BaseServer, str]":
    """A bound server and what it listens on (with the real port if 0 was given). Raises OSError, ValueError."""

    class Handler(_Handler):
        pass

    Handler.signer, Handler.calls, Handler.transfers = signer, calls, FileTransfers(calls)
    Handler.checkpoints, Handler.connections = Checkpoints(calls, calls.room_spec), connections
    return bound(listen, Handler, connections, tls)


class _Handler(BaseHTTPRequestHandler):
    signer: Signer
    calls: Calls
    transfers: FileTransfers
    checkpoints: Checkpoints
    connections: Connections
    raw_requestline: bytes
    head: Dict[str, str]
    """Headers by name in lower case."""
    protocol_version = "HTTP/1.1"
    timeout = FIRST_S
    wbufsize = -1  # one packet per answer

    def setup(self) -> None:
        super().setup()
        if self.connection.family != socket.AF_UNIX:
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def parse_request(self) -> bool:
        """Read the head of a request; False if it was refused, and the connection ends."""
        self.close_connection, self.request_version = True, "HTTP/1.1"
        try:
            words = self.raw_requestline.decode("latin-1").split()
            if len(words) != 3 or not words[2].startswith("HTTP/1."):
                raise bad_request("request", "must be METHOD TARGET HTTP/1.1")
            self.command, self.path, version = words
            self.head = headers.read(self.rfile)
        except Refused as refusal:
            self._refuse(refusal, None)
            return False
        kept = self.head.get("connection", "keep-alive" if version != "HTTP/1.0" else "close").lower()
        self.close_connection = kept != "keep-alive"
        return True

    def log_message(self, format: str, *args: Any) -> None:
        """No access log: paths may hold what callers named."""

    def do_GET(self) -> None:
        self._handle()

    def do_PUT(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def _handle(self) -> None:
        request = self._signed()
        if self.head.get("x-ember-stream"):
            self._take_stream(request)
            return
        try:
            body = self._body(request)
        except Refused as refusal:
            self.close_connection = True  # the rest of the stream is not a request
            self._refuse(refusal, None)
            return
        if not self.signer.check(request, body):
            self._refuse(_unsigned(), None)
            return
        with self._serving():
            self._answer(request, lambda: self._route(request, body))

    @contextmanager
    def _serving(self) -> Generator[None, None, None]:
        """What is on the connection was made with the key."""
        self.connections.serving(self.connection)
        self.connection.settimeout(IDLE_S)
        try:
            yield
        finally:
            self.connections.served(self.connection)

    def _take_stream(self, request: Signed) -> None:
        """A request whose body follows in frames. What is refused is read to its end all the same: only then does the
        sender hear why."""
        body = ChunkedBody(self.rfile)
        self.connection.settimeout(STALL_S)
        if not self.signer.check_streamed(request):
            self.close_connection = True
            self._refuse(_unsigned(), None)
            return

        def upload() -> Answer:
            try:
                pieces = incoming(body, self.signer, request.nonce)
                path, _, query = request.target.partition("?")
                take = {"/v1/upload": self.transfers.upload, "/v1/checkpoint": self.checkpoints.restore}.get(path)
                if request.method != "PUT" or take is None:
                    raise bad_request("x-ember-stream", "this call takes no stream")
                claim = request.claim()
                self.signer.once(request, claim)
                with self._admitted(claim):
                    return take(claim, _fields(query), pieces)
            finally:
                try:
                    body.drain()
                except (Refused, OSError):
                    self.close_connection = True  # it was cut

        try:
            with self._serving():
                self.connection.settimeout(STALL_S)
                self._answer(request, upload)
        except (ConnectionError, socket.timeout):
            self.close_connection = True
        finally:
            self.connection.settimeout(IDLE_S)

    def _answer(self, request: Signed, do: "Callable[[], Optional[Answer]]") -> None:
        try:
            answer = do()
        except Refused as refusal:
            self._refuse(refusal, request.nonce)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            self._refuse(Refused(500, "internal", "see emberd's standard error"), request.nonce)
        else:
            if answer is not None:
                self._send(200, answer, request.nonce)

    def _refuse(self, refusal: Refused, nonce: Optional[str]) -> None:
        body = json.dumps({"error": refusal.word, "detail": refusal.detail}).encode("ascii")
        self._send(refusal.status, Answer(body), nonce)

    def _signed(self) -> Signed:
        names = ("lease", "epoch", "tag", "boot", "hold", "nonce", "mac", "body")
        values = [self.head.get("x-ember-" + name, "") for name in names]
        return Signed(self.command, self.path, *values)

    def _body(self, request: Signed) -> bytes:
        if self.head.get("transfer-encoding"):
            raise bad_request("transfer-encoding", "give the body with a content-length")
        text = self.head.get("content-length", "0")
        if not (text.isascii() and text.isdigit()):
            raise bad_request("content-length", "not a number")
        if int(text) > filecalls.MAX_BYTES:
            raise Refused(413, "too_large", f"a body may have {filecalls.MAX_BYTES} bytes")
        if request.body and not self.signer.check_unread(request):
            raise _unsigned()
        if not request.body and int(text) > UNSIGNED_BYTES:
            raise Refused(413, "too_large", f"a body over {UNSIGNED_BYTES} bytes needs its hash in x-ember-body")
        body = self.rfile.read(int(text))
        if len(body) < int(text):
            raise bad_request("body", "ended early")
        return body

    def _route(self, request: Signed, body: bytes) -> Optional[Answer]:
        """The answer; None if it was streamed, and is sent."""
        claim = request.claim()
        self.signer.once(request, claim)
        path, _, query = request.target.partition("?")
        where = (request.method, *path.split("/")[1:])
        if where == ("GET", "v1", "state"):
            return self.calls.state()
        if where == ("POST", "v1", "promote"):
            return self.calls.promote()
        if where == ("POST", "v1", "image"):
            return self.calls.swap(_epoch(claim, _object(body)), _object(body))
        if where in (("POST", "v1", "fence"), ("POST", "v1", "recycle")):
            epoch = _epoch(claim, _object(body))
            return self.calls.fence(epoch) if where[2] == "fence" else self.calls.recycle(epoch)
        with self._admitted(claim):
            answer = self._of_lease(where, claim, query, body)
            if isinstance(answer, Streamed):
                self._send_stream(answer, request.nonce)
                return None
            return answer

    @contextmanager
    def _admitted(self, claim: Claim) -> Generator[None, None, None]:
        if claim.epoch <= 0 or not claim.lease or not claim.tag:
            raise bad_request("x-ember-lease, x-ember-epoch, x-ember-tag", "this call needs a claim")
        self.calls.begin(claim)
        try:
            yield
        finally:
            self.calls.end(claim)

    def _of_lease(self, where: Tuple[str, ...], claim: Claim, query: str, body: bytes) -> "Answer | Streamed":
        if where == ("POST", "v1", "exec"):
            return self.calls.start(claim, _object(body))
        if where == ("GET", "v1", "exec"):
            return self.calls.list(claim)
        if where[:3] == ("POST", "v1", "exec") and len(where) == 5:
            execution_id = unquote(where[3], errors="surrogateescape")
            if where[4] == "wait":
                return self.calls.wait(claim, execution_id, _object(body))
            if where[4] == "kill":
                return self.calls.kill(claim, execution_id)
            return self.calls.steer(claim, execution_id, where[4], _object(body))
        if where == ("POST", "v1", "shell"):
            return self.calls.start_shell(claim, _object(body))
        if where[:3] == ("POST", "v1", "shell") and len(where) == 5 and where[4] == "run":
            return self.calls.run_in_shell(claim, unquote(where[3], errors="surrogateescape"), _object(body))
        if where == ("POST", "v1", "http"):
            return self.calls.request_port(claim, _object(body))
        if where == ("POST", "v1", "network"):
            return self.calls.join_network(claim, _object(body))
        if where[:3] == ("GET", "v1", "exec") and where[4:] == ("output",):
            return self.transfers.output(claim, unquote(where[3], errors="surrogateescape"), _fields(query))
        if where == ("GET", "v1", "download"):
            return self.transfers.download(claim, _fields(query))
        if where == ("GET", "v1", "checkpoint"):
            return self.checkpoints.save(claim, _fields(query))
        if where == ("GET", "v1", "files"):
            return self.transfers.list(claim, _fields(query))
        if where == ("POST", "v1", "files", "remove"):
            return self.transfers.remove(claim, _object(body))
        if where == ("PUT", "v1", "file"):
            fields = _fields(query)
            path = filecalls.checked_path(fields.get("path"))
            return self.calls.put_file(claim, path, mode_in(fields), body)
        if where == ("GET", "v1", "file"):
            fields = _fields(query)
            limit = number_in(fields, "limit")
            limit = filecalls.MAX_BYTES if limit is None else min(limit, filecalls.MAX_BYTES)
            path = filecalls.checked_path(fields.get("path"))
            return self.calls.get_file(claim, path, number_in(fields, "offset"), limit)
        if where[1:3] == ("v1", "layer") and len(where) > 3:
            return self._of_layer(where, claim, query, body)
        if where == ("POST", "v1", "bind"):
            return self.calls.bind(claim, _object(body))
        raise bad_request("path", "there is no such call")

    def _of_layer(self, where: Tuple[str, ...], claim: Claim, query: str, body: bytes) -> Answer:
        layers, key = self.calls.layers, where[3]
        call = (where[0], *where[4:])
        if call == ("GET",):
            return json_answer(layers.tell(key))
        if call == ("PUT",):
            return json_answer(layers.append(key, number_in(_fields(query), "offset") or 0, body))
        if call == ("POST",):
            return json_answer(layers.finish(key))
        if call == ("POST", "place"):
            return self.calls.place_layer(claim, key, _object(body))
        raise bad_request("path", "there is no such call")

    def _send_stream(self, answer: Streamed, nonce: str) -> None:
        """From here on errors are told by the last frame; without one the body was cut."""
        with closing(answer.pieces):
            self.send_response_only(200)
            for name, value in (*answer.headers, ("content-type", "application/octet-stream")):
                self.send_header(name, value)
            self.send_header("transfer-encoding", "chunked")
            self.send_header("x-ember-stream", "1")
            self.send_header("x-ember-mac", self.signer.streamed_answer_mac(nonce))
            self.end_headers()
            out, end = Outgoing(self.wfile, self.signer, nonce), {}
            self.connection.settimeout(STALL_S)
            try:
                try:
                    for piece in answer.pieces:
                        if isinstance(piece, bytes):
                            out.data(piece)
                        else:
                            end = piece
                except Refused as refusal:
                    end = told(refusal)
                out.end(end)
                self.wfile.flush()
            except Exception as error:
                self.close_connection = True  # without its last frame the receiver knows that it was cut
                if not isinstance(error, OSError):
                    traceback.print_exc(file=sys.stderr)
            finally:
                self.connection.settimeout(IDLE_S)

    def _send(self, status: int, answer: Answer, nonce: Optional[str]) -> None:
        self.send_response_only(status)
        self.send_header("content-type", answer.kind)
        self.send_header("content-length", str(len(answer.body)))
        for name, value in answer.headers:
            self.send_header(name, value)
        if nonce is not None:
            self.send_header("x-ember-mac", self.signer.answer_mac(nonce, status, answer.body))
        self.end_headers()
        self.wfile.write(answer.body)
        self.wfile.flush()


def _unsigned() -> Refused:
    return Refused(401, "bad_signature", "wrong key, or something was changed on the way")


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
