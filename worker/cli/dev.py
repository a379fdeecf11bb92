"""`emberpool dev`: the whole of emberpool on this machine, for as long as it is wanted."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.profile import Profile, parse_profiles
from emberpool.worker.cli.output import console, print_pairs
from emberpool.worker.cli.running import run_until_stopped

if TYPE_CHECKING:
    from emberpool.worker.stack.embedded import StackOptions

DEFAULT_DATA_DIR = Path(".emberpool")
TEMPORAL_PORT, UI_PORT = 7233, 8233
"""Where Temporal's own tools look for a server on this machine."""


def command(
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Keep everything in memory and in a temporary folder.")
    ] = False,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where all is kept; ./.emberpool by default.")
    ] = None,
    profiles: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Profiles to serve; one named 'default' by default.")
    ] = None,
    temporal_port: Annotated[int | None, typer.Option(min=1, max=65535, help="7233 by default, if it is free.")] = None,
    ui_port: Annotated[int | None, typer.Option(min=1, max=65535, help="8233 by default, if it is free.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
) -> None:
    """Run Temporal, Redis, local pods and workers on this machine until Ctrl-C.

    Workflows may read and write files (uploads, tasks, results) below the folder where it is started.

    Set TEMPORAL_ADDRESS or EMBERPOOL_REDIS_URL to use a server of your own instead of the one that is started here.

    [bold]Examples[/bold]

      emberpool dev

      emberpool dev --ephemeral --profiles profiles.yaml --ui-port 8233
    """
    from emberpool.worker.stack.embedded import StackOptions
    from emberpool.worker.stack.ports import usual_port

    with _data_dir(data_dir, ephemeral) as folder:
        options = StackOptions(
            data_dir=folder,
            ephemeral=ephemeral,
            profiles=_profiles(profiles),
            allowed_urls=(Path.cwd().as_uri(),),  # for `emberpool rollout --results DIR` in the same folder
            temporal_port=temporal_port or usual_port(TEMPORAL_PORT),
            ui_port=ui_port or usual_port(UI_PORT),
            workers=workers,
        )
        # It runs until it is stopped: to be stopped is no failure.
        code = run_until_stopped(_serve(options), on_sigterm=0)
    raise typer.Exit(code)


async def _serve(options: "StackOptions") -> int:
    from emberpool.worker.stack.embedded import EmbeddedStack

    out = console()
    out.print("starting ...", style="dim")
    async with EmbeddedStack(options) as stack:
        print_pairs("emberpool is up", stack.summary())
        out.print("Ctrl-C takes it down.", style="dim")
        await stack.wait()
    return 1


@contextmanager
def _data_dir(asked: Path | None, ephemeral: bool) -> Generator[Path]:
    if asked is not None or not ephemeral:
        yield asked or DEFAULT_DATA_DIR
        return
    folder = tempfile.mkdtemp(prefix="emberpool-dev-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _profiles(file: Path | None) -> tuple[Profile, ...]:
    if file is None:
        return (Profile(name="default", min_warm=1, max_pods=2 * (os.cpu_count() or 1)),)
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("--profiles", f"{file} cannot be read: {error}") from error
    return parse_profiles(text, str(file))
