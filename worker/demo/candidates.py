"""What the scripted policy writes: the right solution, and the ways in which models get one wrong."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from emberpool.pool.model.rollout import RolloutTask


class Candidate(StrEnum):
    """Kinds of candidates. Each breaks for real when it is run; nothing is pretended."""

    CANONICAL = "canonical"
    """The problem's own solution."""
    SYNTAX = "syntax"
    """Does not parse: exit status 1."""
    WRONG = "wrong"
    """Computes the answer and spoils it: the check fails, exit status 1."""
    EXIT = "exit"
    """Ends the process with status 3."""
    ENDLESS = "endless"
    """Never returns: its time limit ends it."""
    NOISY = "noisy"
    """Prints far more than the output limit, then fails with exit status 1."""
    SIGNAL = "signal"
    """Dies of a signal that it sends to itself."""
    MEMORY = "memory"
    """Takes memory until it is killed for it."""
    EARLY_EXIT = "early_exit"
    """Ends the process with status 0 before anything was checked: looks well, and must not pass."""


SIGNALS = ("SIGSEGV", "SIGABRT", "SIGKILL")
"""SIGKILL too: it must not be mistaken for a time-out or for a want of memory."""
NOISE_BYTES = 400_000

_WRONG = """

_spoilt = {entry}


def {entry}(*args):
    answer = _spoilt(*args)
    if isinstance(answer, bool):
        return not answer
    if isinstance(answer, (int, float)):
        return answer + 1
    if isinstance(answer, str):
        return answer + "?"
    if isinstance(answer, list):
        return answer + [None]
    return (answer,)
"""

_NOISY = """
    for number in range({lines}):
        print("debug: step", number, "x" * 80)
    raise RuntimeError("the input is odd")
"""

_MEMORY = """
    import time

    kept = []
    while True:
        if len(kept) < 32:
            kept.append(bytearray(b"x") * (16 << 20))
        time.sleep(0.005)
"""
"""Up to 512 MiB, in steps: fast enough for a busy machine, and never enough to hurt it."""


def text(kind: Candidate, task: RolloutTask, seed: int) -> str:
    """The candidate's source: the prompt with a body. `seed` chooses among variants of a kind."""
    return _WRITERS[kind](task.prompt, task.data, seed)


def _canonical(prompt: str, data: Mapping[str, object], seed: int) -> str:
    return prompt + str(data["canonical_solution"])


def _syntax(prompt: str, data: Mapping[str, object], seed: int) -> str:
    return prompt + "    return (1,\n"


def _wrong(prompt: str, data: Mapping[str, object], seed: int) -> str:
    return _canonical(prompt, data, seed) + _WRONG.format(entry=data["entry_point"])


def _exit(prompt: str, data: Mapping[str, object], seed: int) -> str:
    return prompt + "    import sys\n\n    sys.exit(3)\n"


def _endless(prompt: str, data: Mapping[str, object], seed: int) -> str:
    return prompt + "    import time\n\n    while True:\n        time.sleep(0.01)\n"


def _noisy(prompt: str, data: Mapping[str, object], seed: int) -> str:
    return prompt + _NOISY.format(lines=NOISE_BYTES // 100)


def _signal(prompt: str, data: Mapping[str, object], seed: int) -> str:
    name = SIGNALS[seed % len(SIGNALS)]
    return prompt + f"    import os, signal\n\n    os.kill(os.getpid(), signal.{name})\n    signal.pause()\n"


def _memory(prompt: str, data: Mapping[str, object], seed: int) -> str:
    return prompt + _MEMORY


def _early_exit(prompt: str, data: Mapping[str, object], seed: int) -> str:
    return "import sys\n\nsys.exit(0)\n"


_WRITERS: Mapping[Candidate, Callable[[str, Mapping[str, object], int], str]] = {
    Candidate.CANONICAL: _canonical,
    Candidate.SYNTAX: _syntax,
    Candidate.WRONG: _wrong,
    Candidate.EXIT: _exit,
    Candidate.ENDLESS: _endless,
    Candidate.NOISY: _noisy,
    Candidate.SIGNAL: _signal,
    Candidate.MEMORY: _memory,
    Candidate.EARLY_EXIT: _early_exit,
}
