"""Signatures of requests and answers, and the memory of nonces that makes a replay worthless."""

import hashlib
import hmac
import threading
from collections import OrderedDict
from typing import Dict, NamedTuple

from emberpool.pool.emberd.refusal import Refused, bad_request
from emberpool.pool.emberd.replays import Replays

STREAM = "stream"
"""Stands for the hash of a body that is streamed."""
_UNCLAIMED_KEPT = 4096
"""Nonces kept of calls that belong to no claim: they change nothing, so the oldest may be forgotten."""


class Claim(NamedTuple):
    """Under which lease a request comes; all empty for a call that belongs to none."""

    lease: str
    epoch: int
    tag: str
    hold_s: float


class Signed(NamedTuple):
    """What of a request is signed, as it was sent."""

    method: str
    target: str
    lease: str
    epoch: str
    tag: str
    boot: str
    hold: str
    nonce: str
    mac: str
    body: str = ""
    """Hex SHA-256 that the body will have, if it was told beforehand."""

    def claim(self) -> Claim:
        """The claim in numbers.

        Raises:
            Refused: epoch or hold is no number.
        """
        try:
            return Claim(self.lease, int(self.epoch or "0"), self.tag, float(self.hold or "0"))
        except ValueError:
            raise bad_request("x-ember-epoch or x-ember-hold", "not a number") from None


class Keyed:
    """HMAC-SHA-256 with one key. What of it depends on the key alone is done once: to set up OpenSSL anew for each
    text takes longer than the text."""

    def __init__(self, key: bytes) -> None:
        self._begun = hmac.new(key, digestmod=hashlib.sha256)

    def mac(self, parts: "list[str]") -> str:
        """In hex, of the parts with a line end between."""
        begun = self._begun.copy()
        begun.update("\n".join(parts).encode("latin-1"))
        return begun.hexdigest()


class Signer:
    """Holds the pod's key. Never handed to anything that a room is forked from."""

    def __init__(self, key: bytes, boot_id: str) -> None:
        self._mac, self.boot_id = Keyed(key).mac, boot_id
        self._lock = threading.Lock()
        self._seen: Dict[int, Replays] = {}
        self._unclaimed: OrderedDict[str, None] = OrderedDict()

    def check(self, request: Signed, body: bytes) -> bool:
        """Whether the request was made with the key, whatever else is wrong with it."""
        return self._made_with_key(request, hashlib.sha256(body).hexdigest())

    def check_unread(self, request: Signed) -> bool:
        """The same before its body is there, of a request that says what the body will be."""
        return self._made_with_key(request, request.body)

    def check_streamed(self, request: Signed) -> bool:
        """The same of a request whose body follows in signed frames."""
        return self._made_with_key(request, STREAM)

    def _made_with_key(self, request: Signed, body: str) -> bool:
        parts = [request.method, request.target, request.lease, request.epoch, request.tag, request.boot]
        parts += [request.hold, request.nonce, body]
        # As bytes: of texts it takes ASCII only, and anybody may send another.
        said = request.mac.encode("latin-1", "replace").lower()
        return hmac.compare_digest(self._mac(["emberd1", *parts]).encode("ascii"), said)

    def once(self, request: Signed, claim: Claim) -> None:
        """Refuse a request for another boot, and one that was here before."""
        if request.boot != self.boot_id and not (request.boot == "" and request.target == "/v1/state"):
            raise Refused(409, "other_boot", f"this is boot {self.boot_id}")
        if len(request.nonce) != 32:
            raise Refused(401, "bad_signature", "nonce: must be 32 hex digits")
        with self._lock:
            if request.nonce in self._unclaimed:
                raise Refused(401, "bad_signature", "nonce: seen before")
            if claim.epoch > 0:
                why = self._seen.setdefault(claim.epoch, Replays()).why_refused(request.nonce)
                if why:
                    raise Refused(401, "bad_signature", why)
                return
            self._unclaimed[request.nonce] = None
            if len(self._unclaimed) > _UNCLAIMED_KEPT:
                self._unclaimed.popitem(last=False)

    def forget_below(self, epoch: int) -> None:
        """Drop the nonces of epochs whose every request is refused anyway."""
        with self._lock:
            for old in [number for number in self._seen if number < epoch]:
                del self._seen[old]

    def answer_mac(self, nonce: str, status: int, body: bytes) -> str:
        """The signature of an answer."""
        return self._mac(["emberd1-answer", nonce, str(status), hashlib.sha256(body).hexdigest()])

    def streamed_answer_mac(self, nonce: str) -> str:
        """The signature of an answer whose body follows in signed frames."""
        return self._mac(["emberd1-answer", nonce, "200", STREAM])

    def frame_mac(self, direction: str, nonce: str, index: int, kind: int, data: bytes) -> bytes:
        """The signature of one frame; its place in the stream is part of it."""
        parts = [f"emberd1-{direction}-frame", nonce, str(index), str(kind), hashlib.sha256(data).hexdigest()]
        return bytes.fromhex(self._mac(parts))
