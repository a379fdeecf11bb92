"""All of emberpool on one machine: Temporal, Redis, the supervisor of local pods, and workers, as child processes.

Each part is waited for until it serves. Everything ends with the `async with` block, in the reverse order, and at the
latest with this process: no part outlives it, also not when it is killed.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

import aiohttp

from emberpool.activities.names import DEFAULT_TASK_QUEUE
from emberpool.pool.model.profile import Isolation, Profile, ProviderKind
from emberpool.pool.providers.local.host import inspect_host
from emberpool.pool.providers.local.supervisor import supervisor_argv
from emberpool.worker.settings import Settings
from emberpool.worker.stack.errors import StackError
from emberpool.worker.stack.external import external_redis, external_temporal
from emberpool.worker.stack.folder import StackFolder
from emberpool.worker.stack.health import wait_healthy
from emberpool.worker.stack.process import ChildProcess
from emberpool.worker.stack.redis_server import RedisServer
from emberpool.worker.stack.temporal_server import NAMESPACE, TemporalServer

SUPERVISOR_START_S: Final = 30.0
SUPERVISOR_STOP_S: Final = 15.0
"""It deletes every pod first."""
WORKER_START_S: Final = 60.0
WORKER_GRACE_S: Final = "1"
"""Instead of the workers' own default: the pods end with the stack, so there is nothing to hand over to."""
WORKER_STOP_S: Final = 15.0
"""Seconds from SIGTERM to SIGKILL."""
METRICS_WORDS: Final = re.compile(r"metrics (http://\S+)")
READY_WORD: Final = "emberpool worker ready"


@dataclass(frozen=True)
class StackOptions:
    """What a stack is started with."""

    data_dir: Path
    """Databases, logs, pods and the pool key. One stack at a time."""
    ephemeral: bool = False
    """Whether Temporal keeps its state in memory only. Redis always does: pods and leases end with the stack."""
    profiles: tuple[Profile, ...] = ()
    """What the workers serve."""
    allowed_urls: tuple[str, ...] = ()
    """Prefixes of URLs that workflows may name, beside the blob store in the data folder."""
    temporal_port: int | None = None
    """None: any free one."""
    ui_port: int | None = None
    workers: int = 1
    """Worker processes."""
    deployment: str = "default"
    task_queue: str = DEFAULT_TASK_QUEUE


