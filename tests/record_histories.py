"""Record one history of every workflow into tests/histories/: `.venv/bin/python tests/record_histories.py VERSION`.

Done once per released version; the recorded files stay, and what workflows gain later is recorded beside them.
`test_histories_replay.py` replays them all.
"""

import asyncio
import hashlib
import io
import os
import sys
import tarfile
import tempfile
from pathlib import Path

from fixtures.images import make_image
from fixtures.stack import PROFILE, Site, running_site, site_settings
from fixtures.waiting import wait_until
from scenarios.bindings import BINDING_FLOWS, BoundHandOver, BoundPlan
from scenarios.checkpoints import CHECKPOINT_FLOWS, CheckpointPlan, RunAndSave
from scenarios.files import FilePlan, FileStep, MoveFiles
from scenarios.flows import Commands, HandOver, Pause
from scenarios.gangs import Apart, GroupPlan, OneOfAnImage, SaveAll
from scenarios.policies import POLICY, task, two_tries
from scenarios.process_flows import Background, Serving, Talking
from scenarios.tool_flows import TOOL_FLOWS, Texts, TwoCurrent
from temporalio.client import Client
from temporalio.worker import Worker

from emberpool.activities import names
from emberpool.pool.model.binding import Binding
from emberpool.pool.model.checkpoint import Checkpoint
from emberpool.pool.model.command import Command
from emberpool.pool.model.gang_job import GangJobInput
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.rollout import RolloutBatchInput
from emberpool.pool.model.session import SessionInput
from emberpool.pool.model.state import PodState
from emberpool.worker.remote.session import RemoteSandbox
from emberpool.worker.stack.embedded import EmbeddedStack, StackOptions
from emberpool.workflows.batch import RolloutBatch
from emberpool.workflows.gang_job import GangJob
from emberpool.workflows.tool_call import ToolCall, ToolCallInput

FOLDER = Path(__file__).parent / "histories"
PEERS = Profile(name="peers", min_warm=0, max_pods=6, gang_peers=True)


class Recorder:
    """Keeps histories that are not there yet."""

    def __init__(self, version: str, client: Client) -> None:
        self._folder, self._client = FOLDER / version, client
        self._folder.mkdir(parents=True, exist_ok=True)

    async def keep(self, workflow_id: str, kept: str = "", first: bool = False) -> None:
        """Write a workflow's history, unless there is one: of its last run, or of its first."""
        place = self._folder / f"{kept or workflow_id.replace('/', '-')}.json"
        if place.exists():
            return
        handle = self._client.get_workflow_handle(workflow_id)
        if first:
            started = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
            handle = self._client.get_workflow_handle(workflow_id, run_id=started.first_execution_run_id)
        history = await handle.fetch_history()
        place.write_text(history.to_json())
        print(place, len(history.events), "events", flush=True)


async def record_main_path(recorder: Recorder, site: Site) -> None:
    """Tool calls, gangs, batches and the pool's manager."""
    client, queue = site.client, site.queue
    call = ToolCallInput(profile="py", caller="c", command=Command(shell="echo hi"), task_queue=queue)
    await client.execute_workflow(ToolCall.run, call, id="tool-call", task_queue=queue)
    await client.execute_workflow(
        Commands.run, site.plan(commands=("echo 1", "exit 2")), id="commands", task_queue=queue
    )
    await client.execute_workflow(HandOver.run, site.plan(), id="hand-over", task_queue=queue)
    commands = (Command(shell="sleep 9"), Command(shell="exit 3"))
    gang = GangJobInput(profile="py", caller="c", size=2, commands=commands, task_queue=queue)
    await client.execute_workflow(GangJob.run, gang, id="gang-job", task_queue=queue)
    saved = (
        await client.execute_workflow(
            SaveAll.run, site.group_plan(caller="c", size=2), id="gang-saved", task_queue=queue
        )
    ).saved
    gang = gang.model_copy(update={"commands": (Command(shell="cat mine"),) * 2, "checkpoints": saved})
    await client.execute_workflow(GangJob.run, gang, id="gang-job-restored", task_queue=queue)
    batch = RolloutBatchInput(
        batch_id="b",
        profile="py",
        caller="c",
        policy=POLICY,
        policy_task_queue="p",
        tasks=(task(0),),
        task_queue=queue,
    )
    async with Worker(client, task_queue="p", activities=[two_tries]):
        await client.execute_workflow(RolloutBatch.run, batch, id="batch", task_queue=queue)
    for workflow_id in ("tool-call", "commands", "hand-over", "gang-job", "gang-job-restored", "batch"):
        await recorder.keep(workflow_id)
    await recorder.keep("hand-over", "hand-over-first-run", first=True)
    await recorder.keep("batch/shard-0")
    await recorder.keep("batch/shard-0/000000-answer_0")
    await recorder.keep(names.pool_manager_id(site.settings.deployment, "py"), "pool-manager")


