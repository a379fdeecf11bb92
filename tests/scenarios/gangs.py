"""Workflows that open several sandboxes together, or one with an image. Imported inside Temporal's sandbox."""

from datetime import timedelta
from typing import Any

from temporalio import workflow

from emberpool.pool.model.checkpoint import Checkpoint
from emberpool.pool.model.claim import Source
from emberpool.pool.model.command import CommandResult
from emberpool.pool.model.errors import EmberpoolError
from emberpool.pool.model.frozen import Frozen
from emberpool.workflows.group import SandboxGroup
from emberpool.workflows.sandbox import Sandbox


class GroupPlan(Frozen):
    """What a group, or with `size` 0 a single sandbox, is to do."""

    profile: str
    task_queue: str
    caller: str = "tester"
    size: int = 0
    command: str = "true"
    image: str = ""
    peers: bool = False
    wait_timeout_s: float = 60.0
    pause_s: float = 0.0


class GroupSeen(Frozen):
    """What it saw, by rank."""

    results: tuple[CommandResult, ...] = ()
    pods: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    recycled: tuple[str, ...] = ()
    saved: tuple[Checkpoint, ...] = ()
    error: str = ""

    @property
    def texts(self) -> list[str]:
        """What the commands printed."""
        return [result.text for result in self.results]


@workflow.defn
class Together:
    """Runs a command on every member of a group at once."""

    @workflow.run
    async def run(self, plan: GroupPlan) -> GroupSeen:
        try:
            group = SandboxGroup.open(
                plan.size,
                profile=plan.profile,
                caller=plan.caller,
                peers=plan.peers,
                env={"EXTRA": "more"},
                wait_timeout=timedelta(seconds=plan.wait_timeout_s),
                task_queue=plan.task_queue,
            )
            async with group:
                results = await group.run(plan.command)
                if plan.pause_s:
                    await workflow.sleep(plan.pause_s)
        except EmberpoolError as error:
            return GroupSeen(error=f"{type(error).__name__}: {error}")
        leases = [member.lease for member in group if member.lease]
        return GroupSeen(
            results=tuple(results),
            pods=tuple(lease.pod for lease in leases),
            sources=tuple(lease.source for lease in leases),
            recycled=tuple(member.recycled.outcome for member in group if member.recycled),
        )


@workflow.defn
class OneOfAnImage:
    """Runs a command in one sandbox of an image."""

    @workflow.run
    async def run(self, plan: GroupPlan) -> GroupSeen:
        sandbox = Sandbox.open(
            profile=plan.profile,
            caller=plan.caller,
            image=plan.image,
            wait_timeout=timedelta(seconds=plan.wait_timeout_s),
            task_queue=plan.task_queue,
        )
        async with sandbox:
            result = await sandbox.run(plan.command)
            if plan.pause_s:
                await workflow.sleep(plan.pause_s)
        assert sandbox.lease is not None
        return GroupSeen(results=(result,), pods=(sandbox.lease.pod,), sources=(sandbox.lease.source,))


CONNECT = "python3 -c \"import socket; socket.create_connection(('{}', {}), 2); print('in')\""
DEVICES = 'python3 -c "import socket; print(*sorted(name for _, name in socket.if_nameindex()))"'
PORT = 8742


class ReachSeen(Frozen):
    """Who reached a server in a gang, and what devices there were."""

    inside: str = ""
    outside: tuple[CommandResult, ...] = ()
    host: tuple[CommandResult, ...] = ()
    devices: tuple[str, ...] = ()
    asked: str = ""


@workflow.defn
class Apart:
    """Two gangs with a network each, and a sandbox that is in none, all of one pool. The last member of the first gang
    serves, and everybody tries to reach it; one of its peers tries the host at the addresses in `command`."""

    @workflow.run
    async def run(self, plan: GroupPlan) -> ReachSeen:
        where: dict[str, Any] = {"profile": plan.profile, "task_queue": plan.task_queue}
        first = SandboxGroup.open(3, caller="first", peers=True, **where)
        other = SandboxGroup.open(2, caller="other", peers=True, **where)
        async with first, other, Sandbox.open(caller="single", **where) as single:
            await first[2].processes.start(f"echo asked > index.html; exec python3 -m http.server {PORT}")
            lease = first[2].lease
            assert lease is not None
            connect = CONNECT.format(lease.host, PORT)
            while not (inside := await first[0].run(connect)).ok:
                await workflow.sleep(0.2)
            return ReachSeen(
                inside=inside.text,
                outside=(await other[1].run(connect), await single.run(connect)),
                host=tuple([await first[0].run(CONNECT.format(*to.split(":"))) for to in plan.command.split()]),
                devices=tuple([(await one.run(DEVICES)).text for one in (*first, *other, single)]),
                asked=(await first[2].request_port(PORT, "/index.html")).text,
            )


@workflow.defn
class SaveAll:
    """A group that works and is saved; a second one that starts from there, and one whose every member starts from rank
    1's state."""

    @workflow.run
    async def run(self, plan: GroupPlan) -> GroupSeen:
        where: dict[str, Any] = {"profile": plan.profile, "caller": plan.caller, "task_queue": plan.task_queue}
        async with SandboxGroup.open(plan.size, **where) as group:
            await group.run("echo $RANK > mine; echo $RANK > ~/kept")
            saved = await group.checkpoint()
        async with SandboxGroup.open(plan.size, from_=saved, **where) as group:
            results = await group.run("cat mine ~/kept")
        async with SandboxGroup.open(plan.size, from_=saved[1], **where) as group:
            results += await group.run("cat mine; echo $RANK")
        try:
            SandboxGroup.open(plan.size + 1, from_=saved, **where)
        except EmberpoolError as error:
            return GroupSeen(results=tuple(results), saved=saved, error=f"{type(error).__name__}: {error}")
        return GroupSeen(results=tuple(results), saved=saved)


GROUP_FLOWS = (Together, OneOfAnImage, Apart, SaveAll)
