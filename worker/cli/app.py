"""The commands, and the one place where what they raise becomes a line and an exit code."""

import traceback
from collections.abc import Sequence

import typer

from emberpool.worker.cli import demo, dev, doctor, pool, profile, rollout, schema, worker
from emberpool.worker.cli import run as run_command
from emberpool.worker.cli.explain import explain
from emberpool.worker.cli.output import print_error, readable_help

app = typer.Typer(
    name="emberpool",
    help="Agent tool calls and RL rollouts as durable Temporal activities in warm, isolated pods.",
    epilog="Start with [bold]emberpool doctor[/bold], then [bold]emberpool demo[/bold].",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("dev")(readable_help(dev.command))
app.command("demo")(readable_help(demo.command))
app.command("doctor")(readable_help(doctor.command))
app.command("worker")(readable_help(worker.command))
app.command("run")(readable_help(run_command.command))
app.command("rollout")(readable_help(rollout.command))
app.add_typer(pool.app, name="pool")
app.add_typer(profile.app, name="profile")
app.command("schema")(readable_help(schema.command))


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"emberpool {version('emberpool')}")
        raise typer.Exit


@app.callback()
def options(
    debug: bool = typer.Option(False, "--debug", help="Show Python tracebacks of failures."),
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_version, help="Show the version."),
) -> None:
    """Options of every command."""
    del debug  # Read by `run`, which is where failures end.


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. Raises nothing."""
    try:
        app(list(arguments), prog_name="emberpool")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exception(error)
        words = explain(error)
        print_error(words.cause, words.remedy, words.log_tail)
        return 1
    return 0
