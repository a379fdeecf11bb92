"""`emberpool run`: the command's output and exit status, and codes of its own where there is none."""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio
from fixtures.command_line import EMBERPOOL, clean_env
from fixtures.processes import runs
from fixtures.stack import Site, running_site, site_settings
from fixtures.waiting import wait_until

from emberpool.worker.stack.embedded import EmbeddedStack

Done = subprocess.CompletedProcess[bytes]


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(stack: EmbeddedStack) -> AsyncGenerator[Site]:
    """One for all tests here, each of which has leases of its own."""
    async with running_site(stack, site_settings(stack)) as running:
        yield running


async def run(site: Site, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Done:
    """`emberpool run` on the site's pool; beside the event loop, since the worker runs on it."""
    address = site.client.service_client.config.target_host
    where = {"EMBERPOOL_TASK_QUEUE": site.queue, **(env or {"TEMPORAL_ADDRESS": address})}
    argv = [*EMBERPOOL, "run", "--profile", "py", *arguments]
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=clean_env(where),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(stdin), 60.0)
    return subprocess.CompletedProcess(argv, process.returncode or 0, out, err)


async def test_output_and_status_are_the_commands(site: Site) -> None:
    """Both streams as bytes, the exit status, and nothing beside them."""
    done = await run(site, "--shell", "--", r"printf '\377\n'; echo bad >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"\xff\n", b"bad\n")


async def test_output_comes_while_it_runs(site: Site) -> None:
    """Both streams are passed on byte for byte before the end, and more than is kept at once is not cut.

    Ctrl-C then kills the command.
    """
    address = site.client.service_client.config.target_host
    env = clean_env({"EMBERPOOL_TASK_QUEUE": site.queue, "TEMPORAL_ADDRESS": address})
    text = r"printf '\377one\n'; echo two >&2; sleep 4611"
    argv = [*EMBERPOOL, "run", "--profile", "py", "--shell", "--", text]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, env=env, stdout=pipe, stderr=pipe)
    assert process.stdout is not None and process.stderr is not None
    async with asyncio.timeout(30):
        assert await process.stdout.readline() == b"\xffone\n"
        assert await process.stderr.readline() == b"two\n"
        assert runs("sleep 4611")
        process.send_signal(signal.SIGINT)
        await process.wait()

    async def killed() -> bool:
        return not runs("sleep 4611")

    await wait_until(killed)


async def test_files_environment_and_stdin_go_in(site: Site, tmp_path: Path) -> None:
    """A file with its name and mode, a variable, and standard input, all as given."""
    script = tmp_path / "say.sh"
    script.write_text("#!/bin/sh\necho $WORD; cat\n")
    script.chmod(0o755)
    options = ("--file", f"{script}:bin/say", "--env", "WORD=a=b", "--stdin")
    done = await run(site, *options, "--", "bin/say", stdin=b"in\n")
    assert (done.returncode, done.stdout) == (0, b"a=b\nin\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "status", "told"),
    [
        (("--time-limit", "0.3", "--", "sleep", "9"), 124, "timed_out", b"time limit of 0.3 s"),
        (("--shell", "--", "kill -KILL $$"), 137, "signaled", b"signal 9"),
        (("--shell", "--", "exit 125"), 125, "exited", b""),
        (("--profile", "nope", "--", "true"), 125, "not_run", b"'nope' is not served"),
        (("--task-queue", "nobody-polls", "--", "true"), 125, "not_run", b"no worker polls 'nobody-polls'"),
        (("--address", "127.0.0.1:1", "--", "true"), 125, "not_run", b"Temporal cannot be reached"),
        (("--env", "odd", "--", "true"), 125, "not_run", b"--env"),
    ],
)
async def test_no_result_is_told_from_a_bad_one(
    site: Site, arguments: tuple[str, ...], code: int, status: str, told: bytes
) -> None:
    """A sandbox that could not be had is 125, and the JSON status tells it from a command that ended with 125 itself.

    See docker/sbx-releases#504.
    """
    plain = await run(site, *arguments)
    assert plain.returncode == code and told in plain.stderr and b"\x1b" not in plain.stderr
    assert b"Traceback" not in plain.stderr
    told_json = await run(site, "--json", *arguments)
    assert told_json.returncode == code
    assert json.loads(told_json.stdout)["status"] == status


async def test_temporals_own_profiles_are_used(site: Site, tmp_path: Path) -> None:
    """A profile of Temporal's configuration file says where the server is; one that is missing is named."""
    address = site.client.service_client.config.target_host
    config = tmp_path / "temporal.toml"
    config.write_text(f'[profile.here]\naddress = "{address}"\nnamespace = "default"\n')
    env = {"TEMPORAL_CONFIG_FILE": str(config)}
    done = await run(site, "--temporal-profile", "here", "--", "echo", "there", env=env)
    assert (done.returncode, done.stdout) == (0, b"there\n"), done.stderr
    missing = await run(site, "--temporal-profile", "gone", "--", "true", env=env)
    assert missing.returncode == 125 and b"gone" in missing.stderr


async def test_folders_and_large_input_go_in_and_results_come_out(site: Site, tmp_path: Path) -> None:
    """A folder in, standard input of more than a payload, a folder out although the command failed; its exit status
    stays. A download that cannot be had is 125 only where the command went well."""
    (tmp_path / "src/sub").mkdir(parents=True)
    (tmp_path / "src/sub/a").write_text("in")
    text = "cat src/sub/a; mkdir out; wc -c > out/size; exit 3"
    options = ("--upload", str(tmp_path / "src"), "--download", f"out:{tmp_path / 'results'}", "--stdin")
    done = await run(site, *options, "--shell", "--", text, stdin=b"x" * 3_000_000)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"in", b"")
    assert (tmp_path / "results/size").read_text().strip() == "3000000"
    missing = await run(site, "--download", f"gone:{tmp_path / 'never'}", "--", "true")
    assert missing.returncode == 125 and b"gone" in missing.stderr and b"Traceback" not in missing.stderr
    await site.settled()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(("--bundle", "file:///x.tar"), b"URL@SHA256"), (("--requirements", "/no/such"), b"/no/such")],
)
async def test_a_wrong_binding_is_named(site: Site, arguments: tuple[str, ...], told: bytes) -> None:
    """What cannot be read here never starts anything."""
    done = await run(site, *arguments, "--", "true")
    assert done.returncode == 125 and told in done.stderr
