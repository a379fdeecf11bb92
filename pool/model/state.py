"""The states of a pod and the only moves between them: the table that every index, provider and test obeys."""

from collections.abc import Mapping
from enum import StrEnum


class PodState(StrEnum):
    """Where a pod stands. Exactly one at any time, kept in the index."""

    STARTING = "starting"
    """Created (or about to be) and not ready; may be reserved for one request."""
    STANDBY = "standby"
    """Ready, never used, holds a tiny share and no GPU memory."""
    PROMOTING = "promoting"
    """A standby pod taking over its full share for one request."""
    IDLE = "idle"
    """Warm. Fresh (no tag) or tagged with the caller that used it last."""
    SWAPPING = "swapping"
    """Its image is being replaced in place, for one request of the same tag or ahead of need."""
    LEASED = "leased"
    """One caller, one lease, one epoch."""
    DIRTY = "dirty"
    """Released or expired; written before anything else may happen to the pod."""
    RECYCLING = "recycling"
    """Fence and reset under way; may be reserved for one request of the same tag."""
    DRAINING = "draining"
    """Being deleted; still counts under the ceiling."""
    GONE = "gone"
    """Deleted or vanished; the record is dropped, so this state is never stored."""


_S = PodState

TRANSITIONS: Mapping[PodState, frozenset[PodState]] = {
    _S.STARTING: frozenset({_S.IDLE, _S.STANDBY, _S.LEASED, _S.DRAINING, _S.GONE}),
    _S.STANDBY: frozenset({_S.PROMOTING, _S.DRAINING, _S.GONE}),
    _S.PROMOTING: frozenset({_S.LEASED, _S.IDLE, _S.DRAINING, _S.GONE}),
    _S.IDLE: frozenset({_S.LEASED, _S.SWAPPING, _S.DRAINING, _S.GONE}),
    _S.SWAPPING: frozenset({_S.LEASED, _S.IDLE, _S.DRAINING, _S.GONE}),
    _S.LEASED: frozenset({_S.DIRTY, _S.GONE}),
    _S.DIRTY: frozenset({_S.RECYCLING, _S.DRAINING, _S.GONE}),
    _S.RECYCLING: frozenset({_S.IDLE, _S.LEASED, _S.DIRTY, _S.DRAINING, _S.GONE}),
    _S.DRAINING: frozenset({_S.GONE}),
    _S.GONE: frozenset(),
}
"""Every allowed move. There is no move from idle with one tag to leased by another: see `may_serve`."""


def may_move(before: PodState, after: PodState) -> bool:
    """Whether a pod may go from `before` to `after` in one step."""
    return after in TRANSITIONS[before]


def may_serve(pod_tag: str, request_tag: str) -> bool:
    """Whether a pod with `pod_tag` ("" = never used) may be leased to a request with `request_tag`."""
    return pod_tag in ("", request_tag)
