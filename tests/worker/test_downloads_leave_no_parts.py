"""What a killed attempt of a download left beside its local target is gone after the next attempt."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from emberpool.activities.blobs import Place
from emberpool.activities.sinks import save
from emberpool.pool.client.transfers import Incoming
from emberpool.pool.emberd.archive import Packer


async def file(data: bytes) -> AsyncGenerator[bytes]:
    yield data


async def never(data: bytes) -> AsyncGenerator[bytes]:
    yield data
    raise KeyError("killed")


def place(path: Path) -> Place:
    return Place(f"file://{path}", "file", str(path))


def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a sink that is dropped stays as a killed worker leaves it."""

    def close_file(sink: Any) -> None:
        sink._file.close()

    def close_unpacker(sink: Any) -> None:
        sink._unpacker.close()

    monkeypatch.setattr("emberpool.activities.sinks.LocalFile.drop", close_file)
    monkeypatch.setattr("emberpool.activities.sinks.LocalFolder.drop", close_unpacker)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("folder", [False, True])
async def test_the_next_attempt_removes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool, there: bool
) -> None:
    """Of a file and of a folder, beside a target and in one that is there; another call's part is left alone."""
    source, root = tmp_path / "source", tmp_path / "root"
    source.mkdir()
    root.mkdir()
    (source / "f").write_text("x")
    target = root / "target"
    if there and folder:
        target.mkdir()
    elif there:
        target.write_text("before")
    data = b"".join(Packer(bytes(source)).pieces()) if folder else b"x"
    with monkeypatch.context() as patched:
        killed(patched)
        for owner in ("ours", "other"):
            with pytest.raises(KeyError):
                await save(Incoming(folder, None, 0o644, never(data)), place(target), 9999, lambda _: None, owner)
    assert len(list(root.rglob(".emberpool-*.part"))) == 2
    await save(Incoming(folder, None, 0o644, file(data)), place(target), 9999, lambda _: None, "ours")
    assert len(list(root.rglob(".emberpool-*.part"))) == 1
    assert (target / "f" if folder else target).read_text() == "x"
