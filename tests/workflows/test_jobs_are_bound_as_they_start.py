"""A job finds its code, packages and secrets; what it is not to keep is nowhere else, and what fails, fails once."""

import asyncio
import hashlib
import io
import json
import logging
import os
import tarfile
import uuid
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from fixtures.package_index import PackageIndex, package_index
from fixtures.stack import PROFILE, Site, running_site, site_settings
from redis.asyncio import Redis
from scenarios.bindings import BINDING_FLOWS, BoundHandOver, BoundPlan, BoundSeen
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from emberpool.activities import names
from emberpool.pool.layers.bundles import bundle_maker
from emberpool.pool.layers.dependencies import Resolver
from emberpool.pool.layers.python import JobPython
from emberpool.pool.model.binding import Binding, Bundle
from emberpool.pool.model.command import CommandResult
from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.rollout import RolloutOutcome, RolloutResult
from emberpool.worker.cli.streaming import stream_to
from emberpool.worker.stack.embedded import EmbeddedStack

SECRET = "s3cr3t-" + "4f9a1c77"
GREET = "python3 -c 'import ember_greeting as g; print(g.WORD)'"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackageIndex]:
    """A package index that uv is told of as its own documentation has it."""
    with package_index(tmp_path_factory.mktemp("index")) as index, pytest.MonkeyPatch.context() as patch:
        patch.setenv("UV_DEFAULT_INDEX", index.url)
        patch.setenv("UV_CACHE_DIR", str(tmp_path_factory.mktemp("uv")))
        patch.setenv("JOB_API_KEY", SECRET)
        patch.setenv("OTHER_KEY", "not for jobs")
        yield index


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def bound(
    stack: EmbeddedStack, packages: PackageIndex, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[tuple[Site, Path]]:
    """A deployment that may open one folder, and gives jobs the secrets of one prefix and one folder."""
    folder = tmp_path_factory.mktemp("bound")
    (folder / "secrets").mkdir()
    (folder / "secrets" / "token").write_text("from a file\n")
    (folder / "layers").mkdir(mode=0o700)
    settings = site_settings(
        stack,
        PROFILE.model_copy(update={"min_warm": 0}),
        allowed_urls=(f"file://{folder}/code/", f"{packages.url}code/"),
        layer_dir=folder / "layers",
        secret_env_prefix="JOB_",
        secret_dir=folder / "secrets",
    )
    async with running_site(stack, settings) as site:
        yield site, folder


def bundle(folder: Path, **files: str) -> dict[str, str]:
    """A bundle of files at a URL that the worker may open."""
    (folder / "code").mkdir(exist_ok=True)
    path = folder / "code" / f"{uuid.uuid4().hex}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_py", ".py"))
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return {"url": f"file://{path}", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


async def tool(site: Site, shell: str, **fields: object) -> tuple[CommandResult, str]:
    """A tool call from plain JSON; its end and its workflow's id."""
    call = {"profile": "py", "caller": "c", "command": {"shell": shell}, "task_queue": site.queue, **fields}
    id_ = uuid.uuid4().hex
    result: CommandResult = await site.client.execute_workflow(
        names.TOOL_CALL, call, id=id_, task_queue=site.queue, result_type=CommandResult
    )
    return result, id_


async def refused(site: Site, **fields: object) -> tuple[str, int]:
    """What a tool call fails with, and how many attempts its preparation took."""
    call = {"profile": "py", "caller": "c", "command": {"shell": "true"}, "task_queue": site.queue, **fields}
    handle = await site.client.start_workflow(names.TOOL_CALL, call, id=uuid.uuid4().hex, task_queue=site.queue)
    with pytest.raises(WorkflowFailureError) as raised:
        await handle.result()
    assert isinstance(raised.value.cause, ApplicationError)
    events = (await handle.fetch_history()).events
    attempts = [e.activity_task_started_event_attributes.attempt for e in events if e.event_type == 11]
    return f"{raised.value.cause.type}: {raised.value.cause.message}", max(attempts[:1], default=0)


@pytest.mark.asyncio(loop_scope="module")
async def test_who_follows_a_bound_command_sees_its_output_alone(
    bound: tuple[Site, Path], packages: PackageIndex, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """What is printed as it comes is the job's, never the look for its Python before it (once per profile: the first
    test that needs packages)."""
    site, _ = bound
    assert packages.url
    call = {"profile": "py", "caller": "f", "command": {"shell": "echo mine; sleep 1; echo too"}}
    call |= {"task_queue": site.queue, "requirements": "ember-greeting<2"}
    handle = await site.client.start_workflow(
        names.TOOL_CALL, call, id=uuid.uuid4().hex, task_queue=site.queue, result_type=CommandResult
    )
    await stream_to(site.client, handle, site.queue)
    assert capfdbinary.readouterr().out == b"mine\ntoo\n"


@pytest.mark.asyncio(loop_scope="module")
async def test_code_packages_and_secrets_are_there(bound: tuple[Site, Path], packages: PackageIndex) -> None:
    """Plain JSON in; the packages import without a network, read-only; a second job of the caller gets the same pod."""
    site, folder = bound
    code = bundle(folder, pkg__main_py="print('code')")
    rest = {"requirements": "ember-greeting<2", "secrets": {"API_KEY": "env:JOB_API_KEY", "TOKEN": "file:token"}}
    shell = (
        f'python3 pkg/main.py; {GREET}; ember_words_cli; echo "$API_KEY" | wc -c; echo "$TOKEN"; echo $EMBERPOOL_SITE'
    )
    first, id_ = await tool(site, shell, bundle=code, **rest)
    said = first.text.splitlines()
    assert said[:3] == ["code", "hello from a layer", "a program of a layer"], first
    assert said[3:5] == [str(len(SECRET) + 1), "from a file"]
    assert (await tool(site, f"{GREET}; rm -rf {said[5]}; touch {said[5]}/x", bundle=code, **rest))[0].text
    again, _ = await tool(site, shell, bundle=code, **rest)
    assert again.text == first.text
    assert packages.downloads("ember_greeting-1.0") == packages.downloads("ember_words-1.5") == 1
    history = await site.client.get_workflow_handle(id_).fetch_history()
    kinds = [e.activity_task_scheduled_event_attributes.activity_type.name for e in history.events]
    assert kinds.count(names.PREPARE_JOB) >= 1 and names.BIND_JOB not in kinds


@pytest.mark.asyncio(loop_scope="module")
async def test_code_comes_from_a_web_server_too(
    bound: tuple[Site, Path], packages: PackageIndex, tmp_path: Path
) -> None:
    """A bundle at another of fsspec's file systems, fetched once; one that is not there is refused, and a server that
    is down may be back later."""
    site, _ = bound
    made = bundle(packages.folder, main_py="print('by http')")
    name = Path(made["url"]).name
    made["url"] = f"{packages.url}code/{name}"
    for _ in range(2):
        result, _ = await tool(site, "python3 main.py", bundle=made)
        assert result.text == "by http\n", result
    assert packages.asked[f"/code/{name}"] == 1, packages.asked
    error, attempts = await refused(site, bundle={**made, "url": f"{made['url']}.gone", "sha256": "0" * 64})
    assert error.startswith("InvalidInput: bundle.url: ") and attempts == 1, error
    packages.down = True
    try:
        with pytest.raises(PoolUnavailable):
            await bundle_maker(Bundle.model_validate(made))(tmp_path / "bundle")
    finally:
        packages.down = False


@pytest.mark.asyncio(loop_scope="module")
async def test_the_pod_that_has_the_layers_is_preferred(bound: tuple[Site, Path]) -> None:
    """Of two idle pods of the caller, the one whose job had the same binding is taken, not the one used last."""
    site, folder = bound
    one, other = bundle(folder, a="1"), bundle(folder, b="2")
    who, caller = "cat /proc/sys/kernel/hostname; sleep 1", uuid.uuid4().hex
    codes = (one, other)
    began = await asyncio.gather(*(tool(site, who, bundle=code, caller=caller) for code in codes))
    hosts = [result.text for result, _ in began]
    assert hosts[0] != hosts[1]
    for code, host in ((one, hosts[0]), (other, hosts[1]), (one, hosts[0])):
        await site.settled()
        assert (await tool(site, who, bundle=code, caller=caller))[0].text == host


@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_bound_outlives_its_run(bound: tuple[Site, Path], packages: PackageIndex) -> None:
    """A sandbox that is detached and adopted by the next run still has its code, packages and secrets. Once it is left,
    a job of the same caller on the same pod finds nothing of it, and a third one that is bound all of it again."""
    site, folder = bound
    assert packages.url
    binding = Binding.model_validate(
        {"bundle": bundle(folder, a="code"), "requirements": "ember-greeting<2", "secrets": {"K": "env:JOB_API_KEY"}}
    )
    shell = f'echo "$(cat a) $({GREET}) ${{#K}}"'

    async def handed_over(given: Binding) -> BoundSeen:
        plan = BoundPlan(profile="py", task_queue=site.queue, command=shell, caller="handing", binding=given)
        queue = f"bindings-{uuid.uuid4().hex[:8]}"
        async with Worker(site.client, task_queue=queue, workflows=BINDING_FLOWS):
            return await site.client.execute_workflow(BoundHandOver.run, plan, id=queue, task_queue=queue)

    whole = f"code hello from a layer {len(SECRET)}\n"
    first = await handed_over(binding)
    assert first.said == (whole, whole), first
    bare = await handed_over(Binding())
    assert bare.said == ("  0\n", "  0\n") and bare.pod == first.pod, bare
    again = await handed_over(binding)
    assert again.said == (whole, whole) and again.pod == first.pod, again


@pytest.mark.asyncio(loop_scope="module")
async def test_a_rollout_is_bound_too(bound: tuple[Site, Path]) -> None:
    """Its verifier imports the packages; without a policy worker it is not needed here, so none is asked."""
    site, folder = bound
    task = {"id": "t", "verifier": {"command": {"shell": f"{GREET} && cat data/x"}}}
    from scenarios.policies import POLICY, two_tries

    async with Worker(site.client, task_queue=f"p{site.queue}", activities=[two_tries]):
        result: RolloutResult = await site.client.execute_workflow(
            names.ROLLOUT,
            {
                "rollout_id": "r",
                "task": task,
                "profile": "py",
                "caller": "c",
                "policy": POLICY,
                "policy_task_queue": f"p{site.queue}",
                "task_queue": site.queue,
                "bundle": bundle(folder, data__x="x"),
                "requirements": "ember-greeting<2",
            },
            id=uuid.uuid4().hex,
            task_queue=site.queue,
            result_type=RolloutResult,
        )
    assert result.outcome is RolloutOutcome.SOLVED and result.source is not None, result


@pytest.mark.asyncio(loop_scope="module")
async def test_many_askers_cause_one_fetch(bound: tuple[Site, Path], packages: PackageIndex) -> None:
    """Three jobs at once ask for packages that no pod and no worker has: each wheel is fetched once."""
    site, _ = bound
    before = packages.asked["/ember-words/"]
    results = await asyncio.gather(
        *(tool(site, "python3 -c 'import ember_words'", requirements="ember-words==1.5", caller=f"c{n}") for n in "123")
    )
    assert all(result.ok for result, _ in results), results
    assert packages.asked["/ember-words/"] <= before + 1


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"requirements": "ember-greeting==2.0"}, "InvalidInput: requirements: uv: error: No solution found"),
        ({"requirements": "no-such-package-at-all"}, "InvalidInput: requirements: uv: "),
        ({"requirements": "-r /etc/passwd"}, "InvalidInput: requirements: '-r /etc/passwd'"),
        ({"secrets": {"K": "env:JOB_NOT_SET"}}, "InvalidInput: secrets.K: env:JOB_NOT_SET is not set"),
        ({"secrets": {"K": "env:OTHER_KEY"}}, "InvalidInput: secrets.K: env:OTHER_KEY: this worker gives variables"),
        ({"secrets": {"K": "file:nope"}}, "InvalidInput: secrets.K: file:nope: there is no such file"),
        ({"bundle": {"url": "file:///etc/passwd", "sha256": "0" * 64}}, "InvalidInput: bundle.url: file:///etc/passwd"),
        ({"bundle": "missing"}, "InvalidInput: bundle.url: "),
        ({"bundle": "changed"}, "InvalidInput: bundle.sha256: "),
        ({"bundle": "escapes"}, "InvalidInput: bundle.url: "),
    ],
    ids=lambda value: "" if isinstance(value, str) else json.dumps(value)[:40],
)
async def test_what_cannot_be_had_fails_once(bound: tuple[Site, Path], fields: dict[str, Any], told: str) -> None:
    """A typed error names the field, with the reason in the words of who knows it; nothing is tried again."""
    site, folder = bound
    kind = fields.get("bundle")
    if isinstance(kind, str):
        made = bundle(folder, **({"..__out": "x"} if kind == "escapes" else {"a": "a"}))
        if kind == "missing":
            made["url"] += ".gone"
        if kind == "changed":
            made["sha256"] = "0" * 64
        fields = {"bundle": made}
    error, attempts = await refused(site, **fields)
    assert error.startswith(told), error
    assert attempts == 1
    if kind == "escapes":
        assert "entry '../out'" in error


