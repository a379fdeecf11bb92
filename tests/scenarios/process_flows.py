"""Workflows of the tests that use processes, shells and ports. Imported inside Temporal's sandbox."""

import asyncio
from datetime import timedelta

from temporalio import workflow

from emberpool.pool.model.errors import PortUnreachable, ProcessUnknown, ShellOver
from emberpool.pool.model.frozen import Bytes, Frozen
from emberpool.pool.model.stream import Cursor
from scenarios.flows import Plan, opened


class SeenOfProcesses(Frozen):
    """What a workflow saw."""

    listed: tuple[str, ...] = ()
    output: Bytes = b""
    texts: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    codes: tuple[int | None, ...] = ()


@workflow.defn
class Background:
    """A process that is fed, watched, signalled; one that is stopped; both outlive the activities that began them."""

    @workflow.run
    async def run(self, plan: Plan) -> SeenOfProcesses:
        async with opened(plan) as sandbox:
            text = "while read -r x; do echo got $x; done; trap 'echo bye; exit 4' TERM; sleep 4601 & wait"
            first = await sandbox.processes.start(text, process_id="first", stdin_open=True)
            other = await sandbox.processes.start(["sleep", "4602"], process_id="other")
            await first.write(b"a\n")
            seen = await first.logs(wait=timedelta(seconds=10))
            await first.write(b"b\n")
            output, at = seen.stdout.data, seen.cursor
            while output.count(b"\n") < 2:
                seen = await sandbox.processes.get("first").logs(at, wait=timedelta(seconds=10))
                output, at = output + seen.stdout.data, seen.cursor
            running = await first.wait(timedelta(seconds=0))
            await first.write(b"", end=True)
            await asyncio.gather(first.signal(0x12), sandbox.run("true"))  # SIGCONT: nothing happens to it
            stopped = await other.stop()
            unknown = ""
            try:
                await sandbox.processes.get("never").logs()
            except ProcessUnknown as error:
                unknown = error.process_id
            while not (await sandbox.run("pgrep -f 'sleep 4601' > /dev/null")).ok:
                await workflow.sleep(0.1)
            await first.signal(15)
            ended = await first.wait(timedelta(seconds=20))
            async for seen in first.follow(Cursor(stdout=len(output))):
                output += seen.stdout.data
            lines = await sandbox.processes.list()
        return SeenOfProcesses(
            listed=tuple(f"{line.id} {line.running}" for line in lines),
            output=output,
            texts=(unknown, str(running)),
            outcomes=(stopped.outcome, ended.outcome if ended else ""),
            codes=(ended.exit_code if ended else None,),
        )


@workflow.defn
class Talking:
    """A shell over several activities, to its end."""

    @workflow.run
    async def run(self, plan: Plan) -> SeenOfProcesses:
        async with opened(plan) as sandbox:
            shell = sandbox.shell()
            await shell.run("cd /tmp; export A='1 2'; f() { echo $A; }")
            told = await shell.run("pwd; f")
            late = await shell.run("sleep 60; echo never", time_limit=timedelta(seconds=0.3))
            again = await sandbox.shell(shell_id=shell.shell_id).run("f; exit 3")
            over = None
            try:
                await shell.run("true")
            except ShellOver as error:
                over = error.exit_code
        return SeenOfProcesses(
            texts=(told.text, again.text),
            outcomes=(late.outcome, late.shell, again.shell),
            codes=(told.exit_code, again.exit_code, over),
        )


@workflow.defn
class Serving:
    """A server in the sandbox is asked from the workflow."""

    @workflow.run
    async def run(self, plan: Plan) -> SeenOfProcesses:
        async with opened(plan) as sandbox:
            await sandbox.write_file("index.html", "hello")
            await sandbox.processes.start("exec python3 -m http.server --bind 127.0.0.1 8742")
            while True:
                try:
                    answer = await sandbox.request_port(8742, "/index.html")
                    break
                except PortUnreachable:
                    await workflow.sleep(0.2)
            return SeenOfProcesses(codes=(answer.status,), texts=(answer.text,))


@workflow.defn
class Patient:
    """Makes every call that may be long with the plan's time limit, beside the folder at the URL that is its command:
    none of them takes long."""

    @workflow.run
    async def run(self, plan: Plan) -> None:
        limit, (place,) = timedelta(seconds=plan.time_limit_s), plan.commands
        async with opened(plan) as sandbox:
            result = await sandbox.run("echo said", time_limit=limit)
            await sandbox.shell().run("true", time_limit=limit)
            await sandbox.upload(f"{place}/in", "in", time_limit=limit)
            await sandbox.download("in", f"{place}/out", time_limit=limit)
            await sandbox.download_output(result, f"{place}/said", time_limit=limit)
            process = await sandbox.processes.start("true")
            await process.wait(limit)
            await sandbox.checkpoint(time_limit=limit)


PROCESS_FLOWS = (Background, Talking, Serving, Patient)