class EmbeddedStack:
    """A running stack. Its attributes are set once it is entered."""

    def __init__(self, options: StackOptions) -> None:
        self.options = options
        self.temporal_address = ""
        self.temporal_namespace = NAMESPACE
        self.ui_url: str | None = None
        """None if TEMPORAL_ADDRESS names a server of somebody else."""
        self.settings = Settings.model_construct()
        """The settings that the workers run with."""
        self.run_dir = Path()
        self.data_dir = Path()
        self._children: list[ChildProcess] = []
        self._metrics: list[str] = []
        self._running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start every part.

        Raises:
            StackError: a part cannot start. What had started is down again by then.
        """
        async with AsyncExitStack() as running:
            folder = running.enter_context(StackFolder(self.options.data_dir))
            self.run_dir, self.data_dir = folder.run_dir, folder.data_dir
            await self._check_host()
            self.settings = await self._start_servers(running, folder)
            await self._start_workers(running)
            self._running = running.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._running.aclose()

    async def wait(self) -> NoReturn:
        """Wait, for ever if all goes well.

        Raises:
            StackError: a part ended by itself.
        """
        ends = {asyncio.ensure_future(child.wait()): child for child in self._children}
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        raise ends[done.pop()].ended()

    def pids(self) -> Mapping[str, int]:
        """Pid of each part that was started here, by the name that errors give it."""
        return {child.name: child.pid for child in self._children}

    def summary(self) -> Sequence[tuple[str, str]]:
        """Names and values for a person who wants to use it."""
        names = ", ".join(profile.name for profile in self.settings.all_profiles())
        return (
            ("Temporal", f"{self.temporal_address}, namespace {self.temporal_namespace}"),
            ("Temporal UI", self.ui_url or "not started here"),
            ("Task queue", self.options.task_queue),
            ("Profiles", names or "none"),
            ("Workers", str(self.options.workers)),
            ("Metrics", " ".join(self._metrics) or "not served"),
            ("Data and logs", str(self.data_dir)),
        )

    async def _check_host(self) -> None:
        if not any(_needs_bubblewrap(profile) for profile in self.options.profiles):
            return
        host = await asyncio.to_thread(inspect_host)
        if host.isolation is None:
            raise StackError("local pods", host.why, "run `emberpool doctor` for what was tried")

    async def _start_servers(self, running: AsyncExitStack, folder: StackFolder) -> Settings:
        # At once: none needs another, and each takes a second or more to load.
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._start_temporal(running))
                redis_url = group.create_task(self._start_redis(running))
                supervisor = group.create_task(self._start_supervisor(running, folder))
        except ExceptionGroup as failed:
            # Of several the first is enough: the next one shows once it is mended.
            raise failed.exceptions[0] from None
        return self._settings(redis_url.result(), folder.key_file, supervisor.result())

    async def _start_temporal(self, running: AsyncExitStack) -> None:
        external = await external_temporal()
        if external is not None:
            self.temporal_address, self.temporal_namespace = external
            return
        server = await running.enter_async_context(
            TemporalServer(
                self.data_dir,
                ephemeral=self.options.ephemeral,
                port=self.options.temporal_port,
                ui_port=self.options.ui_port,
            )
        )
        self.temporal_address, self.ui_url = server.address, server.ui_url
        self._watch(server.child)

    async def _start_redis(self, running: AsyncExitStack) -> str:
        external = await external_redis()
        if external is not None:
            return external
        # In memory only: local pods end with the stack, and an index of pods that are gone would fill the ceiling with
        # them. A new one is built from the pods that there are, and a workflow's sandbox of before is SandboxLost.
        server = await running.enter_async_context(RedisServer(None))
        self._watch(server.child)
        return server.url

    async def _start_supervisor(self, running: AsyncExitStack, folder: StackFolder) -> Path:
        path = folder.run_dir / "supervisor.sock"
        child = ChildProcess(
            supervisor_argv(path, folder.short_data_dir, folder.key_file, os.getpid()),
            log=folder.data_dir / "logs" / "supervisor.log",
            name="supervisor of local pods",
            stop_s=SUPERVISOR_STOP_S,
        )
        await running.enter_async_context(child)
        await wait_healthy(child, partial(_supervises, path), SUPERVISOR_START_S)
        self._watch(child)
        return path

    async def _start_workers(self, running: AsyncExitStack) -> None:
        env = self._worker_env()
        workers = [
            ChildProcess(
                (*_python("emberpool.worker.cli"), "worker"),
                env=env,
                log=self.data_dir / "logs" / f"worker-{number}.log",
                name=f"worker {number}",
                stop_s=WORKER_STOP_S,
            )
            for number in range(1, self.options.workers + 1)
        ]
        for worker in workers:
            await running.enter_async_context(worker)
        # All at once, or the last one would wait for the graceful end of each before it.
        running.push_async_callback(_stop_all, workers)
        for worker in workers:
            await wait_healthy(worker, partial(_says_ready, worker), WORKER_START_S)
            self._watch(worker)
            self._metrics += re.findall(METRICS_WORDS, worker.log_tail(200))

    def _settings(self, redis_url: str, key_file: Path, socket_path: Path) -> Settings:
        profiles_file = self.run_dir / "profiles.yaml"
        # JSON is YAML, and quotes what YAML would guess at.
        profiles_file.write_text(json.dumps([profile.model_dump(mode="json") for profile in self.options.profiles]))
        blobs, demo = self.data_dir / "blobs", self.data_dir / "demo"
        blobs.mkdir(exist_ok=True)
        given = Settings(profiles=(), profiles_file=None)  # what the user has set for the workers
        return Settings(
            blob_url=given.blob_url or f"file://{blobs}",
            allowed_urls=(*given.allowed_urls, *self.options.allowed_urls, f"file://{demo}"),
            deployment=self.options.deployment,
            task_queue=self.options.task_queue,
            redis_url=redis_url,
            pool_key_file=key_file,
            supervisor_socket=socket_path,
            profiles_file=profiles_file,
            profiles=(),
        )

    def _worker_env(self) -> Mapping[str, str]:
        mine = {
            "EMBERPOOL_DEPLOYMENT": self.settings.deployment,
            "EMBERPOOL_TASK_QUEUE": self.settings.task_queue,
            "EMBERPOOL_REDIS_URL": self.settings.redis_url,
            "EMBERPOOL_POOL_KEY_FILE": str(self.settings.pool_key_file),
            "EMBERPOOL_SUPERVISOR_SOCKET": str(self.settings.supervisor_socket),
            "EMBERPOOL_PROFILES_FILE": str(self.settings.profiles_file),
            "EMBERPOOL_BLOB_URL": self.settings.blob_url,
            "EMBERPOOL_ALLOWED_URLS": json.dumps(self.settings.allowed_urls),
        }
        given = {name: value for name, value in os.environ.items() if name != "EMBERPOOL_PROFILES"}
        given.setdefault("EMBERPOOL_GRACEFUL_SHUTDOWN_S", WORKER_GRACE_S)
        given.setdefault("EMBERPOOL_METRICS_ADDRESS", "127.0.0.1:0")
        if self.ui_url is None:
            return {**given, **mine}
        # Variables and files that name another server, a key or TLS must not reach the workers of this one.
        rest = {name: value for name, value in given.items() if not name.startswith("TEMPORAL_")}
        here = {"TEMPORAL_ADDRESS": self.temporal_address, "TEMPORAL_NAMESPACE": NAMESPACE}
        return {**rest, **mine, **here, "TEMPORAL_CONFIG_FILE": os.devnull, "EMBERPOOL_SEARCH_ATTRIBUTES": "true"}

    def _watch(self, child: ChildProcess | None) -> None:
        if child is not None:
            self._children.append(child)


def _needs_bubblewrap(profile: Profile) -> bool:
    return profile.provider is ProviderKind.LOCAL and profile.isolation is Isolation.BUBBLEWRAP


def _python(module: str) -> tuple[str, ...]:
    # -P: whatever folder the user stands in, its modules are not ours.
    return (sys.executable, "-P", "-m", module)


async def _supervises(path: Path) -> str | None:
    try:
        timeout = aiohttp.ClientTimeout(total=5.0)
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path)), timeout=timeout) as http:
            async with http.get("http://supervisor/v1/health") as answer:
                return None if answer.status == 200 else f"its health check answers {answer.status}"
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return f"{path}: {error}"


async def _says_ready(worker: ChildProcess) -> str | None:
    return None if READY_WORD in worker.log_tail(200) else "it has not begun to poll"


async def _stop_all(children: Sequence[ChildProcess]) -> None:
    await asyncio.gather(*(child.stop() for child in children))
