"""Background processes, shells and ports through a workflow's sandbox, on real servers."""

import uuid

from fixtures.processes import runs
from fixtures.stack import Site
from scenarios.process_flows import Background, Serving, Talking


def name(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:8]}"


async def test_a_process_needs_no_activity_while_it_runs(site: Site) -> None:
    """Started, fed, read from a cursor, found again by id, signalled and awaited, each by a short activity of its own.

    See e2b-dev/E2B#1074.
    """
    seen = await site.client.execute_workflow(Background.run, site.plan(), id=name("bg"), task_queue=site.queue)
    assert seen.output == b"got a\ngot b\nbye\n"
    assert (seen.outcomes, seen.codes) == (("cancelled", "exited"), (4,))
    assert seen.texts == ("never", "None")
    assert seen.listed == ("first False", "other False")
    await site.settled()
    assert not runs("sleep 4601") and not runs("sleep 4602"), "processes end with the lease"


async def test_a_shell_lives_from_activity_to_activity(site: Site) -> None:
    """State is kept, a time limit interrupts, `exit` is told with its status, and after it the shell is over."""
    seen = await site.client.execute_workflow(Talking.run, site.plan(), id=name("sh"), task_queue=site.queue)
    assert seen.texts == ("/tmp\n1 2\n", "1 2\n")
    assert seen.outcomes == ("timed_out", "alive", "exited")
    assert seen.codes == (0, 3, 3)


async def test_a_server_in_the_sandbox_is_asked(site: Site) -> None:
    """A request to a port of the sandbox is one activity."""
    seen = await site.client.execute_workflow(Serving.run, site.plan(), id=name("http"), task_queue=site.queue)
    assert (seen.codes, seen.texts) == ((200,), ("hello",))
