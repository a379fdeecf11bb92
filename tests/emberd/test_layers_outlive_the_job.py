"""Layers: sent once per pod and content, read-only for jobs, there for the caller's next job, and never a way out."""

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from fixtures.emberd import Lease, open_lease, reset

from emberpool.pool.client.layers import place_layer, send_layer
from emberpool.pool.layers.store import Layer, sha256_of
from emberpool.pool.model.errors import InvalidInput, SandboxFileError


def archive(folder: Path, *members: tuple[str, bytes | str | None], kind: bytes | None = None) -> Layer:
    """A tar; a member is a name with bytes (a file), a text (a link to it) or None (a folder)."""
    path = folder / f"{len(list(folder.iterdir()))}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
            elif isinstance(content, str):
                info.type, info.linkname = kind or tarfile.SYMTYPE, content
            else:
                info.size, info.mode = len(content), 0o644
            tar.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return Layer(path, sha256_of(path))


async def sent(lease: Lease, layer: Layer) -> str:
    """Send it and say where jobs see it."""
    return await send_layer(lease.client, lease.pod, lease.proof, layer, "bundle.url")


async def test_a_layer_is_seen_and_placed(lease: Lease, tmp_path: Path) -> None:
    """In both room modes: the job reads it, and finds a copy of its own where it was placed."""
    layer = archive(tmp_path, ("pkg", None), ("pkg/a.py", b"print('from a layer')\n"), ("pkg/b.py", "a.py"))
    path = await sent(lease, layer)
    assert (await lease.sh(f"python3 {path}/pkg/b.py")).text == "from a layer\n"
    await place_layer(lease.client, lease.pod, lease.proof, layer, ".")
    done = await lease.sh("echo '# mine' >> pkg/a.py && readlink pkg/b.py && tail -1 pkg/b.py")
    assert done.text == "a.py\n# mine\n", done.error_text


async def test_no_job_changes_a_layer(room_lease: Lease, tmp_path: Path) -> None:
    """pydantic/pydantic-ai#2332: what the next job of the caller imports is what was sent, whatever this one does."""
    path = await sent(room_lease, archive(tmp_path, ("m.py", b"x = 1\n")))
    tries = f"echo x=2 > {path}/m.py; rm -rf {path}; mv {path} /tmp/; chmod 777 {path}; mount -o remount,rw /layers"
    assert "Read-only" in (await room_lease.sh(tries)).error_text
    assert (await room_lease.sh(f"cat {path}/m.py; ls /layers | wc -l")).text.startswith("x = 1\n")


async def test_the_next_job_of_the_caller_has_it(lease: Lease, tmp_path: Path) -> None:
    """After an attested recycle nothing is sent again: emberd says that it is ready."""
    layer = archive(tmp_path, ("kept", b"kept\n"))
    path = await sent(lease, layer)
    await reset(lease)
    again = open_lease(lease.emberd, lease.client)
    layer.path.unlink()  # so that nothing could be sent
    assert await sent(again, layer) == path
    assert (await again.sh(f"cat {path}/kept")).text == "kept\n"


async def test_a_layer_is_its_hash(lease: Lease, tmp_path: Path) -> None:
    """Other bytes under a layer's name are refused, and nothing of them is kept."""
    other = archive(tmp_path, ("a", b"a"))
    wrong = Layer(other.path, hashlib.sha256(b"something else").hexdigest())
    with pytest.raises(InvalidInput, match="bundle.url: its SHA-256 is"):
        await sent(lease, wrong)
    assert (await lease.client.call(lease.pod, lease.proof, "GET", f"/v1/layer/{wrong.sha256}")).body.count(b"absent")


@pytest.mark.parametrize(
    ("members", "kind", "told"),
    [
        ((("../out", b"x"),), None, "'../out'"),
        ((("/etc/out", b"x"),), None, "'/etc/out'"),
        ((("a/../../out", b"x"),), None, "'a/../../out'"),
        ((("up", "../.."),), None, "'up' is a link out of the folder, to '../..'"),
        ((("abs", "/etc/passwd"),), None, "'abs' is a link out of the folder, to '/etc/passwd'"),
        ((("d", None), ("l", "d"), ("l/f", b"x")), None, "'l/f' passes through 'l'"),
        ((("d/e/l", ".."), ("m", "d/e/l/../../..")), None, "'m' is a link out of the folder, to 'd/e/l/../../..'"),
        ((("h", "/etc/passwd"),), tarfile.LNKTYPE, "'h' is a link out of the folder, to '/etc/passwd'"),
        ((("fifo", "x"),), tarfile.FIFOTYPE, "'fifo' is neither"),
        ((("null", "x"),), tarfile.CHRTYPE, "'null' is neither"),
    ],
)
async def test_an_entry_that_leads_out_is_refused_by_name(
    lease: Lease, tmp_path: Path, members: tuple[tuple[str, bytes | str | None], ...], kind: bytes | None, told: str
) -> None:
    """Whatever way it takes; the pod goes on."""
    with pytest.raises(InvalidInput) as raised:
        await sent(lease, archive(tmp_path, *members, kind=kind))
    assert told in str(raised.value)
    assert (await lease.sh("true")).ok


async def test_zip_archives_are_layers_too(lease: Lease, tmp_path: Path) -> None:
    """With their modes; an entry that leads out is refused as well."""
    good, bad = tmp_path / "good.zip", tmp_path / "bad.zip"
    with zipfile.ZipFile(good, "w") as file:
        info = zipfile.ZipInfo("bin/run")
        info.external_attr = 0o755 << 16
        file.writestr(info, "#!/bin/sh\necho ran\n")
    path = await sent(lease, Layer(good, sha256_of(good)))
    assert (await lease.sh(f"{path}/bin/run")).text == "ran\n"
    with zipfile.ZipFile(bad, "w") as file:
        file.writestr("../out", "x")
    with pytest.raises(InvalidInput, match=r"'\.\./out'"):
        await sent(lease, Layer(bad, sha256_of(bad)))


async def test_a_transfer_goes_on_where_it_was_cut(lease: Lease, tmp_path: Path) -> None:
    """Parts that are there are not sent again, and one that is repeated changes nothing."""
    layer = archive(tmp_path, ("big", bytes(range(256)) * 4096))
    data = layer.path.read_bytes()
    target = f"/v1/layer/{layer.sha256}?offset="
    for offset, part in ((0, data[:100]), (0, data[:200]), (100, data[100:300])):
        await lease.client.call(lease.pod, lease.proof, "PUT", f"{target}{offset}", part)
    told = await lease.client.call(lease.pod, lease.proof, "GET", f"/v1/layer/{layer.sha256}")
    assert b'"received": 300' in told.body
    path = await sent(lease, layer)
    assert (await lease.sh(f"wc -c < {path}/big")).text.strip() == str(256 * 4096)


async def test_a_layer_is_not_placed_where_a_job_may_not_write(room_lease: Lease, tmp_path: Path) -> None:
    """It is copied with the job's own rights, by a process in the room."""
    layer = archive(tmp_path, ("f", b"x"))
    await sent(room_lease, layer)
    with pytest.raises(SandboxFileError):
        await place_layer(room_lease.client, room_lease.pod, room_lease.proof, layer, "/usr/lib/mine")
