"""The commands, and the one place where what they raise becomes a line and an exit code."""

from collections.abc import Sequence

import typer
from pydantic import ValidationError

from emberpool.pool.model.errors import EmberpoolError
from emberpool.worker.cli import demo, dev, doctor, profile, worker
from emberpool.worker.cli.output import print_error
from emberpool.worker.stack.errors import StackError

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
app.command("dev")(dev.command)
app.command("demo")(demo.command)
app.command("doctor")(doctor.command)
app.command("worker")(worker.command)
app.add_typer(profile.app, name="profile")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"emberpool {version('emberpool')}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    debug: bool = typer.Option(False, "--debug", help="Show Python tracebacks of failures."),
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_version, help="Show the version."),
) -> None:
    """Options of every command."""
    ctx.obj = debug
    _Debug.on = debug


class _Debug:
    """Whether tracebacks are wanted; set by the option before a command runs."""

    on = False


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. Raises nothing, unless --debug asks for the traceback."""
    try:
        app(list(arguments), prog_name="emberpool")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return 130
    except StackError as error:
        return _failed(error, str(error), error.remedy, error.log_tail)
    except EmberpoolError as error:
        return _failed(error, Exception.__str__(error), error.remedy)
    except ValidationError as error:
        return _failed(error, *_setting(error))
    except Exception as error:
        what = f"unexpected {type(error).__name__}: {error}"
        return _failed(error, what, "run `emberpool --debug ...` for the traceback, and report it")
    return 0


def _setting(error: ValidationError) -> tuple[str, str]:
    """What is wrong with the first setting that is, by the name of its variable, and the remedy."""
    first = error.errors()[0]
    name = "EMBERPOOL_" + "_".join(str(part) for part in first["loc"]).upper()
    return f"{name} ({error.title}): {first['msg']}", f"correct {name}, or unset it to have the default"


def _failed(error: Exception, what: str, remedy: str, log_tail: str = "") -> int:
    if _Debug.on:
        import traceback

        traceback.print_exception(error)
    print_error(what, remedy, log_tail)
    return 1
