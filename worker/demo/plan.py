"""What the scripted policy will do in a rollout, known before it runs: a demo can be checked, not only watched."""

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from emberpool.pool.model.command import Outcome
from emberpool.pool.model.rollout import RolloutOutcome
from emberpool.worker.demo.candidates import Candidate

UNSOLVED_SHARE = 0.05
"""Share of rollouts that never get it right, so that rewards differ."""
_TRIES = {1: 55, 2: 30, 3: 15}
"""Broken tries before the last one, with weights."""
_BROKEN = {
    Candidate.SYNTAX: 18,
    Candidate.WRONG: 30,
    Candidate.EXIT: 12,
    Candidate.ENDLESS: 10,
    Candidate.NOISY: 12,
    Candidate.SIGNAL: 10,
    Candidate.MEMORY: 8,
}
_HOPELESS = (Candidate.WRONG, Candidate.EARLY_EXIT, Candidate.ENDLESS, Candidate.SIGNAL)
"""Last candidates of the rollouts that never get it right."""


@dataclass(frozen=True)
class Plan:
    """The candidates of one rollout in order; the last one is what the verifier meets."""

    tries: tuple[Candidate, ...]

    @property
    def outcome(self) -> RolloutOutcome:
        """How the rollout must end."""
        if self.tries[-1] is Candidate.CANONICAL:
            return RolloutOutcome.SOLVED
        if self.tries[-1] is Candidate.ENDLESS:
            return RolloutOutcome.VERIFIER_TIMED_OUT
        return RolloutOutcome.FAILED


@dataclass(frozen=True)
class Tally:
    """Counts of many rollouts, expected or real: compare two for equality."""

    outcomes: Counter[RolloutOutcome] = field(default_factory=Counter[RolloutOutcome])
    commands: Counter[Outcome] = field(default_factory=Counter[Outcome])
    failures: int = 0
    """Commands that ended by themselves with another status than 0."""
    truncated: int = 0


def plan(task_id: str, seed: int) -> Plan:
    """The plan of a rollout; the same for the same task and seed, on every machine."""
    digest = hashlib.sha256(f"{task_id}/{seed}".encode()).digest()
    dice = random.Random(int.from_bytes(digest[:8], "big"))
    (count,) = dice.choices(list(_TRIES), weights=list(_TRIES.values()))
    broken = dice.choices(list(_BROKEN), weights=list(_BROKEN.values()), k=count)
    last = dice.choice(_HOPELESS) if dice.random() < UNSOLVED_SHARE else Candidate.CANONICAL
    return Plan((*broken, last))


def plans_of(task_ids: Sequence[str], rollouts_per_task: int, seed: int) -> dict[str, Plan]:
    """The plan of every rollout of a batch by rollout id, numbered and seeded as the workflow RolloutBatch does it."""
    plans: dict[str, Plan] = {}
    for number in range(len(task_ids) * rollouts_per_task):
        task_id = task_ids[number // rollouts_per_task]
        readable = re.sub(r"[^A-Za-z0-9._-]", "_", task_id)
        plans[f"{number:06d}-{readable}"] = plan(task_id, seed * 1_000_003 + number)
    return plans


def expected(plans: Iterable[Plan]) -> Tally:
    """What a run of these plans must come to."""
    outcomes: Counter[RolloutOutcome] = Counter()
    commands: Counter[Outcome] = Counter()
    failures = truncated = 0
    for each in plans:
        outcomes[each.outcome] += 1
        for kind in each.tries:
            commands[ended(kind)] += 1
            failures += ended(kind) is Outcome.EXITED and not looks_well(kind)
            truncated += kind is Candidate.NOISY
    return Tally(outcomes, commands, failures, truncated)


def ended(kind: Candidate) -> Outcome:
    """How a try of this kind ends."""
    return {
        Candidate.ENDLESS: Outcome.TIMED_OUT,
        Candidate.SIGNAL: Outcome.SIGNALED,
        Candidate.MEMORY: Outcome.OOM_KILLED,
    }.get(kind, Outcome.EXITED)


def looks_well(kind: Candidate) -> bool:
    """Whether a try of this kind ends with status 0, so that the policy stops there."""
    return kind in (Candidate.CANONICAL, Candidate.EARLY_EXIT)
