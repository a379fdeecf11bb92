"""Nodes on which pods failed to start lately, through no fault of the pods': new ones are asked to go elsewhere first.

The scheduler knows of no such failure: a node whose disk is full of images, or whose network plug-in hangs, looks the
emptier the more pods fail there, and gets the next one too. Pure: time is an argument.
"""

from collections import deque

TIMES = 2
"""Pods that must have failed on a node: one may have had bad luck."""
FORGOTTEN_S = 300.0
"""Seconds after which a failure counts no more. Every few minutes one pod goes there again, and finds out."""
MOST = 10
"""Nodes that are passed over; of more it is likelier something else that is wrong."""


class PoorNodes:
    """As one worker has seen them, for one profile."""

    def __init__(self) -> None:
        self._failures: dict[str, deque[float]] = {}

    def failed(self, node: str, now: float) -> None:
        """A pod failed to start there."""
        self._failures.setdefault(node, deque(maxlen=TIMES)).append(now)

    def served(self, node: str | None) -> None:
        """A pod became ready there."""
        self._failures.pop(node or "", None)

    def avoided(self, now: float) -> tuple[str, ...]:
        """Those that a new pod had better not be put on, the latest to fail first."""
        for node in [node for node, times in self._failures.items() if times[-1] < now - FORGOTTEN_S]:
            del self._failures[node]
        since = now - FORGOTTEN_S
        poor = [
            (times[-1], node) for node, times in self._failures.items() if len(times) == TIMES and times[0] >= since
        ]
        return tuple(node for _, node in sorted(poor, reverse=True)[:MOST])
