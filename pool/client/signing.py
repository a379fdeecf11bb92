"""The worker's half of the signatures of docs/emberd-protocol.md."""

import hashlib
import hmac
import secrets


def pod_key(pool_key: bytes, pod_name: str) -> bytes:
    """The key of one pod: what its emberd is started with."""
    return hmac.new(pool_key, pod_name.encode("utf-8"), hashlib.sha256).digest()


class RequestSigner:
    """Signs one request and checks its answer. Never reused: a nonce is good for one request."""

    def __init__(self, key: bytes) -> None:
        self._key, self.nonce = key, secrets.token_hex(16)

    def headers(
        self, method: str, target: str, body: bytes, lease: str, epoch: int, tag: str, boot: str, hold: str
    ) -> dict[str, str]:
        """The x-ember headers of a request that is sent exactly so."""
        parts = ["emberd1", method, target, lease, str(epoch), tag, boot, hold, self.nonce]
        mac = self._mac([*parts, hashlib.sha256(body).hexdigest()])
        named = {"lease": lease, "epoch": str(epoch), "tag": tag, "boot": boot, "hold": hold}
        headers = {f"x-ember-{name}": value for name, value in named.items() if value}
        return {**headers, "x-ember-nonce": self.nonce, "x-ember-mac": mac}

    def accepts(self, status: int, body: bytes, mac: str) -> bool:
        """Whether the answer was made by who holds the key, to this request."""
        parts = ["emberd1-answer", self.nonce, str(status), hashlib.sha256(body).hexdigest()]
        return hmac.compare_digest(self._mac(parts), mac.lower())

    def _mac(self, parts: list[str]) -> str:
        return hmac.new(self._key, "\n".join(parts).encode("latin-1"), hashlib.sha256).hexdigest()
