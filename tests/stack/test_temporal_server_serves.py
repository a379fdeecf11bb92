"""The embedded Temporal server: tuned, on loopback, gone when it should be."""

import asyncio
import socket
from pathlib import Path

import pytest
from temporalio.client import Client

from emberpool.worker.stack.errors import StackError
from emberpool.worker.stack.temporal_server import TemporalServer, temporal_answers


async def test_a_client_gets_an_answer(temporal_client: Client) -> None:
    """The fixture's server has the default namespace."""
    address = temporal_client.service_client.config.target_host
    assert await temporal_answers({"target_host": address, "namespace": "default"}) is None
    problem = await temporal_answers({"target_host": address, "namespace": "no-such-namespace"})
    assert problem is not None and "no-such-namespace" in problem


async def test_it_keeps_its_data_in_the_folder_and_ends_with_its_block(tmp_path: Path) -> None:
    """Database and log lie in the data folder, the UI answers, and nothing listens after the end."""
    async with TemporalServer(tmp_path) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.ui_port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert b"200 OK" in await reader.readline()
        writer.close()
        await writer.wait_closed()
    assert (tmp_path / "temporal.db").exists()
    assert (tmp_path / "logs" / "temporal.log").exists()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", server.port)


async def test_a_taken_port_is_named_with_its_option(tmp_path: Path) -> None:
    """Asking for a port that is taken fails before anything starts, and says which option to change."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StackError, match=rf"port {port} \(--temporal-port\) is taken"):
            async with TemporalServer(tmp_path, port=port):
                pass
        with pytest.raises(StackError, match=rf"port {port} \(--ui-port\) is taken"):
            async with TemporalServer(tmp_path, ui_port=port):
                pass


async def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The error carries the server's own last words."""
    (tmp_path / "temporal.db").mkdir()
    with pytest.raises(StackError) as caught:
        async with TemporalServer(tmp_path):
            pass
    assert caught.value.part == "Temporal"
    assert "exit status" in caught.value.cause
    assert "temporal.db" in caught.value.log_tail or "database" in caught.value.log_tail
