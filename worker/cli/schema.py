"""`emberpool schema`: the JSON Schema of an input, for editors, validators and programs in other languages."""

from typing import Annotated

import typer

from emberpool.pool.model.errors import InvalidInput
from emberpool.worker.cli.output import console, print_json


def command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which one; all names without it.")] = None,
) -> None:
    """Print the JSON Schema of a workflow's input, a task line, a profile or a result.

    [bold]Examples[/bold]

      emberpool schema

      emberpool schema EmberpoolToolCall > tool-call.json
    """
    from emberpool.worker.schema import SCHEMAS, schema_of

    if name is None:
        _list()
    elif name in SCHEMAS:
        print_json(schema_of(name))
    else:
        raise InvalidInput("NAME", f"there is no schema {name!r}; there are: {', '.join(SCHEMAS)}")


def _list() -> None:
    from rich.table import Table

    from emberpool.worker.schema import SCHEMAS

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", style="dim")
    for name, (_, purpose) in SCHEMAS.items():
        table.add_row(name, purpose)
    console().print(table)
