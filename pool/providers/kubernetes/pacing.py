"""How fast pods are created: a rate, a ceiling on those that are starting, a slow start, and a circuit breaker.

Pure: time is an argument, and whoever asks does the waiting.
"""

from dataclasses import dataclass

FIRST_BATCH = 4
"""Pods at once before the first of them has become ready; each one that does makes room for one more besides."""
BREAK_AFTER = 5
"""Failures in a row after which nothing is created for a while."""
PAUSE_S, LONGEST_PAUSE_S = 5.0, 120.0
"""First pause, doubled each time that the pod after it fails too."""


@dataclass(frozen=True)
class Wait:
    """Ask again after this."""

    seconds: float
    why: str


class Pace:
    """Says when the next pod may be created. One per profile and worker."""

    def __init__(self, per_s: float, at_once: int) -> None:
        self._per_s, self._at_once = per_s, at_once
        self._window = float(min(FIRST_BATCH, at_once))
        self._next = 0.0
        self._starting: set[str] = set()
        self._failures = 0
        self._closed_until = 0.0
        self._pause_s = PAUSE_S

    @property
    def starting(self) -> int:
        """Pods that were let go and have neither become ready nor failed."""
        return len(self._starting)

    def is_starting(self, name: str) -> bool:
        """Whether it is one of those."""
        return name in self._starting

    def ask(self, name: str, now: float) -> Wait | None:
        """None: create it now, and tell `settled` how it went. Idempotent by name."""
        if name in self._starting:
            return None
        if now < self._closed_until:
            return Wait(self._closed_until - now, f"{self._failures} pods in a row failed to start")
        if self._failures >= BREAK_AFTER and self._starting:
            return Wait(0.1, "one pod is tried after a pause")
        if len(self._starting) >= int(self._window):
            return Wait(0.1, f"{len(self._starting)} pods are starting")
        if now < self._next:
            return Wait(self._next - now, f"at most {self._per_s:g} pods a second")
        self._next = max(now, self._next) + 1.0 / self._per_s
        self._starting.add(name)
        return None

    def withdrawn(self, name: str) -> None:
        """The pod will not be, for a reason that says nothing of the next: it was deleted, or never asked for."""
        self._starting.discard(name)

    def settled(self, name: str, ready: bool, now: float) -> None:
        """A pod became ready, or failed to start. Pods that this worker did not create are passed over."""
        if name not in self._starting:
            return
        self._starting.discard(name)
        if ready:
            self._window = min(float(self._at_once), self._window + 1.0)
            self._failures, self._pause_s = 0, PAUSE_S
            return
        self._failures += 1
        self._window = max(1.0, self._window / 2)
        if self._failures >= BREAK_AFTER:
            self._closed_until = now + self._pause_s
            self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)