async def record_batch_by_url(recorder: Recorder, site: Site, folder: Path) -> None:
    """A batch whose tasks and results lie in a folder."""
    (folder / "tasks.jsonl").write_text(task(0).model_dump_json())
    batch = RolloutBatchInput(
        batch_id="u",
        profile="py",
        caller="c",
        policy=POLICY,
        policy_task_queue="p",
        tasks_url=f"file://{folder}/tasks.jsonl",
        results_url=f"file://{folder}/results",
        task_queue=site.queue,
    )
    async with Worker(site.client, task_queue="p", activities=[two_tries]):
        await site.client.execute_workflow(RolloutBatch.run, batch, id="batch-by-url", task_queue=site.queue)
    await recorder.keep("batch-by-url")
    await recorder.keep("batch-by-url/shard-0")
    await recorder.keep("batch-by-url/shard-0/000000-answer_0")


async def record_calls(recorder: Recorder, site: Site, folder: Path) -> None:
    """Each kind of call that a sandbox has: files, processes and their output, shells, ports, bindings, checkpoints,
    tools, groups."""
    client, queue, flows = site.client, site.queue, f"{site.queue}-flows"
    await client.execute_workflow(Pause.run, site.plan(), id="small-files", task_queue=queue)
    for flow, kept in ((Background, "processes"), (Talking, "shell"), (Serving, "port")):
        await client.execute_workflow(flow.run, site.plan(), id=kept, task_queue=queue)
    (folder / "in").write_text("moved")
    steps = (
        FileStep(do="upload", url=f"file://{folder}/in", path="d/in"),
        FileStep(do="run", command=Command(shell="seq 100000; cat d/in", output_limit=1024)),
        FileStep(do="output", url=f"file://{folder}/output"),
        FileStep(do="download", path="d/in", url=f"file://{folder}/out"),
        FileStep(do="list", path="d"),
        FileStep(do="remove", path="d"),
    )
    files = FilePlan(profile="py", task_queue=queue, steps=steps)
    await client.execute_workflow(MoveFiles.run, files, id="files", task_queue=queue)
    plan = BoundPlan(profile="py", task_queue=queue, command="cat a; echo ${#K}", binding=binding(folder))
    await client.execute_workflow(BoundHandOver.run, plan, id="binding", task_queue=flows)
    saved = await client.execute_workflow(
        RunAndSave.run,
        CheckpointPlan(profile="py", task_queue=queue, command="echo a > a"),
        id="checkpoint",
        task_queue=flows,
    )
    again = CheckpointPlan(profile="py", task_queue=queue, command="cat a", from_=saved.checkpoint)
    await client.execute_workflow(RunAndSave.run, again, id="restore", task_queue=flows)
    await client.execute_workflow(TwoCurrent.run, site.plan(), id="tools", task_queue=flows)
    await client.execute_workflow(Texts.run, site.plan(), id="tools-astray", task_queue=flows)
    await client.execute_workflow(SaveAll.run, site.group_plan(size=2), id="groups-saved", task_queue=queue)
    for kept in ("small-files", "processes", "shell", "port", "files"):
        await recorder.keep(kept)
    for kept in ("checkpoint", "restore", "tools", "tools-astray", "groups-saved"):
        await recorder.keep(kept)
    await recorder.keep("binding")
    await recorder.keep("binding", "binding-first-run", first=True)
    await record_session(recorder, site, saved.checkpoint)


