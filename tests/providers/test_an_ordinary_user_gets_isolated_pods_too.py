"""Without root pods run under the user's own uid, in the same namespaces."""

import os
from collections.abc import Iterator

import pytest
from fixtures.local import Jobs, SupervisorProcess, new_name, new_pod
from fixtures.processes import wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.pod import Phase
from emberpool.pool.model.profile import Profile
from emberpool.pool.providers.local.provider import LocalProvider

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; others are one already")
USER = 690_001


@pytest.fixture
def of_a_user() -> Iterator[SupervisorProcess]:
    """A supervisor that runs as an ordinary user."""
    process = SupervisorProcess(uid=USER)
    yield process
    process.close()


async def test_a_job_is_isolated_and_its_pod_can_be_deleted(of_a_user: SupervisorProcess) -> None:
    """The job runs in namespaces of its own, reads nothing of its user, and leaves nothing, whatever modes it set."""
    provider = LocalProvider(Profile(name="py"), of_a_user.socket)
    name = await new_pod(provider)
    async with EmberdClient(of_a_user.key) as client:
        job = Jobs(client)
        assert (await job(provider, name, "cat /proc/self/uid_map")).split() == ["0", str(USER), "1"]
        assert "No such file" in await job(provider, name, f"cat {of_a_user.key_file}", check=False)
        assert "lo:" in await job(provider, name, "cat /proc/net/dev | tail -n +3")
        assert "Read-only" in await job(provider, name, "echo x > /proc/sys/kernel/core_pattern", check=False)
        await job(provider, name, "mkdir -p a/b && touch a/b/c && chmod 0 a/b a")
    await provider.delete(name)
    assert list((of_a_user.data / "pods").iterdir()) == []
    await provider.aclose()


async def test_a_plain_pod_of_a_user_is_said_to_be_the_user(of_a_user: SupervisorProcess) -> None:
    """The log says that jobs may do all that the user may, and the pod's end is seen all the same."""
    provider = LocalProvider(Profile.model_validate({"name": "py", "isolation": "plain"}), of_a_user.socket)
    name = await new_pod(provider)
    assert "YOUR OWN user" in of_a_user.text
    await provider.delete(name)
    assert await provider.list() == []
    await provider.aclose()


async def test_a_killed_supervisor_of_a_user_leaves_no_pod(of_a_user: SupervisorProcess) -> None:
    """The kernel ends the pods here too."""
    provider = LocalProvider(Profile(name="py"), of_a_user.socket)
    for name in (new_name(), new_name()):
        await provider.create(name, "")
        assert (await provider.wait_ready(name, 30)).phase is Phase.READY
    assert len(of_a_user.pod_pids()) >= 2
    of_a_user.process.kill()
    wait_until(lambda: of_a_user.pod_pids() == set())
    await provider.aclose()
