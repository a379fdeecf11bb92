"""How far a batch is: its shards tell by query."""

import asyncio
from typing import Final

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError

from emberpool.activities import names
from emberpool.workflows.batch import SHARD_SIZE, BatchProgress

LOOK_S: Final = 2.0
"""Between two looks: a query costs a workflow task on the worker."""


class BatchWatch:
    """Counts the ended rollouts of one batch."""

    def __init__(self, client: Client, batch_id: str, total: int) -> None:
        self._client = client
        self._shards = [f"{batch_id}/shard-{number}" for number in range((total + SHARD_SIZE - 1) // SHARD_SIZE)]
        self.done = 0

    async def look(self) -> None:
        """Look every two seconds until cancelled."""
        while True:
            self.done = sum(await asyncio.gather(*[self._of(shard) for shard in self._shards]))
            await asyncio.sleep(LOOK_S)

    async def _of(self, shard: str) -> int:
        handle = self._client.get_workflow_handle(shard)
        try:
            progress: BatchProgress = await handle.query(names.BATCH_PROGRESS, result_type=BatchProgress)
        except (RPCError, WorkflowQueryFailedError):
            return 0  # not started yet, or its worker is away
        return progress.done