async def record_session(recorder: Recorder, site: Site, checkpoint: Checkpoint) -> None:
    """A session of a program outside, over a continue-as-new; its output is followed and its processes are used."""
    given = SessionInput(profile="py", caller="c", task_queue=site.queue, max_updates=9, checkpoint=checkpoint)
    async with RemoteSandbox(site.client, "session", given) as sandbox:
        await sandbox.claim()
        command = await sandbox.start("echo here; cat a; sleep 0.5; exit 3")
        async for _ in command.stream():
            pass
        await command.result()
        running = await sandbox.start("sleep 60")
        await running.poll()
        await running.kill()
        await sandbox.write_file("b", "b")
        await sandbox.read_file("b")
        for _ in range(6):
            await sandbox.run("true")
    await recorder.keep("session")
    await recorder.keep("session", "session-first-run", first=True)


async def record_ladder(recorder: Recorder, site: Site) -> None:
    """A standby pod that is promoted, the caller's own whose image is swapped, and a pool whose budget goes to zero."""
    client, queue = site.client, site.queue

    async def stands_by() -> bool:
        return (await site.index.counts()).by_state.get(PodState.STANDBY, 0) == 1

    async def empty() -> bool:
        return sum((await site.index.counts()).by_state.values()) == 0

    await wait_until(stands_by)
    plan = site.group_plan(caller="ann")
    await client.execute_workflow(OneOfAnImage.run, plan, id="promoted", task_queue=queue)
    swapped = plan.model_copy(update={"image": "red"})
    await client.execute_workflow(OneOfAnImage.run, swapped, id="swapped", task_queue=queue)
    manager = names.pool_manager_id(site.settings.deployment, "ladder")
    await client.get_workflow_handle(manager).signal(names.DRAIN)
    await wait_until(empty)
    await recorder.keep("promoted")
    await recorder.keep("swapped")
    await recorder.keep(manager, "pool-manager-drained")


async def record_peers(recorder: Recorder, site: Site) -> None:
    """Gangs whose members reach each other."""
    plan = GroupPlan(profile="peers", task_queue=site.queue, command="127.0.0.1:9")
    await site.client.execute_workflow(Apart.run, plan, id="gangs-with-peers", task_queue=site.queue)
    await recorder.keep("gangs-with-peers")


def binding(folder: Path) -> Binding:
    """Code and a secret; packages would need an index."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        info = tarfile.TarInfo("a")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"code"))
    (folder / "code.tar").write_bytes(data.getvalue())
    bundle = {"url": f"file://{folder}/code.tar", "sha256": hashlib.sha256(data.getvalue()).hexdigest()}
    os.environ["RECORDED_KEY"] = "not a secret"
    return Binding.model_validate({"bundle": bundle, "secrets": {"K": "env:RECORDED_KEY"}})


async def record(version: str) -> None:
    """Run each workflow once on real servers and keep what happened."""
    with tempfile.TemporaryDirectory() as data, tempfile.TemporaryDirectory() as other:
        options = StackOptions(Path(data), ephemeral=True, profiles=(PROFILE,), workers=0)
        async with EmbeddedStack(options) as stack:
            settings = site_settings(stack, allowed_urls=(f"file://{other}",), secret_env_prefix="RECORDED_")
            async with running_site(stack, settings) as site:
                recorder = Recorder(version, site.client)
                flows = [*BINDING_FLOWS, *CHECKPOINT_FLOWS, *TOOL_FLOWS]
                async with Worker(site.client, task_queue=f"{site.queue}-flows", workflows=flows):
                    await record_main_path(recorder, site)
                    await record_batch_by_url(recorder, site, Path(other))
                    await record_calls(recorder, site, Path(other))
            async with running_site(stack, site_settings(stack, PEERS)) as site:
                await record_peers(recorder, site)
            red = make_image(Path(other) / "red", "red")
            ladder = Profile(name="ladder", min_warm=0, standby=1, max_pods=3, images={"red": str(red)})
            async with running_site(stack, site_settings(stack, ladder)) as site:
                await record_ladder(recorder, site)


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)
