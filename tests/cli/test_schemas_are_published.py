"""docs/schema/ and `emberpool schema`: what the models say, described, and true of what the models accept."""

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures.command_line import emberpool

from emberpool.worker.schema import SCHEMAS, schema_of

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "schema"


def test_the_folder_holds_what_the_command_prints(tmp_path: Path) -> None:
    """One file per name, byte by byte; `make schema` writes them anew."""
    assert {path.stem for path in FOLDER.glob("*.json")} == set(SCHEMAS)
    for name in ("EmberpoolToolCall", "Profile"):
        printed = emberpool("schema", name, cwd=tmp_path)
        assert printed.returncode == 0
        assert printed.stdout == (FOLDER / f"{name}.json").read_text()
    for name in SCHEMAS:
        assert json.loads((FOLDER / f"{name}.json").read_text()) == schema_of(name), name


def test_names_are_listed_and_an_unknown_one_is_told(tmp_path: Path) -> None:
    """Without a name: all of them, within 80 columns; with a wrong one: the names there are."""
    listed = emberpool("schema", cwd=tmp_path, env={"COLUMNS": "80"})
    assert listed.returncode == 0 and all(name in listed.stdout for name in SCHEMAS)
    assert max(len(line) for line in listed.stdout.splitlines()) <= 100
    wrong = emberpool("schema", "Nope", cwd=tmp_path)
    assert wrong.returncode == 1 and "there is no schema 'Nope'" in wrong.stderr


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_inputs_are_closed_and_described(name: str) -> None:
    """An input refuses fields that it does not know, as the models do; fields carry the models' own words."""
    schema = schema_of(name)
    if not SCHEMAS[name][1].startswith("result"):
        assert schema["additionalProperties"] is False
        assert [field for field in _fields(schema) if "description" in field], name
    assert (schema["title"], schema["$comment"]) == (name, SCHEMAS[name][1])


def test_descriptions_are_the_models_own() -> None:
    """The docstring below a field, in parts of a schema too."""
    schema = schema_of("EmberpoolToolCall")
    assert schema["properties"]["wait_timeout_s"]["description"] == "Seconds to wait in line before NoCapacity."
    command = schema["$defs"]["Command"]["properties"]
    assert command["time_limit_s"]["description"].startswith("Seconds after which the whole process tree is killed.")


def _fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    parts = [schema, *schema.get("$defs", {}).values()]
    return [field for part in parts for field in part.get("properties", {}).values()]
