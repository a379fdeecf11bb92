"""The page of the command line, from the commands themselves."""

import re
from typing import Any

import typer

from emberpool.worker.cli.app import app
from reference.markdown import HEAD, code, table


def page() -> str:
    """Every command, with its arguments and options."""
    group: Any = typer.main.get_command(app)
    parts = [f"{HEAD}# Command line\n\nExit status: 0 it worked, 1 it failed, 2 wrong usage, 130 Ctrl-C; ", RUN_STATUS]
    for path, command in _walk("emberpool", group):
        parts.append(f"\n## {path}\n\n{_help(command.help or '')}\n")
        rows = [_row(one) for one in command.params if one.name != "help"]
        if rows:
            parts.append("\n" + table(("option", "default", "meaning"), rows))
    return "".join(parts)


RUN_STATUS = "`emberpool run` ends with the command's own ([Operate](../operating.md#start-from-anywhere)).\n"


def _walk(path: str, command: Any) -> list[tuple[str, Any]]:
    children: dict[str, Any] = getattr(command, "commands", {})
    found = [(path, command)]
    for name, child in children.items():
        found += _walk(f"{path} {name}", child)
    return found


def _help(text: str) -> str:
    """Rich's marks go; an indented line is an example."""
    plain = re.sub(r"\[/?[a-z ]+\]", "", text)
    parts: list[str] = []
    for one in re.split(r"\n\s*\n", plain.replace("\b", "")):
        indented = [line for line in one.split("\n") if line.strip()]
        example = all(line.startswith(" ") for line in indented)
        parts.append("\n".join(f"    {line.strip()}" for line in indented) if example else " ".join(one.split()))
    return "\n\n".join(part for part in parts if part)


def _row(one: Any) -> tuple[str, str, str]:
    named = [name for name in (*one.opts, *one.secondary_opts) if name.startswith("-")]
    name = ", ".join(code(option) for option in named) or code(one.metavar or str(one.name).upper())
    default = "required" if one.required else "" if one.default in (None, False, ()) else code(str(one.default))
    variable = f" Or {code(str(one.envvar))}." if getattr(one, "envvar", None) else ""
    return name, default, (getattr(one, "help", None) or "") + variable
