"""A worker's metrics: one real endpoint, scraped and read as Prometheus reads it."""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest_asyncio
from fixtures.command_line import EMBERPOOL, clean_env
from fixtures.stack import PROFILE, site_settings
from fixtures.waiting import wait_until
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from temporalio.client import Client

from emberpool.activities import names
from emberpool.activities.measures import CHECKS, CLAIMS, LOST_REASONS, MEASURES, RECYCLES, SECONDS, Kind
from emberpool.pool.model.claim import Source
from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.tool_call import ToolCallInput
from emberpool.worker.plugin import EmberpoolPlugin
from emberpool.worker.stack.embedded import EmbeddedStack

Families = dict[str, Metric]


@dataclass(frozen=True)
class Scraped:
    """A worker process and the client that gives it work."""

    url: str
    client: Client
    queue: str

    async def call(self, shell: str) -> CommandResult:
        """One tool call."""
        given = ToolCallInput(profile="py", caller="m", command=Command(shell=shell), task_queue=self.queue)
        name = f"metrics-{uuid.uuid4().hex[:8]}"
        result: CommandResult = await self.client.execute_workflow(
            names.TOOL_CALL, given, id=name, task_queue=self.queue, result_type=CommandResult
        )
        return result

    async def scrape(self) -> Families:
        """What the endpoint says, by family."""
        async with aiohttp.ClientSession() as http, http.get(self.url) as answer:
            assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/plain")
            return {family.name: family for family in text_string_to_metric_families(await answer.text())}


@pytest_asyncio.fixture
async def scraped(stack: EmbeddedStack, tmp_path: Path) -> AsyncGenerator[Scraped]:
    """`emberpool worker` as an operator runs it, with metrics on any free port."""
    settings = site_settings(stack)
    (tmp_path / "profiles.yaml").write_text(json.dumps(PROFILE.model_dump(mode="json")))
    env = {
        "TEMPORAL_ADDRESS": stack.temporal_address,
        "EMBERPOOL_DEPLOYMENT": settings.deployment,
        "EMBERPOOL_TASK_QUEUE": settings.task_queue,
        "EMBERPOOL_REDIS_URL": settings.redis_url,
        "EMBERPOOL_POOL_KEY_FILE": str(settings.pool_key_file),
        "EMBERPOOL_SUPERVISOR_SOCKET": str(settings.supervisor_socket),
        "EMBERPOOL_PROFILES_FILE": str(tmp_path / "profiles.yaml"),
        "EMBERPOOL_METRICS_ADDRESS": "127.0.0.1:0",
        "EMBERPOOL_SEARCH_ATTRIBUTES": "true",
    }
    log = tmp_path / "worker.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *EMBERPOOL, "worker", env=clean_env(env), stdout=output, stderr=output
        )
    client = await Client.connect(stack.temporal_address, plugins=[EmberpoolPlugin()])
    try:

        async def ready() -> bool:
            assert process.returncode is None, log.read_text()
            return "ready" in log.read_text()

        await wait_until(ready)
        url = re.findall(r"metrics (http://\S+)", log.read_text())[0]
        yield Scraped(url, client, settings.task_queue)
        await client.get_workflow_handle(names.pool_manager_id(settings.deployment, "py")).terminate()
    finally:
        process.terminate()
        await process.wait()


def value(families: Families, family: str, sample: str, **labels: str) -> float:
    """The sum of a sample's values over all labels that are not given."""
    found = [one for one in families[family].samples if one.name == sample]
    return sum(one.value for one in found if labels.items() <= one.labels.items())


async def test_what_happened_is_counted(scraped: Scraped) -> None:
    """Claims by source, waits, commands by outcome, recycles, pods by state, and the SDK's own, on one endpoint."""
    assert (await scraped.call("sleep 0.02")).ok
    assert (await scraped.call("exit 3")).exit_code == 3
    families = await scraped.scrape()
    claims = "emberpool_claims"
    assert value(families, claims, "emberpool_claims_total", profile="py", outcome="claimed") == 2
    assert value(families, claims, "emberpool_claims_total", outcome="claimed", source="reuse") == 1
    for histogram in ("claim_wait", "time_to_first_command", "command"):
        name = f"emberpool_{histogram}_seconds"
        assert value(families, name, f"{name}_count", profile="py") == 2, histogram
    assert value(families, "emberpool_command_seconds", "emberpool_command_seconds_sum") >= 0.02
    recycled = value(families, "emberpool_recycles", "emberpool_recycles_total", tier="room", outcome="idle")
    assert recycled == 2
    assert value(families, "emberpool_pods", "emberpool_pods", state="idle") >= 1
    assert value(families, "emberpool_waiting_requests", "emberpool_waiting_requests") == 0
    assert value(families, "emberpool_pods_ceiling", "emberpool_pods_ceiling") == 3
    assert value(families, "emberpool_index_up", "emberpool_index_up") == 1
    assert any(name.startswith("temporal_workflow_task") for name in families)


async def test_a_sandbox_that_waited_is_claimed_once(scraped: Scraped) -> None:
    """A wait in line learns of the pod before the call does: the serve share counts sandboxes, not questions."""
    assert all(one.ok for one in await asyncio.gather(*[scraped.call("sleep 0.5") for _ in range(5)]))
    families = await scraped.scrape()
    claims = ("emberpool_claims", "emberpool_claims_total")
    assert value(families, *claims, outcome="wait") >= 2, "three pods at most"
    assert value(families, *claims, outcome="claimed") == 5


async def test_every_family_is_declared_and_resolves_a_millisecond(scraped: Scraped) -> None:
    """What is served is what measures.py declares, label by label; latencies tell 1 ms from 2, the SDK's too."""
    await scraped.call("true")
    families = await scraped.scrape()
    for measure in MEASURES:
        if measure.from_workflow:
            continue
        family = families[measure.name.removesuffix("_total") if measure.kind is Kind.COUNTER else measure.name]
        assert family.documentation == measure.help and family.type == measure.kind.value
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        assert labels <= set(measure.labels)
        if measure.kind is Kind.HISTOGRAM and family.samples:
            assert {"0.001", "0.002", "0.003"} <= {one.labels.get("le") for one in family.samples}
    (sdk,) = [one for name, one in families.items() if name.startswith("temporal_activity_execution_latency")]
    assert {"0.001", "0.002"} <= {one.labels.get("le") for one in sdk.samples}


def test_labels_are_bounded() -> None:
    """No label can hold a caller, a pod, an image or an id: each has the values of an enumeration, or of profiles."""
    assert SECONDS[:3] == (0.001, 0.002, 0.003) and list(SECONDS) == sorted(SECONDS)
    bounded = {"profile", "outcome", "source", "state", "tier", "reason", "chore", "check"}
    assert {label for measure in MEASURES for label in measure.labels} <= bounded
    assert len({measure.name for measure in MEASURES}) == len(MEASURES)
    assert len(LOST_REASONS) < 20 and len(CHECKS) < 20 and len(Source) < 10 and CLAIMS.labels != RECYCLES.labels
