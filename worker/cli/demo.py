"""`emberpool demo`: the main job on real input, on this machine alone."""

from pathlib import Path
from typing import Annotated

import typer

from emberpool.worker.cli.running import run_until_stopped


def command(
    rollouts_per_task: Annotated[int, typer.Option(min=1, help="Rollouts of each problem.")] = 4,
    problems: Annotated[int | None, typer.Option(min=1, help="How many problems; all of them by default.")] = None,
    pods: Annotated[int | None, typer.Option(min=1, help="Most pods at once; by cores by default.")] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the figures as JSON.")] = None,
    stay: Annotated[
        bool, typer.Option("--stay", help="Keep everything up at the end, to look at it in the UI.")
    ] = False,
    data_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where results, logs and databases are kept.")] = Path(
        ".emberpool/demo"
    ),
    seed: Annotated[int, typer.Option(help="What the scripted policy draws from.")] = 0,
) -> None:
    """Run the HumanEval problems as durable rollouts in warm pods, and show what it cost.

    Starts Temporal, Redis, pods and workers on this machine, and takes them down at the end. No model is asked: a
    scripted policy writes the candidates. Exit status 0 only if every rollout ended as planned.

    [bold]Examples[/bold]

      emberpool demo

      emberpool demo --problems 16 --rollouts-per-task 2 --json figures.json

      emberpool demo --stay
    """
    from emberpool.worker.demo.run import DemoOptions, demo

    options = DemoOptions(
        rollouts_per_task=rollouts_per_task,
        problems=problems,
        pods=pods,
        json=json,
        stay=stay,
        data_dir=data_dir,
        seed=seed,
    )
    raise typer.Exit(run_until_stopped(demo(options)))