@pytest.mark.asyncio(loop_scope="module")
async def test_a_lock_is_held_to_its_hashes(bound: tuple[Site, Path], packages: PackageIndex) -> None:
    """The resolver's own lock comes back as what it was made of. With another hash for one package, whose file the
    index still has, nothing is installed: the error names the package, and the job never begins."""
    site, _ = bound
    assert packages.url
    lock = await Resolver().lock("ember-greeting<2", JobPython(version="3.11.4", machine="x86_64", libc="2.36"))
    assert lock.count("--hash=sha256:") == 2
    result, _ = await tool(site, GREET, requirements=lock)
    assert result.text == "hello from a layer\n", result
    head, digest = lock.rstrip().rsplit(":", 1)
    call = {"profile": "py", "caller": "c", "command": {"shell": "true"}, "task_queue": site.queue}
    call["requirements"] = f"{head}:{digest[::-1]}"
    handle = await site.client.start_workflow(names.TOOL_CALL, call, id=uuid.uuid4().hex, task_queue=site.queue)
    with pytest.raises(WorkflowFailureError) as raised:
        await handle.result()
    error = raised.value.cause
    assert isinstance(error, ApplicationError) and error.type == "InvalidInput", error
    assert "requirements: uv: " in error.message and "Hash mismatch for `ember-words==1.5`" in error.message
    events = (await handle.fetch_history()).events
    kinds = {event.activity_task_scheduled_event_attributes.activity_type.name for event in events}
    assert names.PREPARE_JOB in kinds and not kinds & {names.RUN_COMMAND, names.RUN_TOOL}, kinds


