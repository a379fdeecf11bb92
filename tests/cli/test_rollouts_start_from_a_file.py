"""`emberpool rollout`: a file of tasks in, counts out; a rollout without a reward is a failure of the command."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from fixtures.command_line import EMBERPOOL, clean_env, emberpool
from fixtures.stack import Site
from scenarios.policies import POLICY, task, two_tries
from temporalio.worker import Worker


async def rollout(site: Site, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`emberpool rollout` of three tasks, the second of which cannot be solved."""
    (folder / "tasks.jsonl").write_text(
        "".join(f"{task(n, 42 if n != 1 else 7).model_dump_json()}\n" for n in range(3))
    )
    where = {"TEMPORAL_ADDRESS": site.client.service_client.config.target_host, "EMBERPOOL_TASK_QUEUE": site.queue}
    argv = [*EMBERPOOL, "rollout", "tasks.jsonl", "--policy", POLICY, "--results", "out", *arguments]
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=folder, env=clean_env(where), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 90.0)
    return subprocess.CompletedProcess(argv, process.returncode or 0, out.decode(), err.decode())


async def test_a_batch_runs_and_is_counted(site: Site, tmp_path: Path) -> None:
    """Exit status 0 when each rollout has a reward, be it 0; the counts as a table and as JSON; one file each."""
    queue = f"{site.queue}-policy"
    async with Worker(site.client, task_queue=queue, activities=[two_tries]):
        done = await rollout(site, tmp_path, "--profile", "py", "--policy-queue", queue, "--rollouts-per-task", "2")
        assert done.returncode == 0, done.stderr
        assert "solved 4, failed 2" in done.stdout and "4 of 6 rewarded" in done.stdout and "\x1b" not in done.stdout
        assert len(list((tmp_path / "out").glob("*.json"))) == 6
        again = await rollout(site, tmp_path, "--profile", "py", "--policy-queue", queue, "--json")
    counts = json.loads(again.stdout)
    assert (again.returncode, counts["rollouts"], counts["rewarded"], counts["reward_sum"]) == (0, 3, 3, 2.0)


async def test_rollouts_without_a_reward_are_a_failure(site: Site, tmp_path: Path) -> None:
    """No pool of that profile: every rollout is infra, the command says so and ends with 1."""
    done = await rollout(site, tmp_path, "--profile", "missing")
    assert done.returncode == 1 and "infra 3" in done.stdout and "0 of 0 rewarded" in done.stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"id": "a"}\n', "tasks.jsonl line 1, verifier: Field required"),
        (task(0).model_dump_json() + '\n\n{"id": ""}', "tasks.jsonl line 3, id: "),
        ("not json", "tasks.jsonl line 1, the line: Invalid JSON"),
        ("", "tasks.jsonl holds no task"),
        (None, "tasks.jsonl cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_line_is_named_before_anything_starts(text: str | None, told: str, tmp_path: Path) -> None:
    """Line and field, without a server."""
    if text is not None:
        (tmp_path / "tasks.jsonl").write_text(text)
    done = emberpool("rollout", "tasks.jsonl", "--policy", "p", cwd=tmp_path)
    assert done.returncode == 1 and told in done.stderr, done.stderr
