"""One job of two pods that find each other: rank 0 listens at the rendezvous, the others add to its sum.

    emberpool dev --profiles examples/gang.yaml        # in one terminal
    python examples/gang_at_work.py                    # in another

The pods are isolated from this machine and from each other, but for a network that the job has to itself. The same job
runs wherever a profile has `gang_peers`.
"""

import asyncio
import os
import uuid

from temporalio.client import Client

from emberpool import EmberpoolPlugin
from emberpool.pool.model.gang_job import GangJobResult

RANK = """
import os, socket, time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
meet = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
mine = 10 ** rank
if rank == 0:
    total, others = mine, []
    with socket.create_server(meet) as server:
        server.settimeout(60)
        while len(others) < size - 1:
            other = server.accept()[0]
            total += int(other.makefile().readline())
            others.append(other)
        for other in others:
            other.sendall(b"%d\\n" % total)
else:
    for _ in range(600):
        try:
            link = socket.create_connection(meet)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    link.sendall(b"%d\\n" % mine)
    total = int(link.makefile().readline())
print(f"rank {rank} of {size}: the sum is {total}")
"""


async def main() -> None:
    """Start the workflow by name with plain JSON, as any Temporal client of any language can."""
    client = await Client.connect(os.environ.get("TEMPORAL_ADDRESS", "localhost:7233"), plugins=[EmberpoolPlugin()])
    queue = os.environ.get("EMBERPOOL_TASK_QUEUE", "emberpool")
    job = {
        "profile": os.environ.get("EXAMPLE_PROFILE", "gang"),
        "caller": "example",
        "size": 2,
        "peers": True,
        "port": int(os.environ.get("EXAMPLE_PORT", "29500")),
        "files": [{"path": "rank.py", "text": RANK}],
        "command": {"argv": ["python3", "rank.py"], "time_limit_s": 60},
        "task_queue": queue,
    }
    result: GangJobResult = await client.execute_workflow(
        "EmberpoolGangJob", job, id=f"gang-{uuid.uuid4().hex[:8]}", task_queue=queue, result_type=GangJobResult
    )
    for rank, (end, pod) in enumerate(zip(result.results, result.pods, strict=True)):
        print(f"{pod}: {end.text.strip() or end.error_text.strip() or end.outcome}")
        if not end.ok:
            raise SystemExit(f"rank {rank} ended {end.outcome}")


if __name__ == "__main__":
    asyncio.run(main())
