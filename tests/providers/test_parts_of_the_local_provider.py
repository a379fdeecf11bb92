"""The pure parts: what is bound, which uids are taken, how an end is named, what a log keeps."""

import os
import pwd
import signal
from pathlib import Path

import pytest

from emberpool.pool.model.errors import PoolUnavailable
from emberpool.pool.model.profile import Isolation
from emberpool.pool.providers.local.emberd_folder import copy_emberd
from emberpool.pool.providers.local.etc_folder import build_etc
from emberpool.pool.providers.local.host import cgroup_version, inspect_host
from emberpool.pool.providers.local.launcher import SPAWN_FAILED, LaunchSpec, bwrap_argv, closed_ancestor
from emberpool.pool.providers.local.oom import oom_kills
from emberpool.pool.providers.local.pod_log import LOG_LIMIT, PodLog, prune_logs
from emberpool.pool.providers.local.pod_process import classify
from emberpool.pool.providers.local.remove_folder import remove_folder
from emberpool.pool.providers.local.root_view import HostTop, Interpreter, root_view
from emberpool.pool.providers.local.uids import UidPool, uid_range

MERGED = HostTop(links={"/bin": "usr/bin", "/lib64": "usr/lib64"}, folders=())
OLD = HostTop(links={}, folders=("/bin", "/lib64"))
SYSTEM = Interpreter("/usr/bin/python3.11", "/usr")
OWN = Interpreter("/root/.pyenv/versions/3.11.7/bin/python3.11", "/root/.pyenv/versions/3.11.7")


def test_the_hosts_layout_is_kept() -> None:
    """Links of a merged /usr stay links; the folders of an older layout are bound."""
    merged, old = root_view(MERGED, SYSTEM, "/e", "/etc2"), root_view(OLD, SYSTEM, "/e", "/etc2")
    assert merged.links == MERGED.links and not old.links
    assert {bind["target"] for bind in old.binds} - {bind["target"] for bind in merged.binds} == {"/bin", "/lib64"}
    assert merged.room_root == [[path, path] for path in ("/usr", "/etc", "/bin", "/lib64")]


def test_nothing_of_the_host_is_writable() -> None:
    """Every bind of the root view is read-only."""
    assert not any(bind["writable"] for bind in root_view(OLD, OWN, "/e", "/etc2", "/image").binds)


def test_a_python_outside_usr_is_bound_where_it_is() -> None:
    """It must find its library by its own path; a job finds it last on its PATH."""
    view = root_view(MERGED, OWN, "/e", "/etc2")
    assert {"source": OWN.prefix, "target": OWN.prefix, "writable": False} in view.binds
    assert view.room_path == f"/usr/local/bin:/usr/bin:/bin:{OWN.prefix}/bin"
    assert root_view(MERGED, SYSTEM, "/e", "/etc2").room_path == "/usr/local/bin:/usr/bin:/bin"


def test_an_image_replaces_the_rooms_root_and_not_emberds() -> None:
    """emberd goes on with the host's programs; the room is an overlay of the image."""
    view = root_view(MERGED, OWN, "/e", "/etc2", "/image")
    assert view.room_root == {"overlay": "/ember/images/0"}
    assert {"/usr", "/ember/images/0", OWN.prefix} <= {bind["target"] for bind in view.binds}


def test_inner_binds_come_after_outer_ones() -> None:
    """bubblewrap mounts in order: a Python below /tmp must not be hidden by the pod's own /tmp."""
    spec = LaunchSpec(
        parent=1,
        uid=-1,
        bwrap="bwrap",
        libraries="",
        options=["--tmpfs", "/tmp"],
        binds=[
            {"source": "/b", "target": "/tmp/py/lib", "writable": False},
            {"source": "/a", "target": "/tmp/py", "writable": True},
        ],
        command=["true"],
        env={},
    )
    argv = bwrap_argv(spec)
    assert argv.index("/tmp") < argv.index("/tmp/py") < argv.index("/tmp/py/lib") < argv.index("--")
    assert argv[argv.index("/a") - 1] == "--bind" and argv[argv.index("/b") - 1] == "--ro-bind"


def test_a_closed_ancestor_is_the_topmost_one(tmp_path: Path) -> None:
    """What must be covered so that a pod's user can walk in."""
    inner = tmp_path / "home" / "a" / "b"
    inner.mkdir(parents=True)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o001:
            break
    (tmp_path / "home").chmod(0o700)
    assert closed_ancestor(str(inner)).split("/")[:2] == str(tmp_path).split("/")[:2]
    assert closed_ancestor("/usr/bin/env") == ""


@pytest.mark.parametrize(
    ("launched", "status", "oom", "word"),
    [
        (False, 1, False, "spawn"),
        (True, SPAWN_FAILED, False, "spawn"),
        (True, 3, False, "warm_up"),
        (True, 1, False, "exited"),
        (True, 128 + signal.SIGKILL, False, "exited"),
        (True, 128 + signal.SIGKILL, True, "oom"),
        (True, -signal.SIGKILL, True, "oom"),
        (True, 1, True, "exited"),
    ],
)
def test_an_end_has_one_word(launched: bool, status: int, oom: bool, word: str) -> None:
    """spawn, warm_up, oom or exited, from the exit status and what was seen before."""
    assert classify(launched, status, oom, "detail").word == word


def test_a_signal_is_named() -> None:
    """bubblewrap's 137 and subprocess' -9 are the same end."""
    assert str(classify(True, 137, False, "")) == str(classify(True, -9, False, "")) == "exited: killed by SIGKILL"


