"""The worker's layers: one making for many askers, bounded on disk, the same on every worker."""

import asyncio
import hashlib
import os
import time
from pathlib import Path

import pytest
from fixtures.package_index import package_index
from fixtures.waiting import wait_until

from emberpool.pool.layers.dependencies import Resolver, site_maker, site_name
from emberpool.pool.layers.python import JobPython
from emberpool.pool.layers.store import LayerStore
from emberpool.pool.model.errors import InvalidInput, PoolUnavailable

PYTHON = JobPython(version="3.11.2", machine="x86_64", libc="2.36")


def name(text: str) -> str:
    """A layer's name."""
    return f"site-{hashlib.sha256(text.encode()).hexdigest()}"


def fill(into: Path, data: bytes) -> None:
    """What a maker does."""
    into.write_bytes(data)


async def in_folder(folder: Path, count: int) -> bool:
    """Whether that many files are there."""
    return len(os.listdir(folder)) == count


async def test_a_damaged_bundle_is_fetched_anew(tmp_path: Path) -> None:
    """What lies on the worker's disk is held to its hash too, by every process that uses it."""
    kept = f"bundle-{hashlib.sha256(b'good').hexdigest()}"
    (tmp_path / "l").mkdir(mode=0o700)
    (tmp_path / "l" / f"{kept}.layer").write_bytes(b"bad")
    store = LayerStore(tmp_path / "l", 1 << 20)
    with pytest.raises(PoolUnavailable, match="damaged"):
        async with store.layer(kept, lambda into: asyncio.to_thread(fill, into, b"good")):
            raise AssertionError
    async with store.layer(kept, lambda into: asyncio.to_thread(fill, into, b"good")) as layer:
        assert layer.path.read_bytes() == b"good"


async def test_many_askers_share_one_making(tmp_path: Path) -> None:
    """Also its failure; the next asker tries again."""
    store, made, gate = LayerStore(tmp_path / "l", 1 << 20), 0, asyncio.Event()

    async def make(into: Path) -> None:
        nonlocal made
        made += 1
        await gate.wait()
        if made == 1:
            raise InvalidInput("requirements", "not this time")
        fill(into, b"layer")

    async def ask() -> str:
        async with store.layer(name("a"), make) as layer:
            return layer.sha256

    asking = [asyncio.create_task(ask()) for _ in range(20)]
    await asyncio.sleep(0)
    gate.set()
    ends = await asyncio.gather(*asking, return_exceptions=True)
    assert made == 1 and all(isinstance(end, InvalidInput) for end in ends)
    assert await asyncio.gather(*(ask() for _ in range(20))) == [hashlib.sha256(b"layer").hexdigest()] * 20
    assert made == 2


async def test_a_making_that_nobody_waits_for_is_cancelled(tmp_path: Path) -> None:
    """And leaves no file behind."""
    store, cancelled, begun = LayerStore(tmp_path / "l", 1 << 20), asyncio.Event(), asyncio.Event()

    async def make(into: Path) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def ask() -> None:
        async with store.layer(name("a"), make):
            raise AssertionError

    asking = asyncio.create_task(ask())
    await begun.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    async with store.layer(name("a"), lambda into: asyncio.to_thread(fill, into, b"anew")) as layer:
        assert layer.path.read_bytes() == b"anew"  # not the one that is being cancelled
    async with asyncio.timeout(5):
        await cancelled.wait()
    await wait_until(lambda: in_folder(tmp_path / "l", 1))


async def test_the_disk_is_bounded(tmp_path: Path) -> None:
    """What was used longest ago goes first, and nothing that is in use."""
    store = LayerStore(tmp_path / "l", 250)

    async def make(into: Path) -> None:
        fill(into, b"x" * 100)

    async with store.layer(name("in use"), make) as held:
        for number in range(4):
            async with store.layer(name(str(number)), make) as layer:
                past = time.time() - 100 + number
            os.utime(layer.path, (past, past))
        assert held.path.exists()
    async with store.layer(name("last"), make):
        left = {path.stem for path in (tmp_path / "l").glob("*.layer")}
    assert len(left) == 2 and name("last") in left


async def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    """Else somebody beside the worker decides what jobs import."""
    (tmp_path / "l").mkdir()
    (tmp_path / "l").chmod(0o777)

    async def make(into: Path) -> None:
        fill(into, b"")

    with pytest.raises(InvalidInput, match="^layer_dir: "):
        async with LayerStore(tmp_path / "l", 1).layer(name("a"), make):
            raise AssertionError


async def test_workers_make_the_same_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte: a pod that has it from one worker needs it from no other."""
    hashes: list[str] = []
    with package_index(tmp_path / "index") as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
        for worker in ("one", "two"):
            monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / worker / "uv"))
            lock = await Resolver().lock("ember-greeting<2", PYTHON)
            assert "ember-words==1.5" in lock and "--hash=sha256:" in lock
            store = LayerStore(tmp_path / worker / "layers", 1 << 20)
            async with store.layer(site_name(lock, PYTHON), site_maker(lock, PYTHON)) as layer:
                hashes.append(layer.sha256)
    assert hashes[0] == hashes[1]


def test_a_layer_is_named_after_lock_and_python() -> None:
    """Another version or C library is another layer."""
    other = PYTHON.model_copy(update={"version": "3.12.0"})
    musl = PYTHON.model_copy(update={"libc": ""})
    assert len({site_name("a==1", python) for python in (PYTHON, other, musl)}) == 3
    assert (PYTHON.platform, musl.platform) == ("x86_64-manylinux_2_36", "x86_64-unknown-linux-musl")
