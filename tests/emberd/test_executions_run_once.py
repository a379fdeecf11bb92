"""An execution id is started once, whoever asks and however often; its result is kept until the lease ends."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest
from fixtures.emberd import Lease, new_id, open_lease, reset

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import PodRefused, PodUnreachable

COUNTED = Command(shell="echo x >> runs; sleep 0.3; wc -l < runs")


async def test_starting_twice_runs_once(lease: Lease) -> None:
    """Both callers get the one result, also one that comes after the end."""
    execution = new_id()
    calls = [lease.client.run(lease.pod, lease.proof, execution, COUNTED) for _ in range(5)]
    results = await asyncio.gather(*calls)
    again = await lease.client.run(lease.pod, lease.proof, execution, Command(shell="echo other"))
    assert {result.stdout for result in [*results, again]} == {b"1\n"}
    assert again == results[0]


async def test_a_worker_that_died_is_replaced(lease: Lease) -> None:
    """The next one attaches by id and gets everything (e2b-dev/E2B#1074)."""
    execution = new_id()
    command = Command(shell="for i in $(seq 200); do echo $i; sleep 0.005; done; exit 9", time_limit_s=30)
    async with EmberdClient(lease.client._pool_key) as first:  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(first.run(lease.pod, lease.proof, execution, command), 0.3)
    result = await lease.client.run(lease.pod, lease.proof, execution, command)
    assert result.stdout == b"".join(b"%d\n" % number for number in range(1, 201))
    assert result.exit_code == 9


async def test_a_cut_connection_is_made_anew(lease: Lease) -> None:
    """Connections cut in mid-command cost nothing: the end is the real one (cloudflare/sandbox-sdk#873)."""
    async with cutting_proxy(lease.pod.endpoint.removeprefix("unix:"), cut_after_s=0.25) as endpoint:
        pod = lease.pod.model_copy(update={"endpoint": endpoint})
        command = Command(shell="echo x >> runs; sleep 1.2; wc -l < runs")
        result = await lease.client.run(pod, lease.proof, new_id(), command, poll_s=5)
    assert (result.stdout, result.exit_code) == (b"1\n", 0)


async def test_a_pod_that_is_gone_is_unreachable(lease: Lease) -> None:
    """Without any connection the error says that nothing was sent."""
    pod = lease.pod.model_copy(update={"endpoint": "unix:/nowhere/s"})
    with pytest.raises(PodUnreachable) as caught:
        await lease.client.run(pod, lease.proof, new_id(), Command(argv=("true",)))
    assert caught.value.sent is False
    await lease.sh("true")


async def test_results_end_with_the_lease(lease: Lease) -> None:
    """The next lease knows nothing of this one's executions."""
    execution = new_id()
    await lease.client.run(lease.pod, lease.proof, execution, Command(argv=("true",)))
    await reset(lease)
    following = open_lease(lease.emberd, lease.client)
    await following.sh("true")
    with pytest.raises(PodRefused):
        await following.client.kill(following.pod, following.proof, execution)


@contextlib.asynccontextmanager
async def cutting_proxy(path: str, cut_after_s: float) -> AsyncGenerator[str, None]:
    """A TCP port in front of a unix socket that closes every connection after a while, whatever goes on in it."""
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_unix_connection(path)
        both = [
            asyncio.ensure_future(pump(reader, upstream_writer)),
            asyncio.ensure_future(pump(upstream_reader, writer)),
        ]
        tasks.update(both)
        await asyncio.wait(both, timeout=cut_after_s)
        for task in both:
            task.cancel()
        for end in (writer, upstream_writer):
            end.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await asyncio.gather(*tasks, return_exceptions=True)
