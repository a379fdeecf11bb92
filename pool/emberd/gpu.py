"""The pod's GPUs: what jobs may see of them, and whether a job that is over still holds any.

Asked of NVML through ctypes, so that nothing need be installed but the driver's own library.
"""

import ctypes
import sys
import time
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

LIBRARY = "libnvidia-ml.so.1"
SETTLE_S = 2.0
"""Longest wait for the driver to take back what killed processes held."""
EVERY_S = 0.02
SLACK_BYTES = 64 * 1024 * 1024
"""Memory that the driver itself takes and gives back as it likes."""
_MOST_HOLDERS = 1024


class GpuError(Exception):
    """NVML cannot be asked; the text says which call failed."""


class Use(NamedTuple):
    """One device at one moment."""

    used_bytes: int
    holders: Set[int]
    """Host PIDs with a context on it."""


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Holder(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """The driver's library."""

    def __init__(self, library: str) -> None:
        """Raises GpuError."""
        try:
            self._nvml = ctypes.CDLL(library)
            self._call("nvmlInit_v2")
        except (OSError, AttributeError) as error:
            raise GpuError(f"{library}: {error}") from error

    def use(self, uuid: str) -> Use:
        """How a device is used now. Raises GpuError."""
        device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByUUID", uuid.encode("ascii"), ctypes.byref(device))
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
        holders: Set[int] = set()
        for kind in ("Compute", "Graphics"):
            count = ctypes.c_uint(_MOST_HOLDERS)
            found = (_Holder * _MOST_HOLDERS)()
            self._call(f"nvmlDeviceGet{kind}RunningProcesses_v3", device, ctypes.byref(count), found)
            holders.update(found[index].pid for index in range(count.value))
        return Use(int(memory.used), holders)

    def _call(self, name: str, *args: object) -> None:
        try:
            status = getattr(self._nvml, name)(*args)
        except AttributeError as error:
            raise GpuError(f"{name}: the driver is too old") from error
        if status != 0:
            raise GpuError(f"{name}: NVML error {status}")


class Gpus:
    """The devices that this pod was given; none is as good an answer as several."""

    def __init__(self, uuids: List[str], library: str, shared: bool = False) -> None:
        """Note how the devices are before any job. Raises GpuError if there are some and they cannot be asked.

        `shared`: other pods have them too. Then nobody is asked, since what is held there may be theirs; what a job
        held goes with its processes, which a reset proves to be gone.
        """
        self.uuids = uuids
        self._nvml = Nvml(library) if uuids and not shared else None
        self._before = self._now()

    @property
    def asked(self) -> bool:
        """Whether a reset has anything to ask about them."""
        return self._nvml is not None

    def released(self) -> bool:
        """Whether nothing is held that was not before the first job; waits a little for a driver that tidies up."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            try:
                held = self._held()
            except GpuError as error:
                held = str(error)  # not to know is no proof
            if held is None:
                return True
            if time.monotonic() > deadline:
                print(f"emberd: vram: {held}", file=sys.stderr, flush=True)
                return False
            time.sleep(EVERY_S)

    def visible(self, wanted: Dict[str, str]) -> Dict[str, str]:
        """What a job's environment says of devices: those of the pod, or fewer if `wanted` names fewer of them."""
        asked = [part.strip() for part in wanted.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
        some = asked if asked and set(asked) <= set(self.uuids) else self.uuids
        if not some:
            return {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
        return {"CUDA_VISIBLE_DEVICES": ",".join(some), "NVIDIA_VISIBLE_DEVICES": ",".join(some)}

    def _held(self) -> Optional[str]:
        """What is held that was not before, in words; None if nothing is."""
        for uuid, use in self._now():
            before = dict(self._before)[uuid]
            strangers = use.holders - before.holders
            if strangers:
                return f"{uuid} is held by host processes {sorted(strangers)[:8]}"
            if use.used_bytes > before.used_bytes + SLACK_BYTES:
                return f"{uuid} has {use.used_bytes} bytes in use, {before.used_bytes} before the first job"
        return None

    def _now(self) -> "List[Tuple[str, Use]]":
        return [(uuid, self._nvml.use(uuid)) for uuid in self.uuids] if self._nvml is not None else []
