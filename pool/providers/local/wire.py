"""What workers and the supervisor say to each other: JSON over HTTP on a unix socket that only its owner can open.

    GET    /v1/health                              Health
    POST   /v1/pods            CreatePod           SupervisedPod
    POST   /v1/pods/NAME/promote                   StepTaken
    POST   /v1/pods/NAME/swap  SwapPod             StepTaken
    POST   /v1/pods/NAME/restart  RestartPod       StepTaken
    GET    /v1/pods?pool=P&boot=B&after=V&wait_s=S
                                                   PodList: now, or once anything changed since version V of boot B
    GET    /v1/pods/NAME?wait_s=S                  SupervisedPod, once it is not pending any more; 404 if there is none
    DELETE /v1/pods/NAME                           {}, when nothing of it is left

An error is a Problem, with status 400 (invalid_input), 404 (gone) or 503 (unavailable).
"""

from typing import Literal

from emberpool.pool.model.frozen import Frozen
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import PodFacts
from emberpool.pool.model.profile import Profile

LONGEST_WAIT_S = 25.0
"""Seconds that the supervisor lets a question wait; who wants more asks again."""


class CreatePod(Frozen):
    """Ask for a pod. The profile comes along: the supervisor knows none of its own."""

    name: PodName
    image: str = ""
    profile: Profile
    pool: str = ""
    """`deployment/profile`: whose pod it is. Deployments that share a supervisor never see each other's pods."""
    standby: bool = False


class SwapPod(Frozen):
    """Ask for another image in a pod that nobody holds."""

    image: str
    epoch: int


class RestartPod(Frozen):
    """Ask for a pod that was fenced at this epoch to be started anew."""

    epoch: int


class StepTaken(Frozen):
    """How a promotion, a swap or a restart went."""

    problem: str = ""
    """Why it cannot be done; empty if it is done."""
    took_ms: float = 0.0


class SupervisedPod(Frozen):
    """A pod as its supervisor sees it."""

    facts: PodFacts
    pool: str
    pid: int = 0
    """Host pid of its first process, 0 if there is none: for people and tests."""
    host_uid: int = -1
    """Host uid that it runs under, -1 if the supervisor's own."""


class PodList(Frozen):
    """All pods of one pool at one moment."""

    boot: str
    """Random per start of the supervisor: versions of two boots do not compare."""
    version: int
    pods: tuple[SupervisedPod, ...]


class Health(Frozen):
    """Who answers."""

    boot: str
    pid: int
    pods: int


class Problem(Frozen):
    """Why something was not done."""

    error: Literal["invalid_input", "gone", "unavailable"]
    detail: str
    field: str = ""
