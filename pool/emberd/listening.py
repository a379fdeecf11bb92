"""The socket that emberd listens on: a unix socket, TCP, or TCP with TLS; and what must come first on a connection.

The thread that accepts connections never waits for what somebody sends: looking at the first byte, and a handshake, are
the connection's own thread's, and bounded.
"""

import os
import socket
import socketserver
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Optional, Tuple, Type

from emberpool.pool.emberd.connections import Connections

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler

    from emberpool.pool.emberd.tls import Tls

LINGER_S = 1.0
"""How long somebody who spoke the wrong protocol is given to read the answer."""
_HANDSHAKE = b"\x16"
"""First byte of TLS; no method of HTTP begins with it."""
_TLS_WANTED = b'{"error": "tls_wanted", "detail": "this port speaks TLS only"}'
_NO_TLS = b'{"error": "no_tls", "detail": "this port does not speak TLS"}'


def bound(
    listen: str, handler: "Type[BaseHTTPRequestHandler]", connections: Connections, tls: "Optional[Tls]"
) -> "Tuple[socketserver.BaseServer, str]":
    """A bound server and what it listens on (with the real port if 0 was given). Raises OSError, ValueError."""
    if listen.startswith("unix:"):
        path = listen[5:]
        if os.path.exists(path):
            os.unlink(path)
        unix = _UnixServer(path, handler)
        unix.connections = connections
        os.chmod(path, 0o666)  # requests are signed; who may reach the folder is its owner's business
        return unix, listen
    scheme, _, where = listen.partition("://")
    if scheme not in ("http", "https"):
        raise ValueError("listen: must be unix:/path, http://host:port or https://host:port")
    host, _, port = where.rpartition(":")
    tcp = _TcpServer((host.strip("[]"), int(port)), handler)
    tcp.connections, tcp.tls = connections, tls
    return tcp, f"{scheme}://{host}:{tcp.server_address[1]}"


class _Bounded(socketserver.ThreadingMixIn, socketserver.BaseServer):
    daemon_threads = True
    connections: Connections

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return self.connections.admit(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            if self.greeted(request):
                super().process_request_thread(request, client_address)
            else:
                request.close()
        finally:
            self.connections.closed(request)

    def greeted(self, request: Any) -> bool:
        """Whether requests may follow on this connection."""
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is nothing to report: the other side repeats its call."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _UnixServer(_Bounded, socketserver.UnixStreamServer):
    request_queue_size = 128


class _TcpServer(_Bounded, socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = 128
    tls: "Optional[Tls]" = None

    def __init__(self, address: Tuple[str, int], handler: "Type[BaseHTTPRequestHandler]") -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def get_request(self) -> Any:
        request, address = super().get_request()
        if self.tls is None:
            return request, address
        try:
            return self.tls.wrapped(request), address
        except (OSError, ValueError) as error:
            request.close()  # whoever it was has gone already
            raise OSError(str(error)) from error

    def greeted(self, request: Any) -> bool:
        """It speaks TLS where that is wanted, and only there; who does not is told in the clear, and hung up on."""
        deadline = self.connections.new_until(request)
        request.settimeout(_left(deadline))
        try:
            first = socket.socket.recv(request, 1, socket.MSG_PEEK)
            if not first:
                return False
            if (first == _HANDSHAKE) != (self.tls is not None):
                _tell(request, _NO_TLS if self.tls is None else _TLS_WANTED)
                return False
            if self.tls is not None:
                request.settimeout(_left(deadline))
                request.do_handshake()
        except OSError:  # of TLS too: the other side knows what it did not like
            return False
        return True


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


def _tell(request: Any, body: bytes) -> None:
    """Answer 400 past any TLS, and let it be read before the end: with bytes unread, that would be a reset."""
    raw = socket.socket
    raw.recv(request, 65536)
    head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: "
    raw.sendall(request, head + str(len(body)).encode("ascii") + b"\r\n\r\n" + body)
    with suppress(OSError):
        raw.shutdown(request, socket.SHUT_WR)
        request.settimeout(LINGER_S)
        for _ in range(16):
            if not raw.recv(request, 65536):
                return
