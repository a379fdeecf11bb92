"""`emberpool pool`: what every pool does at this moment, and its budget."""

import asyncio
import json
import subprocess

from fixtures.command_line import EMBERPOOL, clean_env
from fixtures.stack import Site
from fixtures.waiting import wait_until


async def pool(site: Site, *arguments: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    """`emberpool pool ...` for the site's deployment."""
    where = {
        "TEMPORAL_ADDRESS": site.client.service_client.config.target_host,
        "EMBERPOOL_DEPLOYMENT": site.settings.deployment,
        "COLUMNS": str(columns),
    }
    argv = [*EMBERPOOL, "pool", *arguments]
    process = await asyncio.create_subprocess_exec(
        *argv, env=clean_env(where), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 60.0)
    return subprocess.CompletedProcess(argv, process.returncode or 0, out.decode(), err.decode())


async def warm(site: Site, pods: int) -> None:
    """Wait until so many unused pods are there."""

    async def reached() -> bool:
        return (await site.index.counts()).idle_fresh == pods

    await wait_until(reached)


async def test_status_counts_at_this_moment(site: Site) -> None:
    """The table fits 80 columns without colour codes; JSON has the index's own counts, not those of the last plan."""
    await warm(site, 1)
    table = await pool(site, "status")
    assert (table.returncode, table.stderr) == (0, "")
    assert max(len(line) for line in table.stdout.splitlines()) <= 80 and "\x1b" not in table.stdout
    head, row = table.stdout.splitlines()
    assert head.split()[:3] == ["pool", "pods", "start"] and row.split()[:2] == ["py", "1/3"]
    (data,) = json.loads((await pool(site, "status", "py", "--json")).stdout)
    assert (data["fresh"], data["pods"]["idle"], data["max_pods"]) == (True, 1, 3)


async def test_budget_and_drain_take_effect(site: Site) -> None:
    """The answer comes after the manager took the signal; drain waits until the pool is empty."""
    await warm(site, 1)
    raised = await pool(site, "budget", "py", "--max-pods", "2", "--min-warm", "2", "--json")
    data = json.loads(raised.stdout)
    assert (raised.returncode, data["max_pods"], data["min_warm"]) == (0, 2, 2)
    await warm(site, 2)
    drained = await pool(site, "drain", "py", "--wait", "30", "--json")
    assert drained.returncode == 0 and not any(json.loads(drained.stdout)["pods"].values())
    assert sum((await site.index.counts()).by_state.values()) == 0


async def test_top_is_for_pipes_too(site: Site) -> None:
    """Without a terminal each look is a table of its own, with its time."""
    done = await pool(site, "top", "py", "--count", "2", "--interval", "0.2")
    assert done.returncode == 0 and "\x1b" not in done.stdout
    assert sum(line.startswith("py ") for line in done.stdout.splitlines()) == 2


async def test_what_cannot_be_is_told(site: Site) -> None:
    """An unknown pool and a warm target above the ceiling are failures with a remedy, and change nothing."""
    for arguments in (("status", "nope"), ("drain", "nope"), ("budget", "nope", "--max-pods", "1")):
        done = await pool(site, *arguments)
        assert done.returncode == 1 and "no pool 'nope'" in done.stderr and "remedy:" in done.stderr
    done = await pool(site, "budget", "py", "--max-pods", "1", "--min-warm", "2")
    assert done.returncode == 1 and "--min-warm: 2 is above --max-pods 1" in done.stderr
