"""A group of sandboxes that are opened together or not at all: jobs of several pods."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from emberpool.activities import names
from emberpool.pool.model.binding import Binding
from emberpool.pool.model.checkpoint import Checkpoint
from emberpool.pool.model.claim import MOST_MEMBERS, ClaimSpec, Gang, SandboxRef
from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.gang_job import RENDEZVOUS_PORT
from emberpool.pool.model.inputs import checked
from emberpool.pool.model.rollout import TextFile
from emberpool.workflows.checkpoints import image_of, restore
from emberpool.workflows.holder import new_request, this_workflow
from emberpool.workflows.sandbox import Sandbox

T = TypeVar("T")

DEVICE_VARIABLES = ("EMBERPOOL_DEVICE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
"""Where torch's libraries look for the device to use. They go by the host's name otherwise, which is the loopback's."""


class SandboxGroup(Sequence[Sandbox]):
    """Sandboxes by rank. `async with SandboxGroup.open(4, ...) as group`: entering waits until every member has its pod
    and its topology is bound; leaving releases all, whatever happened.

    Every command of a member finds EMBERPOOL_RANK and EMBERPOOL_WORLD_SIZE, and the same as RANK and WORLD_SIZE; with
    peers also EMBERPOOL_PEERS (addresses by rank, with commas between), MASTER_ADDR (that of rank 0), MASTER_PORT, and
    both as EMBERPOOL_RENDEZVOUS: where rank 0 listens for the others. Where the gang has a network to itself (isolated
    local pods), EMBERPOOL_DEVICE and the variables of torch's libraries name its device.
    """

    def __init__(
        self,
        members: Sequence[Sandbox],
        peers: bool,
        env: Mapping[str, str],
        port: int = RENDEZVOUS_PORT,
        files: Sequence[TextFile] = (),
        binding: Binding | None = None,
        from_: Sequence[Checkpoint] = (),
    ) -> None:
        self._members, self._peers, self._env = tuple(members), peers, dict(env)
        self._port, self._files, self._binding, self._from = port, tuple(files), binding, tuple(from_)

    @classmethod
    def open(
        cls,
        size: int,
        *,
        profile: str,
        caller: str,
        peers: bool = False,
        port: int = RENDEZVOUS_PORT,
        env: Mapping[str, str] | None = None,
        files: Sequence[TextFile] = (),
        binding: Binding | None = None,
        from_: Checkpoint | Sequence[Checkpoint] | None = None,
        image: str = "",
        reuse_key: str = "",
        fingerprint: str = "",
        hold: timedelta = timedelta(minutes=15),
        wait_timeout: timedelta = timedelta(minutes=5),
        priority: int = 0,
        task_queue: str = names.DEFAULT_TASK_QUEUE,
    ) -> Self:
        """`size` sandboxes of one profile and caller; the other arguments are those of `Sandbox.open`.

        Args:
            peers: whether the members must reach each other; their profile must promise it (`gang_peers`).
            port: of the rendezvous, if there are peers.
            env, files, binding: bound to every member besides the topology.
            from_: what each member starts from, restored before that: one checkpoint for all, or one per rank, as
                `checkpoint` gives them.
            wait_timeout: how long the group may stand in line before NoCapacity. A group that is larger than the pool's
                ceiling is NoCapacity at once.

        Raises:
            InvalidInput: an argument can never work; it is named.
        """
        if not 1 <= size <= MOST_MEMBERS:
            raise InvalidInput("size", f"{size}: a group has 1 to {MOST_MEMBERS} members")
        starts = [] if from_ is None else [from_] * size if isinstance(from_, Checkpoint) else list(from_)
        if starts and len(starts) != size:
            raise InvalidInput("from_", f"there are {len(starts)} checkpoints for {size} members: give one, or {size}")
        for start in starts:
            image = image_of(start, image)
        spec = checked(
            ClaimSpec,
            profile=profile,
            caller=caller,
            image=image,
            reuse_key=reuse_key,
            fingerprint=fingerprint or (binding.fingerprint() if binding else ""),
            hold_s=hold.total_seconds(),
            wait_timeout_s=wait_timeout.total_seconds(),
            priority=priority,
        )
        if not 1024 <= port <= 65535:
            raise InvalidInput("port", f"{port}: must lie between 1024 and 65535")
        requests = tuple(new_request() for _ in range(size))
        gang, holder = Gang(id=new_request(), members=requests, peers=peers), this_workflow()
        refs = [SandboxRef(request_id=request, spec=spec, holder=holder, gang=gang) for request in requests]
        return cls([Sandbox(ref, task_queue) for ref in refs], peers, env or {}, port, files, binding, starts)

    def __len__(self) -> int:
        return len(self._members)

    @overload
    def __getitem__(self, rank: int) -> Sandbox: ...

    @overload
    def __getitem__(self, rank: slice) -> tuple[Sandbox, ...]: ...

    def __getitem__(self, rank: int | slice) -> Sandbox | tuple[Sandbox, ...]:
        """The member of that rank; a slice gives a tuple."""
        return self._members[rank]

    def __iter__(self) -> Iterator[Sandbox]:
        return iter(self._members)

    async def run(self, command: Command | str | Sequence[str], **options: Any) -> list[CommandResult]:
        """Run the same command on every member at once, as `Sandbox.run`; results by rank.

        If one call raises, the others are cancelled and their commands killed, and the first error is raised.
        """
        return await _all([member.run(command, **options) for member in self._members])

    async def checkpoint(self) -> tuple[Checkpoint, ...]:
        """Save what every member's jobs have changed in its files, by rank; see `Sandbox.checkpoint`."""
        return tuple(await _all([member.checkpoint() for member in self._members]))

    async def __aenter__(self) -> Self:
        try:
            if self._peers:
                await _all([member.claim() for member in self._members])
            if self._from:
                await _all([restore(member, start) for member, start in zip(self._members, self._from, strict=True)])
            await _all(
                [
                    member.bind(env=self._topology(rank), files=self._files, binding=self._binding)
                    for rank, member in enumerate(self._members)
                ]
            )
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Release every member. A cancellation waits until that has ended, and is raised then."""
        if self._members[0].astray:
            return
        closing = [member.close() for member in self._members]
        try:
            tasks = [asyncio.create_task(one) for one in closing]
        except BaseException:
            for one in closing:
                one.close()  # a workflow that is being evicted from the cache starts no task: nothing is released
            raise
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    def _topology(self, rank: int) -> dict[str, str]:
        size = len(self._members)
        env = {
            "EMBERPOOL_RANK": str(rank),
            "EMBERPOOL_WORLD_SIZE": str(size),
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
        }
        if self._peers:
            hosts = [member.lease.host if member.lease else "" for member in self._members]
            env |= {"EMBERPOOL_PEERS": ",".join(hosts), "MASTER_ADDR": hosts[0], "MASTER_PORT": str(self._port)}
            env["EMBERPOOL_RENDEZVOUS"] = f"{hosts[0]}:{self._port}"
            lease = self._members[rank].lease
            if lease is not None and lease.device:
                env |= dict.fromkeys(DEVICE_VARIABLES, lease.device)
        return {**env, **self._env}


async def _all(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Wait for all; at the first that fails the others are cancelled, and waited for."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
