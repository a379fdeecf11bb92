"""A pod is clean only if its GPUs are as they were before the first job; a job sees those of its pod and no others."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from fixtures.emberd import EmberdProcess, Lease, Starter, first_line, open_lease, recycled, reset
from fixtures.nvml import DRIVERS_OWN, GIB, HELD, FakeNvml
from fixtures.processes import gone, wait_until

from emberpool.pool.client.emberd_client import EmberdClient
from emberpool.pool.emberd.gpu import Gpus
from emberpool.pool.model.command import Outcome


@pytest.fixture
def nvml(emberds: Starter) -> FakeNvml:
    """A driver with two quiet devices, of which the first has somebody's display on it."""
    folder = emberds.folder() / "nvml"
    folder.mkdir()
    fake = FakeNvml(folder)
    fake.say(GPU_a=(DRIVERS_OWN, [77]), GPU_b=(0, []))
    return fake


@pytest.fixture
def pod(emberds: Starter, nvml: FakeNvml) -> Iterator[EmberdProcess]:
    """A pod with both."""
    started = emberds.start("plain", gpus={"uuids": ["GPU_a", "GPU_b"], "library": str(nvml.library)})
    yield started
    started.stop()


async def test_quiet_devices_are_attested(pod: EmberdProcess, emberd_client: EmberdClient) -> None:
    """What was held before the first job may be held after it."""
    lease = open_lease(pod, emberd_client)
    assert (await lease.sh("true")).ok
    attestation = await recycled(pod, emberd_client)
    assert attestation.holds and attestation.checks["vram"]


@pytest.mark.parametrize("after", HELD.values(), ids=HELD)
async def test_a_device_that_is_still_held_drains_the_pod(
    pod: EmberdProcess, nvml: FakeNvml, emberd_client: EmberdClient, after: dict[str, tuple[int, list[int]]]
) -> None:
    """Exactly the check `vram` fails.

    Seen in NVIDIA-NeMo/RL#3592, ray-project/ray#42861 and NVIDIA/nvidia-container-toolkit#48.
    """
    lease = open_lease(pod, emberd_client)
    assert (await lease.sh("true")).ok
    nvml.say(**after)
    attestation = await recycled(pod, emberd_client)
    assert {name for name, held in attestation.checks.items() if not held} == {"vram"}
    assert not attestation.holds


async def test_a_driver_that_tidies_up_is_awaited(
    pod: EmberdProcess, nvml: FakeNvml, emberd_client: EmberdClient
) -> None:
    """Memory of a killed process that comes back a moment later is no leak."""
    assert (await open_lease(pod, emberd_client).sh("true")).ok
    nvml.say(GPU_a=(DRIVERS_OWN + GIB, [77, 5]), GPU_b=(0, []))
    running = asyncio.ensure_future(recycled(pod, emberd_client))
    await asyncio.sleep(0)
    nvml.say(GPU_a=(DRIVERS_OWN, [77]), GPU_b=(0, []))
    assert (await running).holds


def test_devices_that_cannot_be_asked_keep_a_pod_from_serving(emberds: Starter, nvml: FakeNvml) -> None:
    """Without a baseline nothing could be proved later."""
    _, _, process = emberds.spawn("plain", gpus={"uuids": ["GPU_c"], "library": str(nvml.library)})
    said = first_line(process)
    assert said["ready"] is False and "nvmlDeviceGetHandleByUUID" in said["reason"]
    assert process.wait(10) == 4


ASK = "echo $CUDA_VISIBLE_DEVICES/$NVIDIA_VISIBLE_DEVICES"


async def test_a_pod_without_gpus_shows_none(lease: Lease) -> None:
    """Neither the command nor bind can ask for all (NVIDIA/k8s-device-plugin#87)."""
    everything: dict[str, str] = {"CUDA_VISIBLE_DEVICES": "0,1", "NVIDIA_VISIBLE_DEVICES": "all"}
    await lease.client.bind(lease.pod, lease.proof, everything)
    assert (await lease.sh(ASK)).stdout == b"/void\n"
    assert (await lease.sh(ASK, env=everything)).stdout == b"/void\n"


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [("", "GPU_a,GPU_b"), ("GPU_b", "GPU_b"), ("GPU_b,GPU_z", "GPU_a,GPU_b"), ("all", "GPU_a,GPU_b")],
)
async def test_a_job_may_take_fewer_and_never_others(
    pod: EmberdProcess, emberd_client: EmberdClient, wanted: str, seen: str
) -> None:
    """A rank of a job may pick its device of the pod's."""
    lease = open_lease(pod, emberd_client)
    env: dict[str, Any] = {"CUDA_VISIBLE_DEVICES": wanted}
    assert (await lease.sh(ASK, env=env)).text == f"{seen}/{seen}\n"
    await reset(lease)


