"""Jobs of a plain pod have emberd's own user, and see it; what it knows, its key among it, stays its own."""

from fixtures.emberd import Starter, open_lease, reset

from emberpool.pool.client.emberd_client import EmberdClient

LOOK = """
import sys
for name in ("environ", "mem", "maps"):
    try:
        open(f"/proc/{sys.argv[1]}/{name}", "rb").close()
    except PermissionError:
        print("held")
"""


async def test_neither_its_memory_nor_its_environment_can_be_read(
    emberds: Starter, emberd_client: EmberdClient
) -> None:
    """It cannot be dumped, so that the kernel has its files in /proc be root's."""
    pod = emberds.start("plain")
    lease = open_lease(pod, emberd_client)
    result = await lease.run("python3", "-c", LOOK, str(pod.process.pid))
    assert result.text.split() == ["held"] * 3, result
    assert (await lease.run("cat", "/proc/self/environ")).ok
    await reset(lease)
    pod.stop()
