"""The worker's half of the signatures of docs/emberd-protocol.md."""

import hashlib
import hmac
import itertools
import secrets

STREAM = "stream"
"""Stands for the hash of a body that is streamed."""


def pod_key(pool_key: bytes, pod_name: str) -> bytes:
    """The key of one pod: what its emberd is started with."""
    return hmac.new(pool_key, pod_name.encode("utf-8"), hashlib.sha256).digest()


class Keyed:
    """HMAC-SHA-256 with one key. What of it depends on the key alone is done once: to set up OpenSSL anew for each
    text takes longer than the text."""

    def __init__(self, key: bytes) -> None:
        self._begun = hmac.new(key, digestmod=hashlib.sha256)

    def mac(self, parts: list[str]) -> str:
        """In hex, of the parts with a line end between."""
        begun = self._begun.copy()
        begun.update("\n".join(parts).encode("latin-1"))
        return begun.hexdigest()


class PodSigner:
    """Makes the signers of one client's requests to one pod."""

    def __init__(self, key: bytes) -> None:
        self._keyed = Keyed(key)
        self._sender = secrets.token_hex(8)
        self._numbers = itertools.count(1)

    def request(self) -> "RequestSigner":
        """Of the next request. Its number makes a replay known by little memory: see docs/emberd-protocol.md."""
        return RequestSigner(self._keyed, f"{self._sender}{next(self._numbers):016x}")


class RequestSigner:
    """Signs one request and checks its answer. Never reused: a nonce is good for one request."""

    def __init__(self, keyed: Keyed, nonce: str) -> None:
        self._mac, self.nonce = keyed.mac, nonce

    def headers(
        self, method: str, target: str, body: bytes, lease: str, epoch: int, tag: str, boot: str, hold: str
    ) -> dict[str, str]:
        """The x-ember headers of a request that is sent exactly so."""
        digest = hashlib.sha256(body).hexdigest()
        headers = self._headers(method, target, digest, lease, epoch, tag, boot, hold)
        # Told beforehand, so that emberd knows whom a body is from before it takes any of it.
        return {**headers, "x-ember-body": digest} if body else headers

    def streamed_headers(
        self, method: str, target: str, lease: str, epoch: int, tag: str, boot: str, hold: str
    ) -> dict[str, str]:
        """The same for a request whose body follows in signed frames."""
        return {**self._headers(method, target, STREAM, lease, epoch, tag, boot, hold), "x-ember-stream": "1"}

    def _headers(
        self, method: str, target: str, body: str, lease: str, epoch: int, tag: str, boot: str, hold: str
    ) -> dict[str, str]:
        parts = ["emberd1", method, target, lease, str(epoch), tag, boot, hold, self.nonce]
        mac = self._mac([*parts, body])
        named = {"lease": lease, "epoch": str(epoch), "tag": tag, "boot": boot, "hold": hold}
        headers = {f"x-ember-{name}": value for name, value in named.items() if value}
        return {**headers, "x-ember-nonce": self.nonce, "x-ember-mac": mac}

    def accepts(self, status: int, body: bytes, mac: str) -> bool:
        """Whether the answer was made by who holds the key, to this request."""
        parts = ["emberd1-answer", self.nonce, str(status), hashlib.sha256(body).hexdigest()]
        return hmac.compare_digest(self._mac(parts), mac.lower())

    def accepts_streamed(self, mac: str) -> bool:
        """The same for an answer whose body follows in signed frames."""
        return hmac.compare_digest(self._mac(["emberd1-answer", self.nonce, "200", STREAM]), mac.lower())

    def frame_mac(self, direction: str, index: int, kind: int, data: bytes) -> bytes:
        """The signature of one frame; its place in the stream is part of it."""
        parts = [f"emberd1-{direction}-frame", self.nonce, str(index), str(kind), hashlib.sha256(data).hexdigest()]
        return bytes.fromhex(self._mac(parts))
