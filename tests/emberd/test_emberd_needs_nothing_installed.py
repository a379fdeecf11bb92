"""emberd runs on a bare Python: it imports the standard library, the one of 3.8, and its own modules only."""

import ast
import sys
from pathlib import Path

import pytest
from fixtures.emberd import EMBERD

MODULES = sorted(EMBERD.glob("*.py"))


def imported(module: Path) -> set[str]:
    """Full names of everything that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_only_the_standard_library_is_imported(module: Path) -> None:
    """No package, and nothing of emberpool outside the folder."""
    for name in imported(module):
        assert name.split(".")[0] in sys.stdlib_module_names or name.startswith("emberpool.pool.emberd"), name


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_it_is_python_3_8(module: Path) -> None:
    """Its syntax is that of the oldest version promised."""
    ast.parse(module.read_text(), feature_version=(3, 8))
