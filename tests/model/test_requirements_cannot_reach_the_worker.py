"""Requirements are text of a caller's, read by uv on the worker: only names and versions pass."""

import pytest

from emberpool.pool.layers.requirements import checked_requirements, held_to
from emberpool.pool.model.binding import Binding, Bundle
from emberpool.pool.model.errors import InvalidInput
from emberpool.pool.model.inputs import checked

LOCK = "idna==3.10 \\\n    --hash=sha256:12f6 \\\n    --hash=sha256:946d\n"


@pytest.mark.parametrize(
    "text",
    [
        "numpy",
        "requests[socks,security]>=2,<3  # a comment",
        "a.b-c_d ~= 1.4.2",
        "x!=1.5,>=1; python_version < '3.9' and sys_platform == 'linux'",
        'importlib-metadata==8.* ; extra == "test"',
        "pinned===1.0+local.7",
        "epoch==1!2.0",
        "(wrapped)"[1:-1] + " (>=1)",
        LOCK,
    ],
)
def test_names_and_versions_pass(text: str) -> None:
    """What pip and uv write into a requirements file or a lock."""
    assert checked_requirements(text)


@pytest.mark.parametrize(
    "text",
    [
        "-r /etc/passwd",
        "--index-url http://evil/",
        "-e .",
        "-c /etc/shadow",
        "./here",
        "/etc/passwd",
        "file:///etc/passwd",
        "a @ file:///etc/passwd",
        "a@https://evil/a.whl",
        "git+https://evil/a",
        "https://evil/a.whl",
        "a --config-settings=x=y",
        "a==1 --hash=sha256:12 -r /etc/passwd",
        "a ; -r /etc/passwd",
        "a.whl /etc/passwd",
        "${HOME}",
    ],
)
def test_nothing_that_opens_a_file_or_a_url_passes(text: str) -> None:
    """InvalidInput names the field and quotes the line."""
    with pytest.raises(InvalidInput, match="^requirements: "):
        checked_requirements(f"numpy\n{text}")


RESOLVED = "a-b==1.0 \\\n    --hash=sha256:0a\na==2.0 \\\n    --hash=sha256:0b \\\n    --hash=sha256:0c\n"
HELD = "a-b==1.0 \\\n    --hash=sha256:0a\na==2.0 \\\n    --hash=md5:0e \\\n    --hash=sha256:ff\n"


@pytest.mark.parametrize(
    ("given", "lock"),
    [
        ("a-b\na>=2", RESOLVED),
        (RESOLVED, RESOLVED),
        ("A_b==1.0 --hash=sha256:0a\nother==1 --hash=sha256:0d", RESOLVED),
        ("a==2.0 --hash=sha256:ff --hash=md5:0e", HELD),
        ("a[x]==2.0 ; python_version>'3' --hash=md5:0e\na>=2 --hash=sha256:ff", HELD),
    ],
)
def test_hashes_that_are_given_are_those_of_the_lock(given: str, lock: str) -> None:
    """Of every package that any are given for, under whatever spelling of its name; the others keep the resolver's."""
    assert held_to(RESOLVED, given) == lock


def test_the_fingerprint_covers_what_stays_in_a_pod() -> None:
    """Bundle and requirements, whatever their order and comments; never a secret, never where the bundle is from."""
    one, other = ("a" * 64, "b" * 64)
    binding = Binding(bundle=Bundle(url="file:///x", sha256=one), requirements="b\na # why\n")
    same = Binding.model_validate(
        {"bundle": {"url": "s3://y/z", "sha256": one}, "requirements": "a\n\nb", "secrets": {"K": "env:K"}}
    )
    assert binding.fingerprint() == same.fingerprint() != ""
    assert binding.fingerprint() != Binding(bundle=Bundle(url="file:///x", sha256=other)).fingerprint()
    assert Binding.model_validate({"secrets": {"K": "env:K"}}).fingerprint() == ""


@pytest.mark.parametrize(
    "text", ["hunter2", "env:", "env:A B", "file:../x", "file:/etc/passwd", "vault:x", "file:a/../b"]
)
def test_a_secret_is_only_ever_a_reference(text: str) -> None:
    """Whoever writes the secret itself is told so, without it being repeated."""
    with pytest.raises(InvalidInput, match="^secrets: .*API_KEY") as raised:
        checked(Binding, secrets={"API_KEY": text})
    assert text not in str(raised.value).replace("env:NAME", "").replace("file:NAME", "")
