"""Whoever has no key gets the documented answer, and emberd's standard error stays as it was."""

import socket
from collections.abc import Iterator

import pytest
from fixtures.emberd import EmberdProcess, Starter

DIGITS = b"9" * 5_000
"""More than Python makes a number of."""


@pytest.fixture(scope="module", params=["tcp", "unix"])
def pod(request: pytest.FixtureRequest, emberds: Starter) -> Iterator[EmberdProcess]:
    """An emberd behind each kind of socket."""
    started = emberds.start("plain", listen="http://127.0.0.1:0") if request.param == "tcp" else emberds.start("plain")
    yield started
    assert started.stop() == 0


def connect(pod: EmberdProcess) -> socket.socket:
    scheme, _, where = pod.address.endpoint.partition(":")
    if scheme == "unix":
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(where)
    else:
        host, _, port = where.removeprefix("//").partition(":")
        connection = socket.create_connection((host, int(port)))
    connection.settimeout(5)
    return connection


def log(pod: EmberdProcess) -> str:
    return (pod.folder / "log").read_text()


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (b"x-ember-mac: \xe9\r\n", 401),
        (b"x-ember-mac: \xe9\r\nx-ember-stream: 1\r\n", 401),
        (b"x-ember-mac: \xe9\r\nx-ember-body: \xe9\r\n", 401),
        (b"x-ember-lease: \xff\r\nx-ember-nonce: \xb2\r\nx-ember-hold: nan\r\n", 401),
        (b"x-ember-epoch: " + DIGITS + b"\r\n", 401),
        (b"x-ember-epoch: \xb2\r\n", 401),
        (b"content-length: " + DIGITS + b"\r\n", 413),
        (b"content-length: " + DIGITS + b"\r\nx-ember-body: 00\r\n", 413),
        (b"content-length: 67108865\r\n", 413),
        (b"content-length: \xb2\r\n", 400),
        (b"content-length: -1\r\n", 400),
        (b"content-length: 1_0\r\n", 400),
        (b"content-length:\r\n", 400),
        (b"\xe9\r\n", 400),
    ],
)
def test_odd_headers_are_answered(pod: EmberdProcess, lines: bytes, status: int) -> None:
    """Texts that are no ASCII, and numbers that are none or too long for one."""
    before = log(pod)
    with connect(pod) as connection:
        connection.sendall(b"GET /v1/state\xe9 HTTP/1.1\r\n" + lines + b"\r\n")
        assert connection.recv(65536).split(b" ")[1:2] == [str(status).encode()]
    assert log(pod) == before


def test_who_does_not_wait_for_the_answer_is_no_fault(pod: EmberdProcess) -> None:
    """It cannot be sent any more, which is nothing to report."""
    before = log(pod)
    for _ in range(50):
        with connect(pod) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with connect(pod) as connection:  # and each of them was served before or beside this one
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")
    assert log(pod) == before
