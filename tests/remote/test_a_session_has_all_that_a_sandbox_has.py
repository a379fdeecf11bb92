"""Files, processes, shells, ports and a binding of a session from outside, as workflow code has them."""

import asyncio
import inspect
import os
from datetime import timedelta
from pathlib import Path

import pytest
from fixtures.pieces import tree
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until

from emberpool.pool.model.binding import Binding
from emberpool.pool.model.command import Outcome
from emberpool.pool.model.errors import (
    InvalidInput,
    PortUnreachable,
    ProcessUnknown,
    SandboxClosed,
    SandboxFileError,
    ShellOver,
)
from emberpool.pool.model.session import SessionInput
from emberpool.worker.remote.session import RemoteSandbox
from emberpool.worker.stack.embedded import EmbeddedStack
from emberpool.workflows.group import SandboxGroup
from emberpool.workflows.sandbox import Sandbox


def opened(site: Site, **options: object) -> RemoteSandbox:
    given: dict[str, object] = {"profile": "py", "caller": "ann", "task_queue": site.queue, **options}
    return RemoteSandbox.open(site.client, **given)  # type: ignore[arg-type]


def blobs(site: Site) -> list[str]:
    """What lies in the blob store's folder for transfers."""
    return os.listdir(site.settings.blob_url.removeprefix("file://") + "/transfers")


async def test_local_files_and_folders_go_both_ways(site: Site, tmp_path: Path) -> None:
    """A file of more than a payload, with its mode, and a folder with links and odd names come back as they went;
    nothing is left in the blob store."""
    large, folder = tmp_path / "large.sh", tmp_path / "folder"
    large.write_bytes(b"#!/bin/sh\necho ran; exit\n" + os.urandom(5_000_000))
    large.chmod(0o755)
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/a b").write_text("x")
    (folder / "link").symlink_to("sub/a b")
    async with opened(site) as sandbox:
        moved = await sandbox.upload(large, "in/large.sh")
        assert moved.bytes == large.stat().st_size
        assert (await sandbox.run("in/large.sh")).text == "ran\n"
        await sandbox.upload(folder, "in/folder")
        assert [entry.name for entry in await sandbox.list_files("in/folder")] == ["link", "sub"]
        await sandbox.download("in/large.sh", tmp_path / "back")
        await sandbox.download("in/folder", tmp_path / "folder back")
        await sandbox.download("in/folder", str(tmp_path / "folder.tar"))
        await sandbox.remove("in", recursive=True)
        with pytest.raises(SandboxFileError, match="not_found"):
            await sandbox.download("in/folder", tmp_path / "never")
        with pytest.raises(InvalidInput, match="source"):
            await sandbox.upload(tmp_path / "missing", "x")
    assert (tmp_path / "back").read_bytes() == large.read_bytes()
    assert (tmp_path / "back").stat().st_mode & 0o777 == 0o755
    assert list(tree(tmp_path / "folder back")) == list(tree(folder))
    assert (tmp_path / "folder.tar").stat().st_size > 0 and not (tmp_path / "never").exists()
    assert blobs(site) == []
    with pytest.raises(SandboxClosed):
        await sandbox.list_files()
    await site.settled()


async def test_processes_shells_and_ports_are_there(site: Site) -> None:
    """A process is fed, followed, signalled and stopped, a shell keeps its state, a server is asked."""
    async with opened(site) as sandbox:
        server = await sandbox.processes.start("echo hi > index.html; exec python3 -m http.server 8742 -b 127.0.0.1")

        async def answers() -> bool:
            try:
                return (await sandbox.request_port(8742, "/index.html")).text == "hi\n"
            except PortUnreachable:
                return False

        await wait_until(answers)
        echo = await sandbox.processes.start("while read -r x; do echo got $x; done; exit 4", stdin_open=True)
        await echo.write(b"a\n")
        seen = await echo.logs(wait=timedelta(seconds=10))
        assert seen.stdout.data == b"got a\n"
        await echo.write(b"b\n", end=True)
        rest = [piece async for piece in sandbox.processes.get(echo.process_id).follow(seen.cursor)]
        assert b"".join(piece.stdout.data for piece in rest) == b"got b\n" and rest[-1].exit_code == 4
        assert (await server.stop()).outcome is Outcome.CANCELLED
        assert [line.running for line in await sandbox.processes.list()] == [False, False]
        with pytest.raises(ProcessUnknown):
            await sandbox.processes.get("never").logs()
        shell = sandbox.shell()
        await shell.run("cd /tmp; A=1")
        assert (await shell.run("pwd; echo $A")).text == "/tmp\n1\n"
        await shell.run("exit 3")
        with pytest.raises(ShellOver):
            await shell.run("true")


