"""What this machine can do for local pods: found by looking and trying, reported by `emberpool doctor`."""

import os
import shutil
import subprocess
from pathlib import Path

from emberpool.pool.model.frozen import Frozen
from emberpool.pool.model.profile import Isolation
from emberpool.pool.providers.local.bubblewrap import Bubblewrap, candidates, probe
from emberpool.pool.providers.local.root_view import this_interpreter
from emberpool.pool.providers.local.uids import uid_range

GPU_PATTERNS = ("nvidia[0-9]*", "dri/renderD*", "kfd")


class BwrapReport(Frozen):
    """One bubblewrap program and whether it really runs a pod's namespaces here."""

    path: str
    libraries: str = ""
    version: str = ""
    problem: str = ""
    """Why it cannot be used; empty if it can."""

    @property
    def usable(self) -> bool:
        return not self.problem


class HostReport(Frozen):
    """What local pods would get on this machine, and why."""

    root: bool
    """Whether pods get unprivileged host uids of their own, as we run as root."""
    user_namespaces: bool
    """Whether the kernel allows any; only a trial tells whether it allows ours."""
    user_namespaces_why: str
    bwraps: tuple[BwrapReport, ...]
    cgroup_version: int
    """0 if no cgroup hierarchy is mounted. Limits are enforced by emberd, so that none is needed."""
    python: str
    """The interpreter that runs emberd in pods."""
    python_version: str
    runsc: str
    """Path of gVisor's runsc, empty if there is none. Reported only: local pods do not use it."""
    gpus: tuple[str, ...]
    """GPU device files. Reported only: local pods get none of them."""
    isolation: Isolation | None
    """What a profile that does not say otherwise gets; None: its pods are refused."""
    why: str

    @property
    def bwrap(self) -> BwrapReport | None:
        """The bubblewrap that pods use."""
        return next((report for report in self.bwraps if report.usable), None)


def _read_number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def user_namespaces() -> tuple[bool, str]:
    """Whether the kernel's settings allow user namespaces, and the setting that decides."""
    if not Path("/proc/self/ns/user").exists():
        return False, "the kernel has none (CONFIG_USER_NS)"
    most = _read_number("/proc/sys/user/max_user_namespaces")
    if most == 0:
        return False, "user.max_user_namespaces is 0"
    if _read_number("/proc/sys/kernel/unprivileged_userns_clone") == 0 and os.geteuid() != 0:
        return False, "kernel.unprivileged_userns_clone is 0"
    if _read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1:
        return True, "allowed, but AppArmor restricts them to programs with a profile"
    return True, f"user.max_user_namespaces is {most}"


def cgroup_version(root: Path = Path("/sys/fs/cgroup")) -> int:
    """2 if the unified hierarchy is mounted at `root`, 1 for the old ones (also hybrid), 0 for none."""
    if (root / "cgroup.controllers").exists():
        return 2
    return 1 if any(root.glob("*/tasks")) else 0


def inspect_bwrap(bwrap: Bubblewrap) -> BwrapReport:
    """Try one bubblewrap as a pod would run it."""
    uids = uid_range()
    problem = probe(bwrap, uids[-1] if uids else -1)
    return BwrapReport(path=bwrap.path, libraries=bwrap.libraries, version=bwrap.version(), problem=problem)


def _default_isolation(bwraps: tuple[BwrapReport, ...]) -> tuple[Isolation | None, str]:
    for report in bwraps:
        if report.usable:
            return Isolation.BUBBLEWRAP, f"{report.path} runs here"
    if not bwraps:
        return None, "no bwrap: install your distribution's bubblewrap, or emberpool[local]"
    reasons = "; ".join(f"{report.path}: {report.problem}" for report in bwraps)
    return (
        None,
        f"bubblewrap does not run here ({reasons}); allow user namespaces, or isolation: plain for trusted code",
    )


def _version_of(program: str) -> str:
    try:
        done = subprocess.run([program, "-I", "-S", "--version"], capture_output=True, text=True, timeout=10.0)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip().removeprefix("Python ")


def inspect_host() -> HostReport:
    """Look at this machine. Blocks for about a tenth of a second: every bubblewrap found is run once."""
    allowed, why_namespaces = user_namespaces()
    bwraps = tuple(inspect_bwrap(candidate) for candidate in candidates())
    isolation, why = _default_isolation(bwraps)
    python = this_interpreter().program
    return HostReport(
        root=bool(uid_range()),
        user_namespaces=allowed,
        user_namespaces_why=why_namespaces,
        bwraps=bwraps,
        cgroup_version=cgroup_version(),
        python=python,
        python_version=_version_of(python),
        runsc=shutil.which("runsc") or "",
        gpus=tuple(sorted(str(path) for pattern in GPU_PATTERNS for path in Path("/dev").glob(pattern))),
        isolation=isolation,
        why=why,
    )
