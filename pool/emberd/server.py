"""HTTP/1.1 over TCP or a unix socket: reads a request, checks its signature, routes it, signs the answer."""

import hashlib
import io
import json
import select
import socket
import socketserver
import sys
import time
import traceback
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Callable, Dict, Generator, Optional, Sequence, Tuple

from emberpool.pool.emberd import filecalls, headers
from emberpool.pool.emberd.arriving import Arriving
from emberpool.pool.emberd.calls import Answer, Calls
from emberpool.pool.emberd.connections import Connections
from emberpool.pool.emberd.frames import ChunkedBody, Outgoing, incoming
from emberpool.pool.emberd.listening import bound
from emberpool.pool.emberd.refusal import Refused, bad_request
from emberpool.pool.emberd.routes import Routes
from emberpool.pool.emberd.signing import Claim, Signed, Signer
from emberpool.pool.emberd.transfers import Streamed, told

if TYPE_CHECKING:
    from emberpool.pool.emberd.tls import Tls

IDLE_S = 120.0
"""A kept-alive connection without a request for this long is closed."""
HEAD_S = 10.0
"""From a later request's first byte until it is known to be made with the key."""
UNSIGNED_BYTES = 64 * 1024
"""Longest body that is read before it is known that its request was made with the key."""
MOST_DIGITS = 20
"""Of a length that is looked at as a number."""
AFTER_MS = 1
"""How long work that nobody waits for is put off for whoever just got an answer."""
STALL_S = 30.0
"""A body or a streamed answer of which no byte moves for this long is given up, as the other side does."""
HEAR_S = 2.0
"""How long whoever sends a body that is not taken may take to hear it."""


def make_server(
    listen: str, signer: Signer, calls: Calls, connections: Connections, tls: "Optional[Tls]" = None
) -> "Tuple[socketserver.BaseServer, str]":
    """A bound server and what it listens on (with the real port if 0 was given). Raises OSError, ValueError."""

    class Handler(_Handler):
        pass

    Handler.signer, Handler.routes, Handler.connections = signer, Routes(calls), connections
    return bound(listen, Handler, connections, tls)


