"""What rooms promise holds with emberd on the oldest Python that it promises and on the newest one that is here."""

import hashlib
import io
import secrets
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from fixtures.emberd import EmberdProcess, Lease, Starter, new_id, newest_pythons, oldest_pythons, open_lease, reset
from fixtures.processes import command_line, descendants, wait_until

from emberpool.pool.client.checkpoints import restore_checkpoint, save_checkpoint
from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.client.layers import place_layer, send_layer
from emberpool.pool.client.shells import open_shell, run_in_shell
from emberpool.pool.layers.store import Layer
from emberpool.pool.model.command import Outcome
from emberpool.pool.model.errors import SandboxFileError
from emberpool.pool.model.recycle import RecycleTier


@pytest.fixture(scope="module", params=[oldest_pythons, newest_pythons], ids=["3.8", "newest"])
def pod(request: pytest.FixtureRequest, emberds: Starter) -> EmberdProcess:
    """One pod with rooms per version."""
    found: list[str] = request.param()
    if not found:
        pytest.skip("no Python 3.8 here: EMBERD_PYTHONS can name one")
    started, program = emberds.start("namespaces", python=found[0]), Path(found[0]).resolve().name
    running = [Path(command_line(pid).split()[0]).name for pid in descendants(started.process.pid)]
    assert program in running, running
    return started


@pytest_asyncio.fixture
async def lease(pod: EmberdProcess, emberd_client: EmberdClient) -> AsyncIterator[Lease]:
    """A lease of its own, whose reset must be attested."""
    opened = open_lease(pod, emberd_client)
    yield opened
    await reset(opened)


async def test_a_command_has_what_it_was_given(lease: Lease) -> None:
    """Standard input, variables and folder; its streams and its exit status are told apart."""
    await lease.sh("mkdir -p /work/é")
    done = await lease.sh("cat; pwd; echo $A-$EMBER_BASE; echo bad >&2; exit 3", stdin=b"in\n", env={"A": "ü"}, cwd="é")
    assert (done.stdout, done.stderr, done.exit_code) == ("in\n/work/é\nü-base\n".encode(), b"bad\n", 3)


async def test_a_command_that_cannot_start_says_so(lease: Lease) -> None:
    """As a shell would."""
    done = await lease.run("/no/such/program")
    assert done.exit_code == 127 and "/no/such/program" in done.error_text


async def test_files_go_up_and_down(lease: Lease) -> None:
    """Bytes, mode and odd names are kept; what is not there is told."""
    data = secrets.token_bytes(300_000)
    await lease.write("deep/é/f", data, 0o600)
    assert await lease.read("deep/é/f") == data
    assert (await lease.sh("stat -c '%a %s' deep/é/f")).text == "600 300000\n"
    with pytest.raises(SandboxFileError, match="not_found"):
        await lease.read("nothing")


async def test_a_shell_keeps_its_state(lease: Lease) -> None:
    """Folder and variables, from text to text."""
    name = secrets.token_hex(4)
    await open_shell(lease.client, lease.pod, lease.proof, name, program="/bin/sh")
    for text, said in (("cd /tmp; A=kept", b""), ("pwd; echo $A", b"/tmp\nkept\n")):
        told = await run_in_shell(
            lease.client, lease.pod, lease.proof, name, new_id(), text, time_limit_s=10.0, output_limit=65536
        )
        assert (told.stdout, told.exit_code) == (said, 0)


async def test_a_checkpoint_is_restored(lease: Lease) -> None:
    """What one lease changed and saved is in the next one once it is put back, and not before."""
    assert (await lease.sh("mkdir d; echo kept > d/f; chmod 640 d/f; ln -s f d/link")).ok
    async with save_checkpoint(lease.client.transfers, lease.pod, lease.proof, "") as incoming:
        data = b"".join([piece async for piece in incoming.pieces])
    await reset(lease)
    following = open_lease(lease.emberd, lease.client)
    assert (await following.sh("ls -A")).stdout == b""

    async def pieces() -> AsyncGenerator[bytes]:
        yield data

    await restore_checkpoint(following.client.transfers, following.pod, following.proof, "", pieces())
    assert (await following.sh("cat d/link; stat -c %a d/f")).text == "kept\n640\n"


async def test_a_layer_is_seen_and_placed(lease: Lease, tmp_path: Path) -> None:
    """Read-only where all rooms see it, and a copy of the job's own where it is placed."""
    path, content = tmp_path / "layer.tar.gz", b"of a layer\n"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("f")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    layer = Layer(path, hashlib.sha256(path.read_bytes()).hexdigest())
    seen = await send_layer(lease.client, lease.pod, lease.proof, layer, "bundle.url")
    assert (await lease.sh(f"cat {seen}/f; echo x > {seen}/f")).stdout == content
    await place_layer(lease.client, lease.pod, lease.proof, layer, ".")
    assert (await lease.sh("echo mine >> f; cat f")).stdout == content + b"mine\n"


async def test_a_time_limit_ends_the_whole_tree(lease: Lease) -> None:
    """What left its session too."""
    done = await lease.sh("setsid sleep 4783 & sleep 4783", time_limit_s=0.3)
    assert done.outcome is Outcome.TIMED_OUT
    wait_until(lambda: not sleepers(lease.emberd))


async def test_too_much_memory_ends_the_command(lease: Lease) -> None:
    """And no more than that: the lease goes on."""
    done = await lease.run("python3", "-c", "kept = []\nwhile True: kept.append(bytearray(16 << 20))")
    assert done.outcome is Outcome.OOM_KILLED
    assert (await lease.sh("echo on")).text == "on\n"


async def test_a_reset_leaves_nothing(lease: Lease) -> None:
    """Processes, files, shared memory and listeners of one lease: every check holds, and the next one sees none."""
    assert (await lease.sh("(setsid sleep 4783 >/dev/null 2>&1 &); touch f $HOME/g /tmp/h /dev/shm/i; ipcmk -M 64")).ok
    lease.emberd.epoch += 1
    await lease.client.fence(lease.pod, lease.emberd.epoch)
    attestation = await lease.client.recycle(lease.pod, lease.emberd.epoch)
    assert attestation.holds and attestation.tier is RecycleTier.ROOM
    assert {"processes", "listeners", "scratch", "shared_memory", "mounts"} <= set(attestation.checks)
    following = open_lease(lease.emberd, lease.client)
    seen = await following.sh("ls -A . $HOME /tmp /dev/shm | grep -v : | tr -d '\\n'; ipcs -m | grep -c 0x")
    assert seen.text == "0\n"
    assert not sleepers(lease.emberd)


def sleepers(pod: EmberdProcess) -> list[int]:
    """What is left of the jobs above."""
    return [pid for pid in descendants(pod.process.pid) if command_line(pid).startswith("sleep 4783")]
