"""Running a worker process: connect to Temporal, poll until told to stop."""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass

from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.worker import Worker

from emberpool.pool.model.errors import InvalidInput
from emberpool.worker.data_converter import load_data_converter
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.settings import CommandSettings, Settings


@dataclass(frozen=True)
class Reach:
    """How Temporal is reached, where it differs from what the environment and Temporal's configuration file say."""

    address: str | None = None
    namespace: str | None = None
    profile: str | None = None
    """Name of a profile in Temporal's configuration file."""


def connect_config(reach: Reach = Reach()) -> ClientConnectConfig:
    """Temporal's own configuration (TEMPORAL_* variables, its file's profile), with `reach` on top.

    Raises:
        InvalidInput: the file or the profile cannot be read.
    """
    try:
        config = ClientConfig.load_client_connect_config(profile=reach.profile)
    except (RuntimeError, ValueError, OSError) as error:
        raise InvalidInput("Temporal's configuration", str(error)) from error
    config["target_host"] = reach.address or config.get("target_host") or "localhost:7233"
    config["namespace"] = reach.namespace or config.get("namespace") or "default"
    return config


async def connect_client(
    plugin: EmberpoolPlugin | None = None, reach: Reach = Reach(), data_converter: str | None = None
) -> Client:
    """A Temporal client with the plugin, and with the data converter of that name; by default with the setting's.

    Raises:
        InvalidInput: Temporal's configuration cannot be read, or the converter cannot be loaded.
        RuntimeError: the server cannot be reached.
    """
    name = CommandSettings().data_converter if data_converter is None else data_converter
    converter = load_data_converter(name) or DataConverter.default
    plugins = [plugin or EmberpoolPlugin()]
    return await Client.connect(**connect_config(reach), data_converter=converter, plugins=plugins)


async def run_worker(settings: Settings, on_ready: Callable[[str], None]) -> None:
    """Serve emberpool's queues until cancelled; commands that still run go on in their pods for the next worker.

    `on_ready` is told where the metrics are served, or "".
    """
    plugin = EmberpoolPlugin(settings)
    client = await connect_client(plugin, data_converter=settings.data_converter)
    async with Worker(client, task_queue=settings.task_queue):
        # What was imported stays: to look through it for garbage takes tens of milliseconds, in which every call waits.
        gc.freeze()
        on_ready(await plugin.metrics_url())
        await asyncio.Event().wait()
