"""`emberpool worker`: one worker process, set up by the environment."""

import typer

from emberpool.worker.cli.running import run_until_stopped

HELP = """Run one worker until it is stopped. Its settings come from EMBERPOOL_* and TEMPORAL_* variables.

[bold]Example[/bold]

  EMBERPOOL_REDIS_URL=redis://10.0.0.5:6379/0 emberpool worker
"""


def command() -> None:
    """Run the worker; SIGTERM is a wish, not a failure, and ends it with 0."""
    raise typer.Exit(run_until_stopped(_work(), on_sigterm=0))


command.__doc__ = HELP


async def _work() -> int:
    from emberpool.worker.run import run_worker
    from emberpool.worker.settings import Settings

    settings = Settings()
    names = ", ".join(profile.name for profile in settings.all_profiles()) or "those applied"

    def ready(metrics: str) -> None:
        told = f", metrics {metrics}" if metrics else ""
        print(f"emberpool worker ready: task queue {settings.task_queue}, profiles {names}{told}", flush=True)

    await run_worker(settings, on_ready=ready)
    return 0
