"""Files of any size between sandboxes and the outside, in workflow code, by URLs that the worker allows."""

import filecmp
import hashlib
import os
import random
import tarfile
import uuid
from pathlib import Path
from typing import Any, cast

import pytest
from fixtures.pieces import tree
from fixtures.processes import command_line, descendants, memory, reset_peak
from fixtures.stack import Site, running_site, site_settings
from fixtures.worker import worker_process
from scenarios.files import FILE_FLOWS, FilePlan, FilesSeen, FileStep, MoveFiles
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from emberpool.pool.model.command import Command
from emberpool.pool.model.profile import Limits, Profile
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.stack.embedded import EmbeddedStack

MIB = 1024 * 1024


def make_file(path: Path, mib: int) -> None:
    """A file of that size."""
    piece = random.Random(3).randbytes(MIB)
    with path.open("wb") as file:
        for _ in range(mib):
            file.write(piece)


def make_tree(root: Path) -> Path:
    """A folder with one of everything."""
    (root / "sub/empty").mkdir(parents=True)
    (root / "a b $(id)\n*").write_bytes(random.Random(1).randbytes(3 * MIB))
    (root / "sub/run.sh").write_text("#!/bin/sh\necho ran\n")
    (root / "sub/run.sh").chmod(0o755)
    (root / "link").symlink_to("sub/run.sh")
    (root / "dangling").symlink_to("gone")
    Path(os.fsdecode(os.fsencode(root) + b"/odd-\xff")).write_bytes(b"odd")
    return root


async def move(site: Site, *steps: FileStep) -> FilesSeen:
    """Run the steps on one sandbox."""
    return await site.client.execute_workflow(
        MoveFiles.run, plan(site, *steps), id=f"files-{uuid.uuid4().hex[:8]}", task_queue=site.queue
    )


def plan(site: Site, *steps: FileStep) -> FilePlan:
    return FilePlan(profile="py", task_queue=site.queue, steps=steps)


async def refused(site: Site, *steps: FileStep) -> ApplicationError:
    """The typed error that the steps end with."""
    with pytest.raises(WorkflowFailureError) as caught:
        await move(site, *steps)
    cause = caught.value.cause
    assert isinstance(cause, ApplicationError)
    return cause


def run(shell: str, **fields: Any) -> FileStep:
    return FileStep(do="run", command=Command(shell=shell, **fields))


async def test_files_and_folders_go_both_ways(site: Site, tmp_path: Path) -> None:
    """A file with its mode, a tree with its links and odd names, both back as they were; then listed and removed."""
    source = make_tree(tmp_path / "source")
    seen = await move(
        site,
        FileStep(do="upload", url=f"file://{source}", path="tree"),
        FileStep(do="upload", url=f"file://{source}/sub/run.sh", path="bin/run"),
        run("bin/run; tree/link; ls tree | wc -l"),
        FileStep(do="download", path="tree", url=f"file://{tmp_path}/new/target"),
        FileStep(do="download", path="tree", url=f"file://{tmp_path}/tree.tar"),
        FileStep(do="download", path="bin/run", url=f"file://{tmp_path}/run"),
        FileStep(do="upload", url=f"file://{tmp_path}/tree.tar", path="again", unpack=True),
        FileStep(do="remove", path="tree/odd-\udcff"),
        FileStep(do="remove", path="bin"),
        FileStep(do="list", path="tree"),
    )
    assert seen.results[0].stdout == b"ran\nran\n6\n"
    assert list(tree(tmp_path / "new/target")) == list(tree(source))
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755
    with tarfile.open(tmp_path / "tree.tar") as archive:
        assert len(archive.getnames()) == seen.moved[0].entries == seen.moved[-1].entries == 7
    assert [(one.name, one.kind, one.target) for one in seen.entries] == [
        ("a b $(id)\n*", "file", ""),
        ("dangling", "link", "gone"),
        ("link", "link", "sub/run.sh"),
        ("sub", "folder", ""),
    ]
    assert not [name for name, _ in tree(tmp_path) if ".emberpool-" in name]


async def test_an_object_store_takes_archives(stack: EmbeddedStack, tmp_path: Path) -> None:
    """Where links and modes cannot be kept, a folder is one archive; a prefix of objects arrives as a folder."""
    import fsspec  # its in-memory store stands for any that is no file system

    store = cast(Any, fsspec).filesystem("memory")
    store.pipe_file("/bucket/in/a.txt", b"a")
    store.pipe_file("/bucket/in/b/c.txt", b"c")
    settings = site_settings(stack, blob_url="memory://bucket", allowed_urls=())
    async with running_site(stack, settings) as site:
        seen = await move(
            site,
            FileStep(do="upload", url="memory://bucket/in", path="in"),
            run("cat in/a.txt in/b/c.txt; ln -s a.txt in/l"),
            FileStep(do="download", path="in", url="memory://bucket/out/in.tar"),
            FileStep(do="upload", url="memory://bucket/out/in.tar", path="back", unpack=True),
            run("cat back/l"),
        )
        assert [one.stdout for one in seen.results] == [b"ac", b"a"]
        error = await refused(site, run("mkdir d"), FileStep(do="download", path="d", url="memory://bucket/out"))
        assert error.type == "InvalidInput" and ".tar" in error.message
        gone = await refused(site, FileStep(do="download", path="gone", url="memory://bucket/out/gone"))
        assert gone.type == "SandboxFileError" and not store.exists("/bucket/out/gone")
    store.rm("/bucket", recursive=True)


