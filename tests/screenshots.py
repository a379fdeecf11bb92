"""Takes the pictures in docs/images/ of the Temporal UI: `make ui`. Needs chromium; no part of `make test`.

Everything in them is real: the embedded stack runs two callers' rollouts, and a browser without a window looks.
"""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote, urlencode

from fixtures.browser import browser_page
from fixtures.waiting import wait_until
from scenarios.policies import POLICY, task, two_tries
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from emberpool.activities import names
from emberpool.pool.model.profile import Profile
from emberpool.pool.model.rollout import RolloutBatchInput, RolloutBatchResult
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.stack.embedded import EmbeddedStack, StackOptions

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
PROFILE = Profile(name="python-small", min_warm=2, max_pods=4)
POLICY_QUEUE = "policy"
WIDTH = 1400
PLAN_S = 90.0
"""The manager of a calm pool plans once a minute; before its second plan it shows an empty pool."""


async def main() -> int:
    """Run the work, take the pictures; 1 if there is no browser."""
    browser = shutil.which("chromium")
    if browser is None:
        print("error: no chromium found\nremedy: apt-get install chromium", file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="emberpool-ui-") as folder:
        options = StackOptions(Path(folder) / "stack", ephemeral=True, profiles=(PROFILE,))
        async with EmbeddedStack(options) as stack:
            client = await Client.connect(stack.temporal_address, plugins=[EmberpoolPlugin()])
            async with Worker(client, task_queue=POLICY_QUEUE, activities=[two_tries]):
                await asyncio.gather(_batch(client, "alice"), _batch(client, "bob"))
            await _pictures(browser, Path(folder), client, stack.ui_url or "")
    return 0


async def _batch(client: Client, caller: str) -> RolloutBatchResult:
    batch = RolloutBatchInput(
        batch_id=f"nightly-{caller}",
        profile=PROFILE.name,
        caller=caller,
        policy=POLICY,
        policy_task_queue=POLICY_QUEUE,
        tasks=(task(0), task(1, wanted=7), task(2)),
        rollouts_per_task=4,
        concurrency=3,
    )
    result: RolloutBatchResult = await client.execute_workflow(
        names.ROLLOUT_BATCH, batch, id=batch.batch_id, task_queue=batch.task_queue, result_type=RolloutBatchResult
    )
    return result


async def _pictures(browser: str, folder: Path, client: Client, ui: str) -> None:
    found = f"{names.SEARCH_CALLER}='alice' AND {names.SEARCH_OUTCOME}='failed'"
    rollout = client.get_workflow_handle("nightly-alice/shard-0/000001-answer_0")
    manager = client.get_workflow_handle(names.pool_manager_id("default", PROFILE.name))
    base = f"{ui}/namespaces/default/workflows"
    pages = (
        ("rollouts-of-a-caller", f"{base}?{urlencode({'query': found})}", "4 COMPLETED", 760),
        ("one-rollout", f"{await _page(base, rollout)}/timeline", "verify: answer/0", 1240),
        ("a-rollout-in-words", f"{await _page(base, rollout)}/user-metadata", "turns so far", 620),
        ("a-pool", f"{await _page(base, manager)}/user-metadata", "is being reset", 860),
    )

    async def planned() -> bool:
        told = str(await manager.query("__temporal_workflow_metadata"))
        return "of at most" in told and "0 of at most" not in told

    await wait_until(planned, PLAN_S)
    async with browser_page(browser, folder / "browser") as page:
        for name, url, words, height in pages:
            await page.open(url, words, WIDTH, height)
            await page.picture(IMAGES / f"{name}.png")
            print(f"docs/images/{name}.png: {url}")


async def _page(base: str, handle: WorkflowHandle[object, object]) -> str:
    described = await handle.describe()
    return f"{base}/{quote(described.id, safe='')}/{described.run_id}"


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
