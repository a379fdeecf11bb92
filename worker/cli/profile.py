"""`emberpool profile`: checks of profile files."""

from pathlib import Path
from typing import Annotated

import typer

from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.profile import Profile, parse_profiles
from emberpool.worker.cli.output import console, print_error, print_json

app = typer.Typer(help="Check profiles.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Check profiles: what one kind of pod is, written as YAML."""


@app.command("check")
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="YAML files, each one profile or a list.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a list for machines.")] = False,
) -> None:
    """Check profile files; name each wrong field and what to do about it. Exit status 1 if any is wrong.

    [bold]Example[/bold]

      emberpool profile check profiles/*.yaml
    """
    results = [(file, _read(file)) for file in files]
    if as_json:
        print_json([_as_data(file, result) for file, result in results])
    else:
        for file, result in results:
            _show(file, result)
    raise typer.Exit(1 if any(isinstance(result, InvalidInput) for _, result in results) else 0)


def _read(file: Path) -> tuple[Profile, ...] | InvalidInput:
    try:
        return parse_profiles(file.read_text(), str(file))
    except InvalidInput as error:
        return error
    except (OSError, UnicodeDecodeError) as error:
        return InvalidInput(str(file), f"cannot be read: {getattr(error, 'strerror', None) or error}")


def _show(file: Path, result: tuple[Profile, ...] | InvalidInput) -> None:
    if isinstance(result, InvalidInput):
        print_error(f"{result.field}: {result.problem}", InvalidInput.remedy.replace("call", "check"))
        return
    out = console()
    out.print(f"[green]ok[/] {file}", soft_wrap=True)
    for profile in result:
        warm = f"{profile.min_warm} warm, at most {profile.max_pods} pods"
        out.print(f"   {profile.name}: {profile.provider}, {profile.isolation}, image {profile.base_image}, {warm}")


def _as_data(file: Path, result: tuple[Profile, ...] | InvalidInput) -> dict[str, object]:
    if isinstance(result, InvalidInput):
        remedy = InvalidInput.remedy.replace("call", "check")
        return {"file": str(file), "ok": False, "field": result.field, "problem": result.problem, "remedy": remedy}
    return {"file": str(file), "ok": True, "profiles": [profile.model_dump(mode="json") for profile in result]}