async def test_a_call_in_flight_keeps_the_session(site: Site) -> None:
    """A call that takes longer than the session's idle time-out does not find it closed."""
    async with opened(site, idle_timeout=timedelta(seconds=1)) as sandbox:
        assert (await sandbox.shell().run("sleep 2.5; echo done")).text == "done\n"
        assert (await sandbox.run("echo there")).text == "there\n"


async def test_a_cancelled_call_ends_in_the_sandbox_too(site: Site) -> None:
    """A caller who gives up a command of a shell interrupts it; the shell lives on."""
    async with opened(site) as sandbox:
        shell = sandbox.shell()
        await shell.open()
        call = asyncio.create_task(shell.run("touch begun; sleep 4671"))

        async def begun() -> bool:
            return any(entry.name == "begun" for entry in await sandbox.list_files())

        await wait_until(begun)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await asyncio.wait_for(shell.run("echo alive"), 30)).text == "alive\n"


async def test_secrets_are_bound_before_the_first_call(
    stack: EmbeddedStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session's commands and shells find its secrets, also over continue-as-new; one that the worker lacks is
    InvalidInput. Without a blob store an upload says which setting is missing."""
    monkeypatch.setenv("JOB_TOKEN", "s3cret")
    async with running_site(stack, site_settings(stack, blob_url="", secret_env_prefix="JOB_")) as site:
        async with opened(site, binding=Binding(secrets={"TOKEN": "env:JOB_TOKEN"})) as sandbox:  # type: ignore[dict-item]
            first, again = await asyncio.gather(sandbox.run("echo $TOKEN"), sandbox.run("echo $TOKEN"))
            assert first.text == again.text == "s3cret\n"
            assert (await sandbox.shell().run("echo $TOKEN")).text == "s3cret\n"
            with pytest.raises(InvalidInput, match="EMBERPOOL_BLOB_URL"):
                await sandbox.upload(__file__, "x")
        async with opened(site, binding=Binding(secrets={"TOKEN": "env:NO_SUCH"})) as sandbox:  # type: ignore[dict-item]
            with pytest.raises(InvalidInput, match="NO_SUCH"):
                await sandbox.run("true")


async def test_a_session_is_saved_and_starts_from_there(site: Site) -> None:
    """From outside as in workflows: saved while it goes on, restored before the first call and not again after a
    continue-as-new, in several sessions at once; one that is not there is InvalidInput."""
    async with opened(site) as trunk:
        await trunk.run("echo one > a; mkdir d; echo rc > ~/.rc")
        saved = await trunk.checkpoint()
        await trunk.run("echo later > a")
    given = SessionInput(profile="py", caller="ann", task_queue=site.queue, max_updates=4, checkpoint=saved)
    turning = RemoteSandbox(site.client, f"emberpool-session/ann/{site.queue}", given)
    async with opened(site, from_=saved) as branch, turning as other:
        assert await branch.read_file("a") == b"one\n"
        assert (await branch.checkpoint()) == saved
        for number in range(6):
            assert (await other.run(f"cat a ~/.rc; echo {number} >> a")).text.startswith("one\n")
        assert (await other.run("wc -l < a")).text == "7\n"
    gone = saved.model_copy(update={"sha256": "0" * 64})
    async with opened(site, from_=gone) as sandbox:
        with pytest.raises(InvalidInput):
            await sandbox.run("true")
    with pytest.raises(InvalidInput, match="from_"):
        opened(site, from_=saved, image="other")
    await site.settled()


def test_the_ways_to_open_a_sandbox_are_alike() -> None:
    """What can be said to one way of opening can be said to the others, by the same name with the same default.

    A group takes one checkpoint for each of its members, too.
    """

    def options(call: object) -> dict[str, tuple[object, object]]:
        parameters = inspect.signature(call).parameters.values()  # type: ignore[arg-type]
        return {one.name: (one.default, one.annotation) for one in parameters if one.kind is one.KEYWORD_ONLY}

    one, group, remote = options(Sandbox.open), options(SandboxGroup.open), options(RemoteSandbox.open)
    assert group.pop("from_")[0] is None
    assert {name: value for name, value in one.items() if name != "from_"}.items() <= group.items()
    assert {name: value for name, value in one.items() if name != "hold"}.items() <= remote.items()
    for way in ("upload", "download", "list_files", "remove", "download_output"):
        assert hasattr(Sandbox, way) and hasattr(RemoteSandbox, way)
    for way in ("request_port", "shell", "processes", "checkpoint"):
        assert hasattr(Sandbox, way) and hasattr(RemoteSandbox, way)
