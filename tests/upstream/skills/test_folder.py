"""What is served of folders of skills, and what is left out and why."""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from dynamic_mcp.mcp import wire
from dynamic_mcp.upstream.skills import folder as limits
from dynamic_mcp.upstream.skills.folder import read_folders, stamps_of
from tests.upstream.skills.folders import write_skill


def test_each_directory_with_a_skill_file_is_a_skill_with_all_its_files_and_their_digests(tmp_path: Path) -> None:
    write_skill(tmp_path, "acme/billing/refunds", examples__email_md="mail", x_bin=b"\x00\xff")
    write_skill(tmp_path, "pdf")
    found = read_folders([str(tmp_path)])

    assert list(found.skills) == ["acme/billing/refunds", "pdf"]
    refunds = found.skills["acme/billing/refunds"]
    assert {each.path: (each.size, each.digest) for each in refunds.files[1:]} == {
        "acme/billing/refunds/x.bin": (2, f"sha256:{sha256(bytes([0, 255])).hexdigest()}"),
        "acme/billing/refunds/examples/email.md": (4, f"sha256:{sha256(b'mail').hexdigest()}"),
    }
    assert refunds.files[0].path == "acme/billing/refunds/SKILL.md"
    assert found.complaints == ()


def test_front_matter_is_what_is_written_as_json(tmp_path: Path) -> None:
    written = (
        "description: >-\n  Two\n  lines\nlicense: Apache-2.0\nmetadata: {version: 1.10, on: 2026-01-02, n: null}"
    )
    write_skill(tmp_path, "pdf", written)
    assert wire.value(read_folders([str(tmp_path)]).skills["pdf"].front_matter) == {
        "name": "pdf",
        "description": "Two lines",
        "license": "Apache-2.0",
        "metadata": {"version": 1.1, "on": "2026-01-02", "n": None},
    }


def test_a_skill_in_a_skill_is_one_of_its_own_and_its_files_are_of_both(tmp_path: Path) -> None:
    write_skill(tmp_path, "outer")
    write_skill(tmp_path, "outer/inner", note_md="n")
    found = read_folders([str(tmp_path)])

    assert [each.path for each in found.skills["outer"].files] == [
        "outer/SKILL.md",
        "outer/inner/SKILL.md",
        "outer/inner/note.md",
    ]
    assert len(found.skills["outer/inner"].files) == 2


def _with(more: str) -> str:
    """Return a skill of which only this part of the front matter is wrong."""
    return f"---\nname: bad\ndescription: d\n{more}\n---\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("# no front matter", "does not begin with front matter"),
        ("---\nname: bad\n", "does not begin with front matter"),
        ("---\nname: other\ndescription: d\n---\n", "is not that of its directory"),
        ("---\nname: bad\n---\n", "no `description`"),
        ("---\nname: bad\ndescription: ''\n---\n", "no `description`"),
        ("---\nname: bad\ndescription: {}\n---\n", "no `description`"),
        (f"---\nname: bad\ndescription: {'x' * 1025}\n---\n", "no `description`"),
        ("---\n[1, 2]\n---\n", "not a mapping"),
        ("---\na: [\n---\n", "not YAML"),
        ("---\n? !!python/object:os.system x\n---\n", ""),
        (_with("a: {true: 1}"), "cannot be JSON"),
        (_with("a:\n  ? [1]\n  : 2"), "cannot be JSON"),
        (_with('a: "\\ud800"'), "cannot be JSON"),
        (_with('a: "' + "\\a" * 20_000 + '"'), "bytes of JSON"),
        (_with("a: " + "[" * 30_000), "nested too deeply"),
        (_with("a: &a [*a]"), "a YAML alias"),
        (_with("a: &a {b: 1}\nc: {<<: *a}"), "a YAML alias"),
        (_with("\n".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10) if n else 'x'}]" for n in range(9))), "alias"),
    ],
)
def test_an_invalid_skill_is_left_out_by_itself_and_the_reason_is_said(tmp_path: Path, text: str, why: str) -> None:
    write_skill(tmp_path, "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "SKILL.md").write_text(text)
    found = read_folders([str(tmp_path)])

    assert list(found.skills) == ["good"]
    assert why in found.complaints[0]
    assert str(tmp_path / "bad") in found.complaints[0]


def test_a_name_that_is_no_name_of_a_skill_is_left_out(tmp_path: Path) -> None:
    write_skill(tmp_path, "Not--a-name")
    found = read_folders([str(tmp_path)])
    assert not found.skills
    assert "is not a name" in found.complaints[0]


def test_the_folder_itself_is_no_skill(tmp_path: Path) -> None:
    write_skill(tmp_path.parent, tmp_path.name)
    assert not read_folders([str(tmp_path)]).skills


@pytest.mark.posix_only("links need a right on Windows")
def test_links_out_of_the_folder_and_hidden_files_are_not_served(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    write_skill(tmp_path / "outside", "stolen")
    (tmp_path / "secret").write_text("secret")
    skill = write_skill(tmp_path / "skills", "pdf", real_md="r")
    (skill / "secret.md").symlink_to(tmp_path / "secret")
    (skill / "inside.md").symlink_to(skill / "real.md")
    (tmp_path / "skills" / "more").symlink_to(tmp_path / "outside")
    (skill / ".hidden").write_text("h")
    found = read_folders([str(tmp_path / "skills")])

    assert [each.path for each in found.skills["pdf"].files] == ["pdf/SKILL.md", "pdf/inside.md", "pdf/real.md"]
    assert list(found.skills) == ["pdf"]
    assert len([each for each in found.complaints if "a link out of the folder" in each]) == 2


def test_a_skill_that_clients_need_not_accept_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_FILES", 3)
    monkeypatch.setattr(limits, "MAX_BYTES", 1000)
    write_skill(tmp_path, "fits", a_md="", b_md="")
    write_skill(tmp_path, "many", a_md="", b_md="", c_md="")
    write_skill(tmp_path, "large", a_md="x" * 1000)
    found = read_folders([str(tmp_path)])

    assert list(found.skills) == ["fits"]
    assert [("3 files" if "files" in each else "bytes") in each or "4 files" in each for each in found.complaints]
    assert len(found.complaints) == 2


def test_of_two_skills_with_one_path_that_of_the_earlier_folder_counts(tmp_path: Path) -> None:
    write_skill(tmp_path / "a", "pdf", "description: of a")
    write_skill(tmp_path / "b", "pdf", "description: of b")
    found = read_folders([str(tmp_path / "a"), str(tmp_path / "b")])
    assert found.skills["pdf"].description == "of a"
    assert "second skill `pdf`" in found.complaints[0]


def test_what_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "pdf", a_md="one", b_md="two")
    before = read_folders([str(tmp_path)])
    stamps = stamps_of([str(tmp_path)])
    (skill / "a.md").write_text("changed")
    os.utime(skill / "a.md", ns=(1, 1))

    assert stamps_of([str(tmp_path)]) != stamps
    after = read_folders([str(tmp_path)], before)
    changed = {each.path for each in after.files.values()} - {
        each.path for each in after.files.values() if each in before.files.values()
    }
    assert changed == {"pdf/a.md"}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_file_whose_name_is_no_text_is_left_out(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "pdf")
    (skill / os.fsdecode(b"caf\xe9.md")).write_text("x")
    found = read_folders([str(tmp_path)])
    assert [each.path for each in found.skills["pdf"].files] == ["pdf/SKILL.md"]
    assert "is not UTF-8" in found.complaints[0]
