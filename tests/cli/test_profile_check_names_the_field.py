"""`emberpool profile check`: every wrong file is told with its field and a remedy."""

import json
from pathlib import Path

import pytest
from fixtures.command_line import emberpool


def test_right_profiles_are_summed_up(tmp_path: Path) -> None:
    """One line for the file and one for each profile, exit status 0."""
    (tmp_path / "good.yaml").write_text("- {name: small, max_pods: 2}\n- {name: big, isolation: plain}\n")
    done = emberpool("profile", "check", "good.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "ok good.yaml",
        "   small: local, bubblewrap, image base, 1 warm, at most 2 pods",
        "   big: local, plain, image base, 1 warm, at most 4 pods",
    ]


@pytest.mark.parametrize(
    ("text", "cause", "remedy"),
    [
        ("name: Bad Name", "p.yaml[0].name: use 1-40 lower-case letters", "correct the named field"),
        ("max_pods: 3", "p.yaml[0].name: is missing", "add it"),
        ("{name: a, max_podz: 3}", "p.yaml[0].max_podz: no such field", "max_pods"),
        ("{name: a, limits: {pids: 0}}", "p.yaml[0].limits.pids: ", "correct the named field"),
        ("{name: a, min_warm: 9}", "p.yaml[0].profile: min_warm (9) is above max_pods (4)", "correct"),
        ("- name: a\n- name: a", "p.yaml.name: 'a' stands twice", "correct"),
        ("a: [", "p.yaml: not valid YAML", "correct"),
    ],
)
def test_a_wrong_field_is_named(text: str, cause: str, remedy: str, tmp_path: Path) -> None:
    """The error says where, what and what to do; exit status 1."""
    (tmp_path / "p.yaml").write_text(text)
    done = emberpool("profile", "check", "p.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert f"error: {cause}" in done.stderr
    assert remedy in done.stderr.splitlines()[-1]


def test_all_files_are_checked_and_reported_as_json(tmp_path: Path) -> None:
    """A wrong file does not hide the next one; machines get one object per file."""
    (tmp_path / "good.yaml").write_text("name: small\n")
    (tmp_path / "bad.yaml").write_text("name: SMALL\n")
    done = emberpool("profile", "check", "--json", "bad.yaml", "missing.yaml", "good.yaml", cwd=tmp_path)
    assert done.returncode == 1
    bad, missing, good = json.loads(done.stdout)
    assert (bad["ok"], bad["field"]) == (False, "bad.yaml[0].name")
    assert (missing["ok"], missing["problem"]) == (False, "cannot be read: No such file or directory")
    assert good["ok"] and good["profiles"][0]["name"] == "small"
