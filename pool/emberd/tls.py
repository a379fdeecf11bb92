"""The certificate that emberd shows. Loaded only where TLS is asked for: not every image's Python has it, and it costs
time and memory."""

import os
import socket
import ssl
import sys
from typing import List, Tuple

from emberpool.pool.emberd.config import BadConfig, TlsFiles

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; those of 1.3 are all fit. Each connection has a key that the certificate's owner cannot find again."""


class Tls:
    """Read anew whenever the files change, as a mounted secret does when its certificate is renewed."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises BadConfig: the files are not there, or no certificate and its key."""
        self._files = files
        self._complaint = ""
        self._stamp: List[Tuple[int, int]] = []
        try:
            self._stamp = self._now()
            self._context = self._read()
        except (OSError, ValueError) as error:
            raise BadConfig(f"tls: {self._why(error)}") from error

    def wrapped(self, connection: socket.socket) -> ssl.SSLSocket:
        """The connection with TLS upon it, its handshake yet to be done."""
        self._renew()
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def _renew(self) -> None:
        """Files that cannot be used, as while they are being written, leave what was good before in use."""
        try:
            stamp = self._now()
            if stamp == self._stamp:
                return
            self._context, self._stamp, self._complaint = self._read(), stamp, ""
        except (OSError, ValueError) as error:
            complaint = self._why(error)
            if complaint != self._complaint:
                print(f"emberd: tls: {complaint}; the old certificate stays", file=sys.stderr, flush=True)
            self._complaint = complaint

    def _now(self) -> List[Tuple[int, int]]:
        """What changes with the files."""
        seen = [os.stat(path) for path in self._files]
        return [(one.st_ino, one.st_mtime_ns) for one in seen]

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        # A key that wants a password would else be asked for on a terminal that is not there.
        context.load_cert_chain(self._files.cert, self._files.key, password=lambda: "")
        return context

    def _why(self, error: Exception) -> str:
        """ssl.SSLError names no file, os.stat does."""
        if isinstance(error, ssl.SSLError):
            return f"{self._files.cert} and {self._files.key} are no certificate and its key: {error}"
        return str(error)