def test_what_is_free_is_asked_of_the_device_not_counted(nvml: FakeNvml) -> None:
    """Project-HAMi/HAMi#1181: a counter of what was given and taken back drifts with each process that is killed
    between the two, until it shows terabytes. Here there is none: after hundreds of jobs of random sizes, each killed
    with its memory still in use for a moment, the answer is the device's own, and a leak that goes away is
    forgotten."""
    chance = random.Random(1181)
    quiet: dict[str, tuple[int, list[int]]] = {"GPU_a": (DRIVERS_OWN, [77]), "GPU_b": (0, [])}
    nvml.say(**quiet)
    gpus = Gpus(["GPU_a", "GPU_b"], str(nvml.library))
    for job in range(400):
        nvml.say(GPU_a=(DRIVERS_OWN + chance.randrange(80 * GIB), [77, 1000 + job]), GPU_b=(chance.randrange(GIB), []))
        nvml.say(**quiet)
        assert gpus.released()
    nvml.say(GPU_a=(DRIVERS_OWN, [77]), GPU_b=(4096 * GIB, []))
    assert not gpus.released()
    nvml.say(**quiet)
    assert gpus.released()


async def test_a_hang_is_ended_and_its_devices_are_free(
    pod: EmberdProcess, nvml: FakeNvml, emberd_client: EmberdClient
) -> None:
    """ROCm/cvs#322: one limit for all took a silent warm-up for a hang, and what was given up kept its devices. A
    command that is silent for most of its time limit is left alone; one that goes over it is killed with all that it
    started, whatever it ignores, and the pod serves again only once its devices are free."""
    lease = open_lease(pod, emberd_client)
    silent = await lease.sh("sleep 1.2; echo warm", time_limit_s=1.8)
    assert (silent.outcome, silent.stdout) == (Outcome.EXITED, b"warm\n")
    hang = "trap '' TERM INT HUP; (trap '' TERM; setsid sleep 4711) & echo $!; sleep 4711"
    running = asyncio.create_task(lease.sh(hang, time_limit_s=1.0))
    nvml.say(GPU_a=(DRIVERS_OWN + 60 * GIB, [77, 4711]), GPU_b=(0, []))
    result = await running
    assert result.outcome is Outcome.TIMED_OUT
    assert not (await recycled(pod, emberd_client)).holds, "the driver has not let go"
    wait_until(lambda: gone(int(result.stdout)))
    nvml.say(GPU_a=(DRIVERS_OWN, [77]), GPU_b=(0, []))
    pod.epoch += 1
    await emberd_client.fence(pod.address, pod.epoch)
    assert (await emberd_client.recycle(pod.address, pod.epoch)).holds


async def test_devices_that_others_have_too_are_shown_and_not_asked(
    emberds: Starter, nvml: FakeNvml, emberd_client: EmberdClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With time-slicing a neighbour's memory is on the same device: it is no leak of this pod's. The device's name
    comes from the variable that the node's device plugin sets."""
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "GPU_b")
    gpus = {"variable": "NVIDIA_VISIBLE_DEVICES", "shared": True, "library": str(nvml.library)}
    pod = emberds.start("plain", gpus=gpus)
    assert (await open_lease(pod, emberd_client).sh(ASK)).text == "GPU_b/GPU_b\n"
    nvml.say(GPU_a=(0, []), GPU_b=(115 * GIB, [4242]))
    attestation = await recycled(pod, emberd_client)
    assert attestation.holds and "vram" not in attestation.checks
    pod.stop()


@pytest.mark.parametrize("told", ["", "all", "void"])
def test_a_plugin_that_names_no_device_keeps_a_pod_from_serving(
    emberds: Starter, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which devices are the pod's would be a guess."""
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", told)
    _, _, process = emberds.spawn("plain", gpus={"variable": "NVIDIA_VISIBLE_DEVICES"})
    said = first_line(process)
    assert said["ready"] is False and "names no device of this pod" in said["reason"]
    assert process.wait(10) == 2
