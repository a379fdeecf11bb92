"""Telling the kernel's out-of-memory killer from any other SIGKILL.

Within a pod emberd watches the memory of jobs. What is seen here is the machine itself running out, and the kernel
choosing emberd. It leaves no mark on the process; only a counter of the whole machine rises.
"""

import asyncio
from collections import deque
from pathlib import Path

SAMPLE_S = 5.0


def oom_kills(path: Path = Path("/proc/vmstat")) -> int:
    """How many processes the kernel has killed for memory since boot; 0 if it does not say."""
    try:
        words = path.read_text().split()
    except OSError:
        return 0
    return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0


class OomWatch:
    """Knows whether the counter has risen within the last ten seconds."""

    def __init__(self) -> None:
        self._samples: deque[int] = deque([oom_kills()], maxlen=3)

    def recent(self) -> bool:
        """Whether the kernel killed anything for memory just now."""
        return oom_kills() > self._samples[0]

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            self._samples.append(oom_kills())
