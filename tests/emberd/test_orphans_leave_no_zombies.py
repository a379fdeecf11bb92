"""Processes that lose their parent are taken in and reaped, so that a long sandbox does not run out of processes
(UKGovernmentBEIS/inspect_k8s_sandbox#251)."""

from fixtures.emberd import Lease, reset
from fixtures.processes import descendants, state, wait_until

ORPHANS = 250
DOUBLE_FORK = f"""
import os
for _ in range({ORPHANS}):
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
        os._exit(0)
    os.wait()
"""
"""Each grandchild outlives its parent for a moment, and ends with nobody of the job to wait for it."""


def zombies(lease: Lease) -> int:
    """Dead processes of the pod that nobody has waited for, seen from the host."""
    return sum(state(pid) == "Z" for pid in descendants(lease.emberd.process.pid))


async def test_orphans_are_reaped_during_and_after_a_command(lease: Lease) -> None:
    """Twice 250 double-forked processes, many more than the pod may have at once: none stays a zombie, and the pod is
    attested and serves the next one."""
    for _ in range(2):
        result = await lease.run("python3", "-c", DOUBLE_FORK, time_limit_s=60)
        assert result.ok, result.error_text
        wait_until(lambda: zombies(lease) == 0)
    assert (await lease.sh("echo fine")).stdout == b"fine\n"
    await reset(lease)
    assert zombies(lease) == 0


async def test_orphans_of_a_command_that_goes_on_are_reaped_too(lease: Lease) -> None:
    """While their command still runs, and also under one that was left in the background."""
    text = 'python3 -c "$1"; touch forked; until [ -e go ]; do sleep 0.02; done'
    result = await lease.run("sh", "-c", f"({text}) >/dev/null 2>&1 &", "sh", DOUBLE_FORK, time_limit_s=60)
    assert result.survivors
    assert (await lease.sh("until [ -e forked ]; do sleep 0.02; done", time_limit_s=60)).ok
    wait_until(lambda: zombies(lease) == 0)
    assert (await lease.sh("touch go")).ok
