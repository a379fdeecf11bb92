"""HTTP requests to a server that a job runs, on its loopback and nowhere else.

emberd reaches the server as another job would: rooms share the pod's network namespace, or a thread enters theirs.
"""

import base64
import http.client
import re
import socket
import threading
from contextlib import contextmanager, suppress
from typing import Any, Callable, Dict, Generator, List, Optional, Set, Tuple

from emberpool.pool.emberd import exec_request, sockets
from emberpool.pool.emberd.refusal import Refused, bad_request
from emberpool.pool.emberd.shape import as_list

Within = Callable[[Callable[[], None]], None]
"""Does what it is given, somewhere."""

MAX_BODY = 16 * 1024 * 1024
_HOPS = {"connection", "keep-alive", "transfer-encoding", "content-length", "upgrade", "te", "trailer", "host"}
"""Headers of one connection, which are not passed on."""
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""Name of a header; http.client takes `content-length ` too, which servers read differently."""


class Ports:
    """Knows which ports were open before the first job: those are not the jobs' and are refused."""

    def __init__(self) -> None:
        self._before: Set[int] = set()

    def take_baseline(self) -> None:
        """Note what is open now: emberd's own port and those of other containers of the pod."""
        self._before = {port for where in sockets.waiting() if where[0].startswith("tcp") for port in _port(where)}

    def request(self, body: Dict[str, Any], in_room: Optional[Within] = None) -> Dict[str, Any]:
        """One request, one answer. `in_room` does something in the room's own network; None: it shares the pod's.

        Raises:
            Refused: 409 no_server, nobody listens there, or no answer came in time; 400, naming the field.
        """
        port = body.get("port")
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise bad_request("port", "must lie between 1 and 65535")
        if port in self._before and in_room is None:
            raise bad_request("port", "was open before any job: it is no job's")
        method = exec_request.checked_text("method", body.get("method") or "GET")
        path = exec_request.checked_text("path", body.get("path") or "/")
        if not path.startswith("/") or any(letter <= " " or letter > "~" for letter in path + method):
            raise bad_request("path", "must be a percent-encoded path that begins with /")
        limit = min(int(exec_request.above_0("limit", body.get("limit", 1024 * 1024))), MAX_BODY)
        time_limit_s = min(exec_request.above_0("time_limit_s", body.get("time_limit_s", 30.0)), 300.0)
        headers, data = _headers(body.get("headers") or []), exec_request.decoded("body", body.get("body") or "")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=time_limit_s)
        try:
            if in_room is None:
                connection.connect()
            else:
                in_room(connection.connect)
            with _ended_after(connection.sock, time_limit_s):
                _send(connection, (method, path), headers, data)
                return _answer(connection.getresponse(), limit)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Refused(409, "no_server", f"port {port}: {type(error).__name__} {error}".rstrip()) from error
        finally:
            connection.close()


@contextmanager
def _ended_after(sock: socket.socket, time_limit_s: float) -> Generator[None, None, None]:
    """A socket's own time-out begins anew with every byte, and a server may send one now and then for ever."""
    over = threading.Event()

    def end() -> None:
        over.set()
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(time_limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
        if over.is_set():
            raise socket.timeout(f"no whole answer within {time_limit_s:g} s")
    finally:
        timer.cancel()


def _send(
    connection: http.client.HTTPConnection, line: Tuple[str, str], headers: "List[Tuple[str, str]]", data: bytes
) -> None:
    connection.putrequest(*line, skip_accept_encoding=any(name.lower() == "accept-encoding" for name, _ in headers))
    for name, value in headers:
        connection.putheader(name, value)
    if data or line[0] in ("POST", "PUT", "PATCH"):
        connection.putheader("content-length", str(len(data)))
    connection.endheaders(data or None)


def _answer(response: http.client.HTTPResponse, limit: int) -> Dict[str, Any]:
    data = response.read(limit + 1)
    return {
        "status": response.status,
        "headers": [[name.lower(), value] for name, value in response.getheaders() if name.lower() not in _HOPS],
        "body": base64.b64encode(data[:limit]).decode("ascii"),
        "truncated": len(data) > limit,
    }


def _headers(listed: Any) -> "List[Tuple[str, str]]":
    """In their order, and as often as they come. Raises Refused (400)."""
    headers: List[Tuple[str, str]] = []
    for pair in as_list(listed) or []:
        both: List[Any] = as_list(pair) or []
        if len(both) != 2:
            raise bad_request("headers", "must be pairs of texts")
        name, value = (exec_request.checked_text("headers", part) for part in both)
        if not _TOKEN.fullmatch(name) or any(letter in "\r\n" or letter > "\xff" for letter in value):
            raise bad_request("headers", f"{name[:100]!r} is no header: a name is a token, a value one line of Latin-1")
        if name.lower() not in _HOPS:
            headers.append((name, value))
    return headers


def _port(where: Tuple[str, str]) -> Set[int]:
    """Decimal if it was told by netlink, hexadecimal if by /proc; of what could be either, both."""
    address, _, port = where[1].rpartition(":")
    found: Set[int] = set()
    if len(address) != 32 or len(port) == 4:
        found.add(int(port, 16))
    if len(address) == 32 and port.isdigit():
        found.add(int(port))
    return found
