"""What both agents' workflows share: the question, the verdict, and a sandbox per problem."""

from collections.abc import Awaitable, Callable

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from scripted import prompt

    from emberpool.pool.model.frozen import Frozen
    from emberpool.pool.model.rollout import RolloutTask
from emberpool.workflows.sandbox import Sandbox


class Homework(Frozen):
    """Problems, and the pool to solve them in."""

    tasks: tuple[RolloutTask, ...]
    profile: str
    caller: str
    task_queue: str
    tools: str = "functions"
    """For the OpenAI Agents SDK: `functions` that run in the workflow, or `activities`."""


class Solved(Frozen):
    """What became of one problem."""

    task_id: str
    solved: bool
    """Whether the problem's own tests accepted what lies in the sandbox."""
    answer: str
    pod: str


Ask = Callable[[Sandbox, str], Awaitable[str]]
"""Runs an agent on a prompt, with a sandbox that is current, and returns its last word."""


async def solve(homework: Homework, task: RolloutTask, ask: Ask) -> Solved:
    """One problem in a sandbox of its own."""
    async with Sandbox.open(
        profile=homework.profile, caller=homework.caller, task_queue=homework.task_queue
    ) as sandbox:
        await sandbox.bind(files=task.files)
        async with sandbox.current():
            answer = await ask(sandbox, prompt(task))
        verifier = task.verifier
        await sandbox.bind(files=verifier.files)
        verdict = await sandbox.run(verifier.command, summary=f"verify: {task.id}")
        solved = verdict.ok and verifier.expect_stdout in verdict.text.splitlines()
        pod = sandbox.lease.pod if sandbox.lease else ""
        return Solved(task_id=task.id, solved=solved, answer=answer, pod=pod)
