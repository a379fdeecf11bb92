"""What a job in a local pod can see and touch: its own room, the host's programs to read, nothing else."""

import os
import re
import socket
import sys
from pathlib import Path

import pytest
from fixtures.local import Jobs, MakeProvider, SupervisorProcess, new_pod

from emberpool.pool.client.signing import pod_key
from emberpool.pool.providers.local.process_table import processes_by_uid
from emberpool.pool.providers.local.uids import uid_range

OPEN_ALL_SYSCTLS = """
import os
opened = []
for folder, _, names in os.walk('/proc/sys'):
    for name in names:
        path = os.path.join(folder, name)
        try:
            os.close(os.open(path, os.O_WRONLY))
            opened.append(path)
        except OSError:
            pass
print(opened)
"""


def of_process(pid: int, file: str) -> str:
    """A file of a process in /proc, as text; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def open_secret(folder: Path) -> Path:
    """A file of the host that every user may read."""
    folder.chmod(0o755)
    (folder / "secret").write_text("host")
    return folder / "secret"


as_root = pytest.mark.skipif(not uid_range(), reason="needs root: others have one uid only")


async def test_no_kernel_setting_of_the_host_can_be_opened_for_writing(local_provider: MakeProvider, job: Jobs) -> None:
    """What a job can open for writing under /proc/sys, if anything, is of its own IPC and PID namespaces."""
    provider = local_provider()
    opened = await job(provider, await new_pod(provider), f'python3 -c "{OPEN_ALL_SYSCTLS}"')
    own = r"/proc/sys/(fs/mqueue/\w+|kernel/(msg\w+|sem\w*|shm\w+|auto_msgmni|ns_last_pid|pid_max))"
    assert [path for path in re.findall(r"'([^']+)'", opened) if not re.fullmatch(own, path)] == []


async def test_no_kernel_setting_can_be_opened_for_writing(local_provider: MakeProvider, job: Jobs) -> None:
    """A job cannot open anything under /proc/sys for writing, whoever started the supervisor."""
    provider = local_provider()
    name = await new_pod(provider)
    assert await job(provider, name, f'python3 -c "{OPEN_ALL_SYSCTLS}"') == "[]\n"


@as_root
async def test_a_pod_of_root_runs_under_a_host_uid_of_its_own(local_provider: MakeProvider, job: Jobs) -> None:
    """Uid 0 in the pod is a host uid that owns nothing, and another one for each pod."""
    provider = local_provider()
    names = [await new_pod(provider), await new_pod(provider)]
    maps = [(await job(provider, name, "cat /proc/self/uid_map /proc/self/gid_map")).split() for name in names]
    for words in maps:
        assert words[0] == "0" and words[2] == "1" and words[3:] == words[:3]
        assert int(words[1]) in uid_range()
    assert maps[0][1] != maps[1][1]
    running = processes_by_uid()
    assert all(int(words[1]) in running for words in maps)


async def test_a_job_sees_no_environment_of_the_supervisor(
    local_provider: MakeProvider, job: Jobs, supervisor: SupervisorProcess
) -> None:
    """Its environment is PATH, HOME, language, temporary folder and which GPUs it has; none that it sees has more."""
    provider = local_provider()
    name = await new_pod(provider)
    assert "SECRET_OF_THE_WORKER=do-not-tell" in of_process(supervisor.pid, "environ")
    text = await job(provider, name, "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'", check=False)
    assert "SECRET" not in text and "do-not-tell" not in text
    names = {line.split("=")[0] for line in (await job(provider, name, "env")).splitlines()}
    ours = {"PATH", "HOME", "LANG", "TMPDIR", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}
    assert names <= ours | {"PWD", "OLDPWD", "SHLVL", "_"}, names


async def test_pods_do_not_see_each_others_processes_or_files(local_provider: MakeProvider, job: Jobs) -> None:
    """What one pod runs and writes, another cannot find; nor can it find emberd."""
    provider = local_provider()
    first, second = await new_pod(provider), await new_pod(provider)
    await job(provider, first, "echo mine > /work/secret; echo mine > /tmp/secret; sleep 333 >/dev/null 2>&1 & true")
    assert "sleep" in await job(provider, first, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "sleep" not in await job(provider, second, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert (await job(provider, second, "ls -A /work /tmp")).split() == ["/tmp:", "/work:"]
    shown = await job(provider, second, "ls /; ls /ember /root/.ssh 2>&1", check=False)
    assert "ember" not in shown.split("ls:")[0].split()


async def test_the_hosts_files_are_out_of_reach(local_provider: MakeProvider, job: Jobs, tmp_path: Path) -> None:
    """Only /usr, a small /etc and the Python of emberd are there, and none of it can be written."""
    provider = local_provider()
    name = await new_pod(provider)
    for path in (open_secret(tmp_path), "/etc/shadow", "/etc/hostname", "/var/log", "/sys", "/boot", __file__):
        assert "No such file" in await job(provider, name, f"cat {path}", check=False)
    for path in ("/usr/x", "/etc/x", "/bin/x", "/x", f"{sys.base_prefix}/x"):
        assert "Read-only" in await job(provider, name, f"touch {path}", check=False)


async def test_the_hosts_loopback_and_sockets_are_out_of_reach(local_provider: MakeProvider, job: Jobs) -> None:
    """A server on the host's 127.0.0.1, or on an abstract socket, does not answer a job; its own loopback works."""
    provider = local_provider()
    name = await new_pod(provider)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        port = server.getsockname()[1]
        label = f"ember-test-{os.getpid()}"
        abstract.bind(f"\0{label}")
        abstract.listen()
        with socket.create_connection(("127.0.0.1", port)):
            pass
        dial = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        assert "refused" in await job(provider, name, f'python3 -c "{dial}"', check=False)
        dial = f"import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + '{label}')"
        assert "refused" in await job(provider, name, f'python3 -c "{dial}"', check=False)
    own = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); print(1)"
    )
    assert await job(provider, name, f'python3 -c "{own}"') == "1\n"
    routes = await job(provider, name, "cat /proc/net/route; cat /proc/net/dev")
    assert [line.split(":")[0].strip() for line in routes.splitlines() if ":" in line] == ["lo"]


