"""What the examples' scripted model decides: a stand-in for a language model that needs no account.

It works on HumanEval problems as a model would: it writes a candidate (its first one is broken), runs it, reads the
failure, writes another, and runs that. All that it knows of a run is the text that the tool returned.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from emberpool.pool.model.rollout import RolloutTask
from emberpool.worker.demo.candidates import Candidate, text
from emberpool.worker.demo.problems import SOLUTION, TRIAL, problems

TRY = f"python3 -B {TRIAL}"
HOLDS = "the example holds"
BROKEN = (Candidate.WRONG, Candidate.SYNTAX, Candidate.EXIT)
"""How the first candidate of the first, second, third problem is wrong."""


@dataclass(frozen=True)
class Write:
    """Write the candidate to SOLUTION."""

    text: str
    path: str = SOLUTION


@dataclass(frozen=True)
class Run:
    """Run a command."""

    command: str = TRY


@dataclass(frozen=True)
class Answer:
    """The last word."""

    text: str


def prompt(task: RolloutTask) -> str:
    """What the agent is asked. Its first line names the task."""
    return f"Solve {task.id}\n{task.prompt}\nWrite {SOLUTION}, then run: {TRY}"


def decide(asked: str, outputs: Sequence[str]) -> Write | Run | Answer:
    """The next step, from the prompt and the texts that the tools returned so far: writes and runs, in turn."""
    task_id = asked.splitlines()[0].removeprefix("Solve ")
    number, task = next((n, task) for n, task in enumerate(problems(10)) if task.id == task_id)
    if len(outputs) % 2:
        return Run()
    if not outputs:
        return Write(text(BROKEN[number % len(BROKEN)], task, 0))
    if HOLDS in outputs[-1]:
        return Answer(f"{task_id}: fixed {_last_line(outputs[1])!r}")
    return Write(text(Candidate.CANONICAL, task, 0))


def _last_line(output: str) -> str:
    """The line that says what is wrong: the last but the tool's own."""
    lines = [line for line in output.splitlines() if line and not line.startswith("[")]
    return lines[-1] if lines else output.strip()