class _Handler(BaseHTTPRequestHandler):
    signer: Signer
    routes: Routes
    connections: Connections
    raw_requestline: bytes
    head: Dict[str, str]
    """Headers by name in lower case."""
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet per answer
    proven = False
    """Whether a request with the key has come on this connection."""
    requests: io.BufferedReader
    _after: Optional[Callable[[], None]] = None
    """What the last answer has left to be done."""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.arriving = Arriving(self.connection, self.connections.new_until(self.connection))
        self.rfile = self.requests = io.BufferedReader(self.arriving)
        if self.connection.family != socket.AF_UNIX:
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def finish(self) -> None:
        """The connection is over."""
        self._do_what_is_left()
        super().finish()

    def _do_what_is_left(self) -> None:
        """What the last answer has left to be done, once the one who asked has it and the processor, or asks again."""
        after, self._after = self._after, None
        if after is None:
            return
        try:
            if not self.close_connection:
                poll = select.poll()
                poll.register(self.connection, select.POLLIN)
                poll.poll(AFTER_MS)
        finally:
            after()

    def handle_one_request(self) -> None:
        """One request and its answer. What comes is bounded from its first byte on, whoever sends it."""
        try:
            self._do_what_is_left()
            if self.proven:
                self.arriving.ends = None
                self.connection.settimeout(IDLE_S)
                self.requests.peek(1)
                self.arriving.ends = time.monotonic() + HEAD_S
            self.raw_requestline = headers.first_line(self.requests)
            if not self.raw_requestline:
                self.close_connection = True
            elif self.parse_request():
                self._handle()
        except socket.timeout:
            self.close_connection = True

    def parse_request(self) -> bool:
        """Read the head of a request; False if it was refused, and the connection ends."""
        self.close_connection, self.request_version = True, "HTTP/1.1"
        try:
            self.head = headers.read(self.requests, len(self.raw_requestline))
            words = self.raw_requestline.decode("latin-1").split()
            if len(words) != 3 or not words[2].startswith("HTTP/1."):
                raise bad_request("request", "must be METHOD TARGET HTTP/1.1")
            self.command, self.path, version = words
        except Refused as refusal:
            self._refuse(refusal, None)
            return False
        kept = self.head.get("connection", "keep-alive" if version != "HTTP/1.0" else "close").lower()
        self.close_connection = kept != "keep-alive"
        return True

    def log_message(self, format: str, *args: Any) -> None:
        """No access log: paths may hold what callers named."""

    def _handle(self) -> None:
        """A body is taken once it is known whose it is: a short one may come unannounced, and tells so itself."""
        request = self._signed()
        if self.head.get("x-ember-stream"):
            claim = self._opened(request, self.signer.check_streamed(request))
            if claim is not None:
                self._take_stream(request, claim)
            return
        try:
            size = self._announced(request)
            body = b"" if request.body else self._read(size)
        except Refused as refusal:
            self.close_connection = True  # the rest of the stream is not a request
            self._refuse(refusal, None)
            return
        made_with_key = self.signer.check_unread(request) if request.body else self.signer.check(request, body)
        claim = self._opened(request, made_with_key, size if request.body else 0)
        if claim is None:
            return
        with self._serving():
            if request.body:
                self._take_announced(request, claim, size)
            else:
                self._answer(request, partial(self._route, request, claim, body))

    def _opened(self, request: Signed, made_with_key: bool, unread: Optional[int] = None) -> Optional[Claim]:
        """The claim of a request whose head came with the key, and never before; None if it was refused.

        `unread`: bytes of its body that follow, None if nobody knows.
        """
        if not made_with_key:
            self.close_connection = self.close_connection or unread != 0
            self._refuse(_unsigned(), None)
            return None
        try:
            claim = request.claim()
            self.signer.once(request, claim)
            return claim
        except Refused as refusal:
            self.close_connection = self.close_connection or unread != 0
            self._refuse(refusal, request.nonce)
            if unread != 0:
                self._be_heard()
            return None

    def _be_heard(self) -> None:
        """Let the sender of a body that is not taken hear why: a connection that is closed over what nobody has read is
        cut by the kernel, answer and all."""
        deadline = time.monotonic() + HEAR_S
        try:
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(HEAR_S)
            while time.monotonic() < deadline and self.connection.recv(65536):
                continue
        except OSError:
            return

    @contextmanager
    def _serving(self) -> Generator[None, None, None]:
        """What is on the connection was made with the key."""
        self.connections.serving(self.connection)
        self.proven, self.arriving.ends = True, None
        self.connection.settimeout(IDLE_S)
        try:
            yield
        finally:
            self.connections.served(self.connection)

    def _take_announced(self, request: Signed, claim: Claim, size: int) -> None:
        try:
            self.connection.settimeout(STALL_S)
            body = self._read(size)
            self.connection.settimeout(IDLE_S)
            if hashlib.sha256(body).hexdigest() != request.body:
                raise _unsigned()
        except Refused as refusal:
            self.close_connection = True
            self._refuse(refusal, None)
            return
        self._answer(request, partial(self._route, request, claim, body))

    def _take_stream(self, request: Signed, claim: Claim) -> None:
        """A request whose body follows in frames. What is refused from here on is read to its end all the same: only
        then does every sender hear why."""
        body = ChunkedBody(self.rfile)

        def upload() -> Answer:
            try:
                pieces = incoming(body, self.signer, request.nonce)
                return self.routes.take(request.method, request.target, claim, pieces)
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

    def _route(self, request: Signed, claim: Claim, body: bytes) -> Optional[Answer]:
        send = partial(self._send_stream, nonce=request.nonce)
        return self.routes.answer(request.method, request.target, claim, body, send)

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
                self._after = answer.after
                self._send(200, answer, request.nonce)
                if answer.then is not None:
                    answer.then()

    def _refuse(self, refusal: Refused, nonce: Optional[str]) -> None:
        body = json.dumps({"error": refusal.word, "detail": refusal.detail}).encode("ascii")
        self._send(refusal.status, Answer(body), nonce)

    def _signed(self) -> Signed:
        names = ("lease", "epoch", "tag", "boot", "hold", "nonce", "mac", "body")
        values = [self.head.get("x-ember-" + name, "") for name in names]
        return Signed(self.command, self.path, *values)

    def _announced(self, request: Signed) -> int:
        """Bytes of the body that follows. Raises Refused: so many are not taken."""
        if self.head.get("transfer-encoding"):
            raise bad_request("transfer-encoding", "give the body with a content-length")
        text = self.head.get("content-length", "0")
        if not (text.isascii() and text.isdigit()):
            raise bad_request("content-length", "not a number")
        # Python itself raises ValueError for thousands of digits.
        if len(text) > MOST_DIGITS or int(text) > filecalls.MAX_BYTES:
            raise Refused(413, "too_large", f"a body may have {filecalls.MAX_BYTES} bytes")
        if not request.body and int(text) > UNSIGNED_BYTES:
            raise Refused(413, "too_large", f"a body over {UNSIGNED_BYTES} bytes needs its hash in x-ember-body")
        return int(text)

    def _read(self, size: int) -> bytes:
        body = self.rfile.read(size)
        if len(body) < size:
            raise bad_request("body", "ended early")
        return body

    def _send_stream(self, answer: Streamed, nonce: str) -> None:
        """From here on errors are told by the last frame; without one the body was cut."""
        with closing(answer.pieces):
            mac = ("x-ember-mac", self.signer.streamed_answer_mac(nonce))
            streamed = (("transfer-encoding", "chunked"), ("x-ember-stream", "1"), mac)
            self._send_head(200, (*answer.headers, ("content-type", "application/octet-stream"), *streamed))
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
        headers = [("content-type", answer.kind), ("content-length", str(len(answer.body))), *answer.headers]
        if self.close_connection:
            headers.append(("connection", "close"))  # before it sends the next request into what is just being closed
        if nonce is not None:
            headers.append(("x-ember-mac", self.signer.answer_mac(nonce, status, answer.body)))
        self._send_head(status, headers)
        self.wfile.write(answer.body)
        self.wfile.flush()

    def _send_head(self, status: int, headers: Sequence[Tuple[str, str]]) -> None:
        lines = [f"HTTP/1.1 {status} {self.responses[status][0]}", *(f"{name}: {value}" for name, value in headers)]
        self.wfile.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))


def _unsigned() -> Refused:
    return Refused(401, "bad_signature", "wrong key, or something was changed on the way")
