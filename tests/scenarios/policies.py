"""A policy for the tests: first a broken candidate, then, having read the failure, the right one."""

from temporalio import activity

from emberpool.pool.model.command import Command
from emberpool.pool.model.rollout import Action, PolicyInput, RolloutTask, RunStep, TextFile, Verifier, WriteStep

POLICY = "tests.two_tries"
TRY = RunStep(command=Command(argv=("python3", "solution.py"), time_limit_s=20))


@activity.defn(name=POLICY)
async def two_tries(question: PolicyInput) -> Action:
    """Broken first; done once its run was seen to fail."""
    if not question.turns:
        return Action(steps=(WriteStep(file=TextFile(path="solution.py", text="answer = 1 / 0")), TRY))
    failed = not question.turns[-1].results[0].ok
    text = f"answer = {6 * 7 if failed else 0}"
    return Action(steps=(WriteStep(file=TextFile(path="solution.py", text=text)), TRY), done=True)


def task(number: int, wanted: int = 42) -> RolloutTask:
    """A task whose verifier wants `answer` to be `wanted`."""
    check = f"from solution import answer\nassert answer == {wanted}, answer\nprint('verified')\n"
    return RolloutTask(
        id=f"answer/{number}",
        files=(TextFile(path="task.txt", text="what is the answer?"),),
        verifier=Verifier(
            command=Command(argv=("python3", "check.py"), time_limit_s=20),
            files=(TextFile(path="check.py", text=check),),
            expect_stdout="verified",
        ),
    )
