"""Without root pods run under the user's own uid, in the same namespaces."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures.local import Jobs, SupervisorProcess, new_name, new_pod
from fixtures.processes import descendants, gone, wait_until
from fixtures.waiting import wait_until as until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.network import join_network
from emberpool.pool.model.errors import PodRefused
from emberpool.pool.model.gang_network import seat_of
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


async def test_pods_of_a_gang_reach_each_other(of_a_user: SupervisorProcess) -> None:
    """No right on the host is needed: two pods are connected, and to connect them again changes nothing. A pod is in
    one gang at most, and one of another gang does not reach them. With the supervisor goes what passes frames on."""
    provider = LocalProvider(Profile(name="py", gang_peers=True), of_a_user.socket)
    names = [await new_pod(provider) for _ in range(3)]
    async with EmberdClient(of_a_user.key) as client:
        job = Jobs(client)
        leases = [await job.lease(provider, name) for name in names]
        seats = [seat_of("one", 0), seat_of("one", 1), seat_of("two", 1)]
        for lease, seat in (*zip(leases, seats, strict=True), *zip(leases, seats, strict=True)):
            assert await join_network(client, *lease, seat) == "gang0"
        with pytest.raises(PodRefused, match="other_gang"):
            await join_network(client, *leases[0], seat_of("two", 0))
        await job(provider, names[0], f"python3 -m http.server 8744 --bind {seats[0].address} > /dev/null 2>&1 &")
        ask = f"python3 -c \"import socket; socket.create_connection(('{seats[0].address}', 8744), 1); print('in')\""

        async def reached() -> bool:
            return await job(provider, names[1], ask, check=False) == "in\n"

        await until(reached)
        assert "Error" in await job(provider, names[2], ask, check=False)
    switches = [pid for pid in descendants(of_a_user.pid) if runs_switch(pid)]
    assert len(switches) == 2
    of_a_user.process.kill()
    wait_until(lambda: all(gone(pid) for pid in switches))
    await provider.aclose()


def runs_switch(pid: int) -> bool:
    """Whether this process passes frames on."""
    return b"/local/switch.py\0" in Path(f"/proc/{pid}/cmdline").read_bytes()


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
