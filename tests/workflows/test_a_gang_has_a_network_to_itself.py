"""Isolated local pods of one gang reach each other, and nobody else reaches them; nothing of it outlives the job."""

import os
import socket
import sys
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from fixtures.processes import descendants, gone
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.flows import Commands
from scenarios.gangs import DEVICES, Apart

from emberpool.activities import names
from emberpool.pool.model.gang_job import GangJobResult
from emberpool.pool.model.profile import Profile
from emberpool.worker.stack.embedded import EmbeddedStack

APART = Profile(name="apart", min_warm=0, max_pods=6, gang_peers=True)

MEET = """
import hashlib, os, random, socket, time

rank, meet = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
data = random.Random(7).randbytes(8_000_000)

def whole(link):
    digest, size = hashlib.sha256(), 0
    while size < len(data):
        piece = link.recv(1 << 20)
        digest.update(piece)
        size += len(piece)
    return digest.digest() == hashlib.sha256(data).digest()

if rank == 0:
    with socket.create_server(meet) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(meet)
        link, peer = server.accept()
        right = whole(link)
        link.sendall(data)
        print(peer[0], right, len(datagrams.recv(65536)))
else:
    while True:
        try:
            link = socket.create_connection(meet)
            break
        except OSError:
            time.sleep(0.05)
    link.sendall(data)
    print(os.environ["EMBERPOOL_PEERS"], whole(link))
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes(9000), meet)
"""
"""Much more than a frame each way, and a datagram that is cut into several."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def apart(stack: EmbeddedStack) -> AsyncGenerator[Site]:
    """Isolated pods of a profile whose gangs have peers."""
    async with running_site(stack, site_settings(stack, APART)) as site:
        yield site


@pytest.fixture
def listener() -> Iterator[int]:
    """The port of a server on all of the host's addresses."""
    with socket.create_server(("", 0)) as server:
        yield server.getsockname()[1]


def switches() -> list[int]:
    """The processes that pass frames on."""
    found: list[int] = []
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            if b"/local/switch.py\0" in Path(f"/proc/{pid}/cmdline").read_bytes() and not gone(pid):
                found.append(pid)
    return found


def host_addresses() -> list[str]:
    """Where a process that shared the host's network would reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return ["127.0.0.1", probe.getsockname()[0]]
        except OSError:
            return ["127.0.0.1"]  # no other network here


async def gang(site: Site, **fields: object) -> GangJobResult:
    """Two ranks with peers, from plain JSON."""
    job = {"profile": "apart", "caller": "g", "size": 2, "peers": True, "task_queue": site.queue, **fields}
    result: GangJobResult = await site.client.execute_workflow(
        names.GANG_JOB, job, id=uuid.uuid4().hex, task_queue=site.queue, result_type=GangJobResult
    )
    return result


@pytest.mark.asyncio(loop_scope="module")
async def test_isolated_pods_meet_at_the_rendezvous(apart: Site) -> None:
    """Megabytes both ways and datagrams, at the addresses that they were told; after it the same pods meet again, at
    the same port, and in between nothing of it is left."""
    for source in ("cold", "reuse"):
        files = [{"path": "meet.py", "text": MEET}]
        result = await gang(apart, files=files, command={"argv": ["python3", "meet.py"], "time_limit_s": 60})
        texts = [one.text or one.error_text for one in result.results]
        assert texts == ["10.86.0.2 True 9000\n", "10.86.0.1,10.86.0.2 True\n"], texts
        assert set(result.sources) == {source} and len(set(result.pods)) == 2
        await apart.settled()

        async def none_left() -> bool:
            return not switches()

        await wait_until(none_left)
    alone = apart.plan(caller="g", commands=(DEVICES,))
    seen = await apart.client.execute_workflow(Commands.run, alone, id=uuid.uuid4().hex, task_queue=apart.queue)
    assert seen.lease is not None and (seen.lease.source, seen.results[0].text) == ("reuse", "lo\n")


@pytest.mark.asyncio(loop_scope="module")
async def test_nobody_else_reaches_a_gang(apart: Site, listener: int) -> None:
    """Neither another gang of the same pool, which has the same addresses, nor a sandbox that is in none; and a member
    does not reach the host. Each gang's frames go through a process of its own."""
    hosts = " ".join(f"{address}:{listener}" for address in host_addresses())
    plan = apart.group_plan(command=hosts)
    handle = await apart.client.start_workflow(Apart.run, plan, id=uuid.uuid4().hex, task_queue=apart.queue)

    async def two() -> bool:
        return len(switches()) == 2

    await wait_until(two)
    seen = await handle.result()
    assert (seen.inside, seen.asked) == ("in\n", "asked\n")
    assert [one.ok for one in (*seen.outside, *seen.host)] == [False] * (2 + len(seen.host)), seen
    assert seen.devices == ("gang0 lo\n",) * 5 + ("lo\n",)
    await apart.settled()


@pytest.mark.asyncio(loop_scope="module")
async def test_torchrun_meets_at_the_rendezvous(apart: Site) -> None:
    """torchrun with what the environment says, and a sum over all ranks by gloo, where a Python that the pods have has
    torch."""
    pythons = ("python3", f"{sys.base_prefix}/bin/python3")
    probe = " || ".join(f"{python} -c 'import torch' && echo {python}" for python in pythons)
    found = (await gang(apart, command={"shell": f"({probe}) 2> /dev/null || true", "time_limit_s": 60})).results[0]
    python = found.text.strip()
    if not python:
        pytest.skip(f"torch is in none of the pods' Pythons: {', '.join(pythons)}")
    shell = (
        f"{python} -m torch.distributed.run --nnodes $WORLD_SIZE --node_rank $RANK --master_addr $MASTER_ADDR "
        "--master_port $MASTER_PORT sum.py"
    )
    files = [{"path": "sum.py", "text": SUM}]
    result = await gang(apart, files=files, command={"shell": shell, "time_limit_s": 240})
    assert [one.text.strip() for one in result.results] == ["0 of 2: 3.0", "1 of 2: 3.0"], [
        one.error_text[-2000:] for one in result.results
    ]


SUM = """
import torch, torch.distributed as dist

dist.init_process_group("gloo")
mine = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(mine)
print(f"{dist.get_rank()} of {dist.get_world_size()}: {mine.item()}")
dist.destroy_process_group()
"""
