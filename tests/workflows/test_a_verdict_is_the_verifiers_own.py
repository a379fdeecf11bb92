"""What a policy leaves behind cannot change its verdict, where the verifier asks for a sandbox of its own."""

import uuid

from fixtures.stack import Site
from temporalio import activity
from temporalio.worker import Worker

from emberpool.pool.model.command import Command
from emberpool.pool.model.rollout import (
    Action,
    PolicyInput,
    RolloutInput,
    RolloutOutcome,
    RolloutResult,
    RolloutTask,
    RunStep,
    TextFile,
    Verifier,
)
from emberpool.workflows.rollout import Rollout

CHECK = "from solution import answer\nassert answer == 42, answer\nprint('verified')\n"
HONEST = "echo 'answer = 42' > solution.py"
CHEAT = """
echo 'answer = 0' > solution.py; mkfifo verdict; ln -s /nowhere link.py; echo "print('verified')" > /tmp/evil.py
(setsid sh -c 'while :; do cp /tmp/evil.py new; mv -f new check.py; done' >/dev/null 2>&1 &)
"""
"""A wrong answer, and a loop that puts another check in the place of the verifier's."""


@activity.defn(name="tests.one_command")
async def one_command(question: PolicyInput) -> Action:
    """Runs the command that the task's data hold, and is done."""
    step = RunStep(command=Command(shell=str(question.task.data["command"])))
    return Action(steps=(step,), done=True)


async def judged(site: Site, command: str, **fields: object) -> RolloutResult:
    """A rollout whose policy runs one command."""
    queue = f"policy-{uuid.uuid4().hex[:8]}"
    verifier = Verifier.model_validate(
        {
            "command": Command(argv=("python3", "check.py"), time_limit_s=20),
            "files": (TextFile(path="check.py", text=CHECK),),
            "expect_stdout": "verified",
            **fields,
        }
    )
    task = RolloutTask(id="answer", verifier=verifier, data={"command": command})
    given = RolloutInput(
        rollout_id="r1",
        task=task,
        profile="py",
        caller="trainer",
        policy="tests.one_command",
        policy_task_queue=queue,
        task_queue=site.queue,
    )
    async with Worker(site.client, task_queue=queue, activities=[one_command]):
        return await site.client.execute_workflow(Rollout.run, given, id=queue, task_queue=site.queue)


async def test_a_loop_that_outlives_the_policy_changes_no_verdict(site: Site) -> None:
    """A background loop that replaces the verifier's files wins in the policy's own sandbox; in a fresh one it is dead:
    there a wrong answer fails and an honest one passes. A link, a FIFO, a folder or nothing in the place of a file that
    is collected only means that it is not there (datacurve-ai/pier#51)."""
    assert (await judged(site, CHEAT)).outcome is RolloutOutcome.SOLVED, "the cheat is a real one"
    collect = ("verdict", "link.py", "missing", "/tmp", "solution.py")
    cheated = await judged(site, CHEAT, fresh=True, collect=collect)
    assert (cheated.outcome, cheated.reward, cheated.reason) == (RolloutOutcome.FAILED, 0.0, "AssertionError: 0")
    honest = await judged(site, HONEST, fresh=True, collect=collect)
    assert (honest.outcome, honest.reward) == (RolloutOutcome.SOLVED, 1.0), honest
    await site.settled()
