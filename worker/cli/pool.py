"""`emberpool pool`: what the pools are doing, and their budgets."""

import asyncio
import time
from typing import TYPE_CHECKING, Annotated

import typer

from emberpool.pool.model.errors import InvalidInput
from emberpool.worker.cli.output import console, print_json, readable_help
from emberpool.worker.cli.running import run_until_stopped
from emberpool.worker.cli.temporal import Address, AsJson, Deployment, Namespace, TemporalProfile

if TYPE_CHECKING:
    from emberpool.worker.cli.pools import Pools
    from emberpool.worker.run import Reach

HELP = "Look at pools, change their budgets, drain them."
SETTLE_S = 10.0
"""A manager that runs answers a signal well within this."""

app = typer.Typer(help=HELP, no_args_is_help=True)

ProfileName = Annotated[str, typer.Argument(metavar="PROFILE", help="Whose pool.")]
AnyProfile = Annotated[str | None, typer.Argument(metavar="PROFILE", help="Whose pool; every pool without it.")]
Everywhere = Annotated[bool, typer.Option("--all", help="Pools of every deployment.")]


@app.callback()
def group() -> None:
    """Look at pools, change their budgets, drain them."""


@app.command("status")
@readable_help
def status(
    profile: AnyProfile = None,
    everywhere: Everywhere = False,
    as_json: AsJson = False,
    address: Address = None,
    namespace: Namespace = None,
    temporal_profile: TemporalProfile = None,
    deployment: Deployment = "default",
) -> None:
    """Show each pool: budget, pods by state, who waits. Exit status 1 if there is none, or one's last plan failed.

    [bold]Examples[/bold]

      emberpool pool status

      emberpool pool status default --json | jq '.[0].waiting'
    """
    reach = _reach(address, namespace, temporal_profile)
    raise typer.Exit(run_until_stopped(_status(reach, None if everywhere else deployment, profile, as_json)))


@app.command("top")
@readable_help
def top(
    profile: AnyProfile = None,
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.2)] = 2.0,
    count: Annotated[int | None, typer.Option(min=1, help="Looks; until Ctrl-C by default.")] = None,
    everywhere: Everywhere = False,
    address: Address = None,
    namespace: Namespace = None,
    temporal_profile: TemporalProfile = None,
    deployment: Deployment = "default",
) -> None:
    """Watch the pools: one table that is renewed, or in a pipe one after the other.

    [bold]Examples[/bold]

      emberpool pool top

      emberpool pool top default --interval 10 --count 6 >> pool.log
    """
    reach = _reach(address, namespace, temporal_profile)
    work = _top(reach, None if everywhere else deployment, profile, interval, count)
    raise typer.Exit(run_until_stopped(work, on_sigterm=0))


@app.command("budget")
@readable_help
def budget(
    profile: ProfileName,
    max_pods: Annotated[int, typer.Option(min=0, help="Ceiling; starting and dying pods count.")],
    min_warm: Annotated[int | None, typer.Option(min=0, help="Pods kept warm; unchanged by default.")] = None,
    as_json: AsJson = False,
    address: Address = None,
    namespace: Namespace = None,
    temporal_profile: TemporalProfile = None,
    deployment: Deployment = "default",
) -> None:
    """Change a pool's budget. It holds until the next change; held pods are never taken away.

    [bold]Example[/bold]

      emberpool pool budget default --max-pods 40 --min-warm 8
    """
    reach = _reach(address, namespace, temporal_profile)
    raise typer.Exit(run_until_stopped(_budget(reach, deployment, profile, max_pods, min_warm, as_json)))


@app.command("drain")
@readable_help
def drain(
    profile: ProfileName,
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="Wait until it is empty.")] = 0.0,
    as_json: AsJson = False,
    address: Address = None,
    namespace: Namespace = None,
    temporal_profile: TemporalProfile = None,
    deployment: Deployment = "default",
) -> None:
    """Set a pool's budget to zero: held pods finish, all others go. `pool budget` fills it again.

    Exit status 1 if it is not empty when --wait is over.

    [bold]Example[/bold]

      emberpool pool drain default --wait 600 && kubectl drain node-7
    """
    reach = _reach(address, namespace, temporal_profile)
    raise typer.Exit(run_until_stopped(_drain(reach, deployment, profile, wait, as_json)))


def _reach(address: str | None, namespace: str | None, temporal_profile: str | None) -> "Reach":
    from emberpool.worker.run import Reach

    return Reach(address, namespace, temporal_profile)


async def _status(reach: "Reach", deployment: str | None, profile: str | None, as_json: bool) -> int:
    from emberpool.worker.cli.pools import Pools, as_data
    from emberpool.worker.cli.pools_table import pools_table

    looks = await (await Pools.connect(reach)).look(deployment, profile)
    if as_json:
        print_json([as_data(look) for look in looks])
    elif looks:
        console().print(pools_table(looks, with_deployment=deployment is None))
    if not looks:
        raise InvalidInput("PROFILE", _none(deployment, profile))
    return 1 if any(look.status.failure for look in looks) else 0


async def _top(reach: "Reach", deployment: str | None, profile: str | None, interval: float, count: int | None) -> int:
    from rich.live import Live

    from emberpool.worker.cli.pools import Pools
    from emberpool.worker.cli.pools_table import pools_table

    pools = await Pools.connect(reach)
    out = console()
    with Live(console=out, auto_refresh=False, transient=False) as live:
        looked = 0
        while count is None or looked < count:
            if looked:
                await asyncio.sleep(interval)
            looks = await pools.look(deployment, profile)
            if not looks:
                raise InvalidInput("PROFILE", _none(deployment, profile))
            table = pools_table(looks, with_deployment=deployment is None, title=time.strftime("%H:%M:%S"))
            if out.is_terminal:
                live.update(table, refresh=True)
            else:
                out.print(table)
            looked += 1
    return 0


async def _budget(
    reach: "Reach", deployment: str, profile: str, max_pods: int, min_warm: int | None, as_json: bool
) -> int:
    from emberpool.worker.cli.pools import Pools
    from emberpool.workflows.pool_manager import Budget

    if min_warm is not None and min_warm > max_pods:
        raise InvalidInput("--min-warm", f"{min_warm} is above --max-pods {max_pods}")
    pools = await Pools.connect(reach)
    await pools.set_budget(deployment, profile, Budget(max_pods=max_pods, min_warm=min_warm))
    return await _shown(pools, deployment, profile, as_json)


async def _drain(reach: "Reach", deployment: str, profile: str, wait_s: float, as_json: bool) -> int:
    from emberpool.worker.cli.pools import Pools

    pools = await Pools.connect(reach)
    await pools.drain(deployment, profile)
    empty = await pools.emptied(deployment, profile, wait_s) if wait_s else True
    await _shown(pools, deployment, profile, as_json)
    return 0 if empty else 1


async def _shown(pools: "Pools", deployment: str, profile: str, as_json: bool) -> int:
    from emberpool.worker.cli.pools import as_data
    from emberpool.worker.cli.pools_table import pools_table

    (look,) = await pools.look(deployment, profile)
    if as_json:
        print_json(as_data(look))
    else:
        console().print(pools_table([look], with_deployment=False))
    return 0


def _none(deployment: str | None, profile: str | None) -> str:
    where = "any deployment" if deployment is None else f"deployment {deployment!r}"
    which = "no pool" if profile is None else f"no pool {profile!r}"
    return f"{which} in {where}: start a worker that serves its profile, or name another with --deployment or --all"
