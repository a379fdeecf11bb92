"""Ports for servers on this machine: free ones, or those asked for."""

import errno
import socket

from emberpool.worker.stack.errors import StackError

HOST = "127.0.0.1"


def choose_port(part: str, asked: int | None, option: str) -> int:
    """The asked-for port if it is free, else (None asked) any free one.

    Another process may take a free port before its server binds it: whoever starts a server on one tries again.

    Raises:
        StackError: the asked-for port is taken or not allowed; it names the port and `option`, where it came from.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do, so that a port whose last connections still linger counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, asked or 0))
        except OSError as error:
            what = "taken" if error.errno == errno.EADDRINUSE else f"not to be had: {error.strerror}"
            remedy = f"choose another with {option}, or leave it out to get a free one"
            raise StackError(part, f"port {asked} ({option}) is {what}", remedy) from error
        port: int = probe.getsockname()[1]
        return port


def usual_port(number: int) -> int | None:
    """`number` if it is free, so that a person finds a server where its documentation says; else None: any free one."""
    try:
        return choose_port("port", number, "")
    except StackError:
        return None
