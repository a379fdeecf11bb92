"""What the test cluster needs of a machine is looked for before anything is built, and what is missing is named."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
CHECK = (sys.executable, "-P", "-m", "testcluster", "check")


def checked(*before: str, **env: str) -> tuple[int, str]:
    """Exit status and all that `testcluster check` says, started through `before`."""
    mine = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    about = {**mine, "PYTHONPATH": str(DEPLOY), "PYTHONDONTWRITEBYTECODE": "1", **env}
    done = subprocess.run([*before, *CHECK], env=about, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to do without")
def test_rights_that_are_not_had_are_named() -> None:
    """As in a container whose root may make no mount and no bridge: each is told with the kernel's own word."""
    if shutil.which("go") is None:
        pytest.skip("without Go nothing else is looked at")
    status, said = checked("setpriv", "--bounding-set=-sys_admin,-net_admin")
    assert status == 2
    for what in ("mounts: ", "overlay mounts: ", "network namespaces and bridges: "):
        assert f"error: the test cluster needs what is not had here: {what}" in said, said
    assert "permission denied" in said.lower() or "not permitted" in said.lower()


def test_a_program_that_is_not_there_is_named_with_its_package(tmp_path: Path) -> None:
    """And with the command that installs it."""
    for name in ("go", "pkg-config", "openssl", "ip", "unshare", "mount", "apt-get", "dpkg-deb", "wget"):
        (tmp_path / name).symlink_to("/bin/true")
    status, said = checked(PATH=str(tmp_path))
    assert status == 2
    assert "gcc: apt-get install -y gcc libc6-dev" in said or "needs root" in said
