"""Which requests of one epoch were here before, in memory that does not grow with their number.

A nonce names its sender and the number of the request among that sender's. Of each sender the highest number is known
and which of those just below it have come: they may overtake each other by that much, and no further.
"""

from typing import Dict, List

WINDOW = 4096
"""How far one request of a sender may be overtaken by others."""
MOST_SENDERS = 4096
"""Of one epoch; a worker is one."""
_ALL = (1 << WINDOW) - 1


class Replays:
    """Of one epoch. Not safe for several threads at once."""

    def __init__(self) -> None:
        self._senders: Dict[str, List[int]] = {}
        """By sender: the highest number, and a bit for each number from there down that has come."""

    def why_refused(self, nonce: str) -> str:
        """Note a request; why it must not be served, empty if it may be."""
        sender = nonce[:16]
        try:
            number = int(nonce[16:], 16)
        except ValueError:
            return "nonce: must be 32 hex digits"
        known = self._senders.get(sender)
        if known is None:
            if len(self._senders) >= MOST_SENDERS:
                return f"nonce: {MOST_SENDERS} senders are known at this epoch"
            self._senders[sender] = [number, 1]
            return ""
        ahead = number - known[0]
        if ahead > 0:
            known[:] = [number, ((known[1] << ahead) | 1) & _ALL if ahead < WINDOW else 1]
            return ""
        if -ahead >= WINDOW:
            return "nonce: overtaken by too many others"
        if known[1] >> -ahead & 1:
            return "nonce: seen before"
        known[1] |= 1 << -ahead
        return ""
