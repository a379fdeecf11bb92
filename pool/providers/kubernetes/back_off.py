"""How long a kubelet holds back the next start of a pod's container, reckoned from what is seen of the pod, so that an
image swap is not begun which would end the old container and start no other.

The kubelet keeps a window for each image of a pod that it has started a container with in an ended one's place: 10 s,
doubled by each further start, up to 5 min, forgotten 10 min after the last. It holds a start back while the end of the
last container that it knows of is not as long ago. At a swap that is the one before the one that runs, which ended when
the one that runs was started: there and back once is free, and after that each image may come once in its window.
"""

import json
import math
from collections.abc import Mapping

from emberpool.pool.providers.kubernetes.view import PodView

FIRST_S, LONGEST_S = 10.0, 300.0
FORGOTTEN_S = 660.0
"""Ten minutes, and what a container may take to end and start after we asked for it."""
ROUNDING_S = 1.0
"""The kubelet tells whole seconds."""

Windows = Mapping[str, tuple[float, float]]
"""Of each image, by its reference: seconds, and the unix time of the start that they were set at."""


def held_back_s(pod: PodView, reference: str, now: float) -> float:
    """Seconds for which a swap to that image would not be started yet; 0 if it would be at once."""
    window_s, _ = _windows(pod, now).get(reference, (0.0, 0.0))
    return max(0.0, pod.started + window_s + ROUNDING_S - now) if window_s else 0.0


def note(pod: PodView, reference: str, now: float) -> str:
    """The pod's annotation once it is swapped to that image now: another worker may do the next swap."""
    windows = dict(_windows(pod, now))
    if pod.restarts:  # else no container of it has ended before, as far as the kubelet knows then
        before_s, _ = windows.get(reference, (0.0, 0.0))
        windows[reference] = (min(LONGEST_S, 2 * before_s) or FIRST_S, now)
    return json.dumps(windows)


def _windows(pod: PodView, now: float) -> Windows:
    windows = {one: (length, at) for one, (length, at) in _read(pod.starts).items() if now - at < FORGOTTEN_S}
    if pod.comes_back and pod.restarts and now - pod.started < FORGOTTEN_S:  # it may have been started anew by itself
        length, at = windows.get(pod.reference, (FIRST_S, -math.inf))
        windows[pod.reference] = (length, max(at, pod.started))
    return windows


def _read(noted: str) -> Windows:
    """Nothing, where somebody else has written there what is not ours."""
    try:
        found = json.loads(noted or "{}").items()
        return {str(reference): (float(length), float(at)) for reference, (length, at) in found}
    except (ValueError, TypeError, AttributeError):
        return {}