async def test_a_workers_own_files_are_not_for_workflows(site: Site, tmp_path: Path) -> None:
    """A workflow that names a file of the worker, directly, by a link or through another URL, is refused before a pod
    is claimed."""
    (tmp_path / "link").symlink_to("/etc")
    for url in (
        "file:///etc/passwd",
        "/etc/passwd",
        f"file://{tmp_path}/../../../etc/passwd",
        f"file://{tmp_path}/link/passwd",
        f"simplecache::file://{tmp_path}/x",
        "local:///etc/passwd",
        "http://127.0.0.1/x",
    ):
        for do in ("upload", "download"):
            error = await refused(site, FileStep.model_validate({"do": do, "url": url, "path": "x"}))
            assert error.type == "InvalidInput", url
    assert "EMBERPOOL_ALLOWED_URLS" in error.message
    counts = await site.index.counts()
    assert counts.leases == 0


async def test_what_a_job_printed_is_fetched_whole(site: Site, tmp_path: Path) -> None:
    """Past its output limit a command's output is cut in the result, and whole at a URL."""
    seen = await move(
        site,
        run("seq 1 300000", output_limit=1000),
        FileStep(do="output", url=f"file://{tmp_path}/out.txt"),
    )
    result = seen.results[0]
    assert result.truncated and result.stdout_spilled == result.stdout_bytes
    assert (tmp_path / "out.txt").read_bytes() == b"".join(b"%d\n" % number for number in range(1, 300001))


async def test_stdin_of_any_size_is_a_file(site: Site, tmp_path: Path) -> None:
    """45 MiB of stdin arrive exactly (UKGovernmentBEIS/inspect_k8s_sandbox#244); given inline they are refused
    before anything starts, with the way that works."""
    data = random.Random(2).randbytes(45 * MIB)
    (tmp_path / "stdin").write_bytes(data)
    command = Command(argv=("sha256sum",), stdin_path="in/stdin")
    seen = await move(
        site,
        FileStep(do="upload", url=f"file://{tmp_path}/stdin", path="in/stdin"),
        FileStep(do="run", command=command),
    )
    assert seen.results[0].text.split() == [hashlib.sha256(data).hexdigest(), "-"]
    with pytest.raises(ValueError, match="1048576 bytes: upload it as a file, and name that as stdin_path"):
        Command(argv=("sha256sum",), stdin=data)


SIZE_MIB = int(os.environ.get("TRANSFER_MIB", "96"))
"""`make transfers` moves 1,024."""
GROWTH = min(100, SIZE_MIB // 3) * MIB
"""Bytes that a process may take more meanwhile: well under what it moves."""
BIG = Profile(name="py", min_warm=1, max_pods=2, limits=Limits(file_mb=SIZE_MIB))


async def test_worker_and_pod_stay_small(stack: EmbeddedStack, tmp_path: Path) -> None:
    """A large file each way costs a worker of its own, and emberd, less than 100 MiB each and less than a third of
    the file, and arrives exactly."""
    make_file(tmp_path / "big", SIZE_MIB)
    settings = site_settings(stack, BIG)
    steps = (
        FileStep(do="upload", url=f"file://{tmp_path}/big", path="big"),
        FileStep(do="download", path="big", url=f"file://{tmp_path}/back"),
    )
    client = await Client.connect(stack.temporal_address, plugins=[EmberpoolPlugin()])
    flows = f"flows-{uuid.uuid4().hex[:8]}"
    async with (
        Worker(client, task_queue=flows, workflows=FILE_FLOWS),
        worker_process(settings, stack, tmp_path, "worker") as worker,
    ):

        async def move_all(*steps: FileStep) -> FilesSeen:
            given = FilePlan(profile="py", task_queue=settings.task_queue, steps=steps)
            return await client.execute_workflow(
                MoveFiles.run, given, id=f"big-{uuid.uuid4().hex[:8]}", task_queue=flows
            )

        await move_all(run("true"))
        supervisor = stack.pids()["supervisor of local pods"]
        watched = {worker.pid, *descendants(supervisor)}
        emberds = [pid for pid in watched if "emberd/main.py" in command_line(pid)]
        before = {pid: memory(pid, "VmRSS") for pid in watched if reset_peak(pid)}
        seen = await move_all(*steps)
        grown = {pid: memory(pid, "VmHWM") - was for pid, was in before.items()}
    assert [one.bytes for one in seen.moved] == [SIZE_MIB * MIB] * 2
    assert filecmp.cmp(tmp_path / "big", tmp_path / "back", shallow=False)
    assert before.keys() >= {worker.pid, *emberds} and emberds, (watched, before)
    told = {
        name: max(grown[pid] for pid in pids) // MIB for name, pids in (("worker", [worker.pid]), ("emberd", emberds))
    }
    print(f"{SIZE_MIB} MiB each way, MiB grown: {told}")
    assert max(grown.values()) < GROWTH, grown
    await client.get_workflow_handle(f"emberpool-pool/{settings.deployment}/py").terminate("the test is over")
