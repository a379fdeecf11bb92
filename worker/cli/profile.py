"""`emberpool profile`: checks profile files, and applies them to a deployment."""

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.profile import Profile, parse_profiles
from emberpool.worker.cli.output import console, print_error, print_json, readable_help


@dataclass(frozen=True)
class Wrong:
    """What is wrong with a file, and what to do about it."""

    field: str
    problem: str
    remedy: str


app = typer.Typer(help="Check and apply profiles.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Check and apply profiles: what one kind of pod is, written as YAML."""


@app.command("check")
@readable_help
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="YAML files, each one profile or a list.")],
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
    raise typer.Exit(1 if any(isinstance(result, Wrong) for _, result in results) else 0)


@app.command("apply")
@readable_help
def apply(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="YAML files, each one profile or a list.")],
) -> None:
    """Write profiles into the deployment's Redis and tell their pool managers. Nothing is written if a file is wrong.

    Running managers take new numbers (max_pods, min_warm) at once, and workers new weights within two seconds; the rest
    workers read as they start. With EMBERPOOL_PROFILES_FILE they read that file, as they start, and nothing of this.

    [bold]Example[/bold]

      EMBERPOOL_REDIS_URL=redis://10.0.0.5 emberpool profile apply profiles/*.yaml
    """
    from emberpool.worker.applying import apply_profiles
    from emberpool.worker.settings import Settings

    results = [_read(file) for file in files]
    wrong = [result for result in results if isinstance(result, Wrong)]
    for result in wrong:
        print_error(f"{result.field}: {result.problem}", result.remedy)
    if wrong:
        raise typer.Exit(1)
    profiles = [profile for result in results if not isinstance(result, Wrong) for profile in result]
    told = asyncio.run(apply_profiles(Settings(), profiles))
    for profile in profiles:
        heard = "its manager has been told" if profile.name in told else "the next worker that starts serves it"
        console().print(f"[green]applied[/] {escape(profile.name)}: {heard}", soft_wrap=True)


def _read(file: Path) -> tuple[Profile, ...] | Wrong:
    try:
        return parse_profiles(file.read_text(), str(file))
    except InvalidInput as error:
        return Wrong(error.field, *_explained(error.problem))
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        return Wrong(str(file), f"cannot be read: {cause}", "name a YAML file that you can read")


def _explained(problem: str) -> tuple[str, str]:
    if problem == "Extra inputs are not permitted":
        return "no such field", f"remove it, or use one of: {', '.join(Profile.model_fields)}"
    if problem == "Field required":
        return "is missing", "add it"
    return problem, "correct the named field and check again"


def _show(file: Path, result: tuple[Profile, ...] | Wrong) -> None:
    if isinstance(result, Wrong):
        print_error(f"{result.field}: {result.problem}", result.remedy)
        return
    out = console()
    out.print(f"[green]ok[/] {escape(str(file))}", soft_wrap=True)
    for profile in result:
        warm = f"{profile.min_warm} warm, at most {profile.max_pods} pods"
        out.print(f"   {profile.name}: {profile.provider}, {profile.isolation}, image {profile.base_image}, {warm}")


def _as_data(file: Path, result: tuple[Profile, ...] | Wrong) -> dict[str, object]:
    if isinstance(result, Wrong):
        return {"file": str(file), "ok": False, **asdict(result)}
    return {"file": str(file), "ok": True, "profiles": [profile.model_dump(mode="json") for profile in result]}
