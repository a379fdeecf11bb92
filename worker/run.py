"""Running a worker process: connect to Temporal, poll until told to stop."""

import asyncio
from collections.abc import Callable

from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.worker import Worker

from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.settings import Settings


async def connect_client(settings: Settings | None = None) -> Client:
    """A Temporal client from the environment's configuration (TEMPORAL_ADDRESS, profiles, TLS), with the plugin."""
    config = ClientConfig.load_client_connect_config()
    config.setdefault("target_host", "localhost:7233")
    config.setdefault("namespace", "default")
    return await Client.connect(**config, plugins=[EmberpoolPlugin(settings)])


async def run_worker(settings: Settings, on_ready: Callable[[], None]) -> None:
    """Serve emberpool's queues until cancelled; commands that still run go on in their pods for the next worker."""
    client = await connect_client(settings)
    async with Worker(client, task_queue=settings.task_queue):
        on_ready()
        await asyncio.Event().wait()
