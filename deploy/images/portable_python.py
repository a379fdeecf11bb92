"""emberd and a Python that need nothing of the image that they are mounted into: no Python, no C library of its kind.

Copies the Python that runs this, its standard library, and every shared library of both, the loader among them, into a
folder. Started through that loader, with that folder's libraries and no other, it runs as well where the C library is
musl, another glibc, or none:

    python3 -I portable_python.py FOLDER EMBERD
    FOLDER/lib/ld.so --inhibit-cache --library-path FOLDER/lib FOLDER/bin/python3 -I FOLDER/emberd/main.py
"""

import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

LOADER = "ld.so"
LEFT_OUT = (
    "__pycache__",
    "config-*",
    "dist-packages",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "sitecustomize.py",
    "test",
    "tests",
    "tkinter",
    "turtledemo",
    "venv",
)
"""Of the standard library: what no daemon needs. sitecustomize.py is the distribution's."""
NOT_NEEDED = ("_curses", "_dbm", "_gdbm", "_sqlite3", "_test", "_tkinter", "_xx", "nis", "readline", "xxlimited")
"""Compiled modules that emberd does not import; they would bring libraries along."""


def main(folder: Path, emberd: Path) -> None:
    """Write the folder, compiled. It may lie anywhere afterwards."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "python3"
    shutil.copy2(os.path.realpath(sys.executable), program)
    library = folder / "lib" / version
    ignored = shutil.ignore_patterns(*LEFT_OUT)
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=ignored)
    for module in _modules(library):
        if module.name.startswith(NOT_NEEDED):
            module.unlink()
    shutil.copytree(emberd, folder / "emberd", ignore=shutil.ignore_patterns("__pycache__"))
    for name, path in _libraries([Path(os.path.realpath(sys.executable)), *_modules(library)]):
        shutil.copy2(path, folder / "lib" / name)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for tree in (library, folder / "emberd"):
        compileall.compile_dir(str(tree), quiet=2, ddir=f"/{tree.relative_to(folder)}", invalidation_mode=mode)


def _modules(library: Path) -> list[Path]:
    """Its compiled modules."""
    return sorted((library / "lib-dynload").glob("*.so"))


def _libraries(files: list[Path]) -> Iterator[tuple[str, Path]]:
    """Name and place of every shared library that these load, without doubles.

    Raises:
        SystemExit: one of them is not found.
    """
    seen: set[str] = set()
    for file in files:
        said = subprocess.run(["ldd", str(file)], stdout=subprocess.PIPE, text=True).stdout
        if "not found" in said:
            raise SystemExit(f"{file} lacks a library:\n{said}")
        for found in re.finditer(r"^\s*(?:(\S+) => )?(/\S+) \(0x", said, re.MULTILINE):
            path = Path(found[2])
            # The one that no library asks for by name, but the kernel.
            name = found[1] or LOADER
            if name not in seen:
                seen.add(name)
                yield name, path


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