@pytest.mark.asyncio(loop_scope="module")
async def test_a_job_gets_the_secrets_that_it_names_and_no_more(bound: tuple[Site, Path]) -> None:
    """UKGovernmentBEIS/inspect_k8s_sandbox#214: nothing of the worker's own environment is in a job's."""
    site, _ = bound
    result, _ = await tool(site, "env", secrets={"API_KEY": "env:JOB_API_KEY"}, caller="e")
    found = {line.partition("=")[0] for line in result.text.splitlines()}
    set_by_us = {"API_KEY", "PATH", "LANG", "HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}
    assert found <= set_by_us | {"PWD", "OLDPWD", "SHLVL", "_"}, found


@pytest.mark.asyncio(loop_scope="module")
async def test_a_secret_is_nowhere_but_in_the_job(
    bound: tuple[Site, Path], stack: EmbeddedStack, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in Redis, not in a history, not in logs, not in the pods' folders, not in any file of the stack; and gone
    with the job."""
    site, folder = bound
    with caplog.at_level(logging.DEBUG):
        shell = 'test -n "$API_KEY" && cat /proc/self/environ | wc -c; sleep 0.2'
        result, id_ = await tool(site, shell, secrets={"API_KEY": "env:JOB_API_KEY"}, caller="s")
        assert result.ok
        lost, _ = await tool(site, 'echo "<$API_KEY>"', caller="s")
    assert lost.text == "<>\n"
    assert SECRET not in caplog.text
    events = (await site.client.get_workflow_handle(id_).fetch_history()).events
    history = b"".join(event.SerializeToString() for event in events)  # payloads as they are, not in base64
    assert b"env:JOB_API_KEY" in history and SECRET.encode() not in history
    async with cast(Any, Redis).from_url(site.settings.redis_url) as redis:
        await redis.config_set("rdbcompression", "no")  # a dump that is compressed would show no text
        dumped: list[bytes | None] = [await redis.dump(key) async for key in redis.scan_iter(count=1000)]
    assert dumped and not any(SECRET.encode() in (value or b"") for value in dumped)
    searched = 0
    for top in (stack.data_dir, folder):
        for path in (Path(where) / name for where, _, found in os.walk(top) for name in found):
            if path.is_file() and path.stat().st_size < 1 << 24:
                searched += 1
                assert SECRET.encode() not in path.read_bytes(), path
    assert searched > 5