def test_a_log_is_bounded_and_keeps_its_last_line(tmp_path: Path) -> None:
    """Beyond the limit the rest is dropped with a note; the last line is known all the same."""
    log = PodLog(tmp_path, "p")
    log.write(b"x" * (LOG_LIMIT + 1000))
    log.write(b"\nthe reason\n\n")
    log.close()
    assert log.last_line == "the reason"
    text = log.path.read_text()
    assert len(text) < LOG_LIMIT + 200 and text.endswith("the rest is dropped]\n")


def test_old_logs_go_first(tmp_path: Path) -> None:
    """Only the latest logs are kept."""
    for number in range(5):
        path = tmp_path / f"{number}.log"
        path.touch()
        os.utime(path, (number, number))
    prune_logs(tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3.log", "4.log"]


def test_a_pods_etc_tells_nothing_of_the_host(tmp_path: Path) -> None:
    """No accounts, no private keys; every file can be read by a pod's user."""
    etc = build_etc(tmp_path / "etc")
    assert {"passwd", "group", "hosts", "nsswitch.conf"} <= {path.name for path in etc.iterdir()}
    assert len((etc / "passwd").read_text().splitlines()) == 2
    assert not (etc / "shadow").exists() and not (etc / "ssl" / "private").exists()
    assert all(path.stat().st_mode & 0o004 for path in etc.rglob("*") if not path.is_symlink())


def test_a_private_key_among_certificates_is_not_copied(tmp_path: Path) -> None:
    """What others may not read on the host is left out."""
    certs = tmp_path / "host" / "ssl" / "certs"
    certs.mkdir(parents=True)
    (certs / "a.pem").write_text("public")
    (certs / "a.key").write_text("private")
    (certs / "a.pem").chmod(0o644)
    (certs / "a.key").chmod(0o600)
    etc = build_etc(tmp_path / "etc", tmp_path / "host")
    assert [path.name for path in (etc / "ssl" / "certs").iterdir()] == ["a.pem"]


def test_folders_that_a_job_closed_can_be_deleted(tmp_path: Path) -> None:
    """Mode 0 stops nobody, links are not followed, and a folder that is gone is fine."""
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o755)
    inner = tmp_path / "gone" / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "gone" / "link").symlink_to(kept)
    (inner / "file").touch()
    inner.chmod(0)
    inner.parent.chmod(0)
    remove_folder(tmp_path / "gone")
    remove_folder(tmp_path / "gone")
    assert kept.stat().st_mode & 0o777 == 0o755 and [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.skipif(not uid_range(), reason="needs root: others have one uid only")
def test_a_uid_is_never_in_use_by_anybody_else() -> None:
    """Not an account's, not held by another supervisor, and free again after its pod."""
    account = pwd.getpwnam("nobody").pw_uid
    first = UidPool(range(account, account + 3))
    second = UidPool(range(account, account + 3))
    taken = [first.take(), second.take()]
    assert account not in taken and taken[0] != taken[1]
    with pytest.raises(PoolUnavailable):
        first.take()
    second.free(taken[1])
    assert first.take() == taken[1]
    first.close()
    assert second.take() in taken
    second.close()


def test_a_container_with_few_ids_gives_what_it_has(tmp_path: Path) -> None:
    """In a user namespace of 65,536 ids pods get the topmost ones; with a single id, none."""
    uid_map = tmp_path / "uid_map"
    uid_map.write_text("         0     100000      65536\n")
    few = uid_range(uid_map)
    uid_map.write_text("         0       1000          1\n")
    none = uid_range(uid_map)
    if os.geteuid() == 0:
        assert few and few.stop == 65536
    assert not none


def test_the_host_report_says_what_pods_get_and_why() -> None:
    """bubblewrap was really run; a machine on which it runs gets it by default."""
    report = inspect_host()
    assert report.isolation in (Isolation.BUBBLEWRAP, None) and report.why
    assert (report.isolation is Isolation.BUBBLEWRAP) == any(bwrap.usable for bwrap in report.bwraps)
    assert report.python_version.startswith("3.") and report.user_namespaces_why
    assert report.root == bool(uid_range())


def test_hierarchies_are_told_apart(tmp_path: Path) -> None:
    """cgroup 2, the old ones, or none."""
    assert cgroup_version(tmp_path) == 0
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "tasks").touch()
    assert cgroup_version(tmp_path) == 1
    (tmp_path / "cgroup.controllers").touch()
    assert cgroup_version(tmp_path) == 2


def test_the_kernels_memory_kills_are_counted(tmp_path: Path) -> None:
    """The machine's counter, or 0 on a kernel that has none."""
    (tmp_path / "vmstat").write_text("nr_free_pages 3\noom_kill 12\n")
    assert oom_kills(tmp_path / "vmstat") == 12
    (tmp_path / "vmstat").write_text("nr_free_pages 3\n")
    assert oom_kills(tmp_path / "vmstat") == oom_kills(tmp_path / "none") == 0


def test_pods_get_a_compiled_copy_of_emberd(tmp_path: Path) -> None:
    """Every file can be read by a pod's user, and each module has its compiled form beside it."""
    folder = copy_emberd(tmp_path / "emberd")
    compiled = {path.name.split(".")[0] for path in (folder / "__pycache__").iterdir()}
    assert compiled == {path.stem for path in folder.glob("*.py")} and (folder / "main.py").exists()
    assert all(path.stat().st_mode & 0o004 for path in folder.rglob("*"))