async def test_names_resolve_and_python_is_there(local_provider: MakeProvider, job: Jobs) -> None:
    """Programs find what they need in /etc, and `python3` exists whatever the host has installed."""
    provider = local_provider()
    name = await new_pod(provider)
    assert (await job(provider, name, "python3 -c 'import ssl, pwd; print(pwd.getpwuid(0).pw_dir)'")) == "/home/job\n"
    resolve = "import socket; print(socket.gethostbyname('localhost'))"
    assert await job(provider, name, f'python3 -c "{resolve}"') == "127.0.0.1\n"
    certificates = "import ssl; print(len(ssl.create_default_context().get_ca_certs()) >= 0)"
    assert await job(provider, name, f'python3 -c "{certificates}"') == "True\n"
    assert await job(provider, name, "cd; pwd; cat /proc/sys/kernel/hostname") == f"/home/job\n{name}\n"


async def test_a_pods_key_is_nowhere_to_be_read(
    local_provider: MakeProvider, job: Jobs, supervisor: SupervisorProcess
) -> None:
    """The pod's key is in no command line and no environment of any process, seen from the host."""
    name = await new_pod(local_provider())
    key = pod_key(supervisor.key, name).hex()
    for pid in (pid for pids in processes_by_uid().values() for pid in pids):
        text = of_process(pid, "cmdline") + of_process(pid, "environ")
        assert key not in text and supervisor.key.hex() not in text


async def test_a_job_finds_no_credential(
    local_provider: MakeProvider, job: Jobs, supervisor: SupervisorProcess
) -> None:
    """No token of a service account, no variable that names a server or a token, and the keys of pool and pod are in no
    file or environment that a job can read (UKGovernmentBEIS/inspect_k8s_sandbox#214)."""
    provider = local_provider()
    name = await new_pod(provider)
    for path in ("/var/run/secrets", "/run/secrets", "/root/.kube", "/home/job/.kube", "/run/ember", "/state"):
        assert "No such file" in await job(provider, name, f"ls -A {path}", check=False)
    look = "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'"
    told = await job(provider, name, look, check=False)
    assert not re.search("TOKEN|SECRET|KEY|REDIS|TEMPORAL|KUBERNETES|supervisor", told), told
    # The job is told only the first half of each key, so that it does not find what it was asked with.
    halves = "|".join(key[:32] for key in (supervisor.key.hex(), pod_key(supervisor.key, name).hex()))
    places = "/etc /work /tmp /home /dev/shm /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/mountinfo"
    seek = f"grep -rlsE --devices=skip '({halves})[0-9a-f]{{32}}' {places}"
    assert await job(provider, name, seek, check=False) == ""
