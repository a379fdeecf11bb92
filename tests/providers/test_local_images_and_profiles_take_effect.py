"""A profile's images, warm-up, limits and isolation reach the pod, and what cannot be had is refused by name."""

from pathlib import Path

import pytest
from fixtures.images import make_image
from fixtures.local import Jobs, MakeProvider, SupervisorProcess, new_name, new_pod
from fixtures.processes import gone

from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.ids import PodName
from emberpool.pool.model.pod import Phase
from emberpool.pool.providers.local.uids import uid_range


@pytest.fixture
def image(supervisor: SupervisorProcess) -> Path:
    """A root folder with a shell, `cat`, their libraries and a file of its own."""
    root = supervisor.root / "image"
    if root.exists():
        return root
    make_image(root, "of the image")
    (root / "private").mkdir(mode=0o700)
    (root / "private" / "key").write_text("of root\n")
    (root / "private" / "key").chmod(0o600)
    return root


async def test_an_image_is_the_jobs_root(local_provider: MakeProvider, job: Jobs, image: Path) -> None:
    """A job sees the image's files and not the host's, owns them, and what it changes stays in its room."""
    provider = local_provider(images={"tiny": str(image)})
    name = new_name()
    await provider.create(name, "tiny")
    facts = await provider.wait_ready(name, 30)
    assert (facts.phase, facts.image) == (Phase.READY, "tiny"), facts
    assert await job(provider, name, "cat /marker; echo changed > /marker; cat /marker") == "of the image\nchanged\n"
    assert await job(provider, name, "echo new > /bin/new; cat /bin/new; cat /private/key") == "new\nof root\n"
    assert (image / "marker").read_text() == "of the image\n"
    assert not (image / "bin" / "new").exists()
    assert "not found" in await job(provider, name, "python3", check=False)


async def test_an_image_folder_that_is_missing_is_refused(local_provider: MakeProvider) -> None:
    """The profile names the image, the machine does not have it: InvalidInput, not a pod that fails later."""
    provider = local_provider(images={"tiny": "/no/such/folder"})
    with pytest.raises(InvalidInput, match="/no/such/folder"):
        await provider.create(new_name(), "tiny")


async def test_the_hosts_own_root_is_no_image(local_provider: MakeProvider) -> None:
    """A job owns its image's files, so that `/` would give the host away."""
    provider = local_provider(images={"host": "/usr/.."})
    with pytest.raises(InvalidInput, match="host's own files"):
        await provider.create(new_name(), "host")


async def test_plain_pods_have_the_base_image_only(local_provider: MakeProvider, image: Path) -> None:
    """Without isolation there is no root to change."""
    provider = local_provider(images={"tiny": str(image)}, isolation="plain")
    with pytest.raises(InvalidInput, match="plain"):
        await provider.create(new_name(), "tiny")


async def test_a_name_that_is_no_label_is_refused(local_provider: MakeProvider) -> None:
    """A name becomes a folder and a host name, and is never a way out of the folder."""
    for name in ("..", "a/b", "A", "x" * 64, ""):
        with pytest.raises(InvalidInput):
            await local_provider().create(PodName(name), "")


async def test_a_warm_up_that_fails_is_a_failed_pod(
    local_provider: MakeProvider, supervisor: SupervisorProcess
) -> None:
    """The reason is `warm_up`, and the log keeps what it said."""
    provider = local_provider(warm_up=("sh", "-c", "echo no-such-model >&2; exit 7"))
    name = new_name()
    await provider.create(name, "")
    facts = await provider.wait_ready(name, 30)
    assert facts.phase is Phase.FAILED
    assert facts.reason.split(":")[0] == "warm_up"


async def test_limits_reach_the_job(local_provider: MakeProvider, job: Jobs) -> None:
    """`open_files` of the profile is the job's own limit."""
    provider = local_provider(limits={"open_files": 77})
    assert await job(provider, await new_pod(provider), "ulimit -n") == "77\n"


async def test_a_plain_pod_is_announced_loudly(
    local_provider: MakeProvider, job: Jobs, supervisor: SupervisorProcess
) -> None:
    """The supervisor's log says what is not isolated; started by root, the job is at least not root."""
    provider = local_provider(isolation="plain")
    name = await new_pod(provider)
    line = next(line for line in supervisor.text.splitlines() if f"pod {name} " in line)
    assert "WARNING" in line and "NOT ISOLATED" in line and "network" in line
    uid = int(await job(provider, name, "id -u"))
    assert uid in uid_range() if uid_range() else uid != 0


async def test_jobs_of_a_plain_pod_go_with_it(local_provider: MakeProvider, job: Jobs) -> None:
    """Deleting a plain pod ends its background jobs too, also one in a session of its own."""
    provider = local_provider(isolation="plain")
    name = await new_pod(provider)
    pid = int(await job(provider, name, "setsid sleep 333 >/dev/null 2>&1 & echo $!"))
    assert not gone(pid)
    await provider.delete(name)
    assert gone(pid)
