"""Private files on Windows have access control lists that only their user, Administrators and SYSTEM are in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dynamic_mcp.doctor.files import check_file
from dynamic_mcp.doctor.findings import Level
from dynamic_mcp.importer.formats import files
from dynamic_mcp.system import acl, file_reader, paths
from tests.windows import grant

pytestmark = pytest.mark.skipif(sys.platform != "win32", reason="access control lists are those of Windows")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory that others may read, and so the files in it."""
    directory = tmp_path / "shared"
    directory.mkdir()
    grant(directory, "(OI)(CI)RX")
    return directory


def test_a_file_that_others_can_use_is_found(shared: Path) -> None:
    others = acl.find_others(shared)
    assert (others.readers, others.writers, others.owner) == (("Everyone",), (), "")
    grant(shared, "(OI)(CI)F")
    assert acl.find_others(shared).writers == ("Everyone",)


def test_what_is_made_private_is_for_this_user_alone(shared: Path) -> None:
    file = shared / "c.json"
    file.write_text("x")
    acl.make_private(shared)
    acl.make_private(file)
    assert not acl.find_others(shared)
    assert not acl.find_others(file)
    assert file.read_text() == "x"


def test_a_users_file_keeps_its_access_list_and_one_with_secrets_is_private(shared: Path) -> None:
    kept, secret = shared / "c.json", shared / "c.env"
    kept.write_text("x")
    acl.make_private(kept)
    files.write_bytes(kept, b"y", expected=b"x")
    files.write_bytes(secret, b"y", expected=None, is_private=True)
    assert not acl.find_others(kept)
    assert not acl.find_others(secret)
    files.write_bytes(shared / "d.json", b"y", expected=None)
    assert acl.find_others(shared / "d.json").readers == ("Everyone",)


def test_private_files_and_new_directories_are_private_wherever_they_are(shared: Path) -> None:
    paths.write_private(shared / "token.json", b"x")
    paths.write_private(shared / "own" / "token.json", b"x")
    for place in (shared / "token.json", shared / "own", shared / "own" / "token.json"):
        assert not acl.find_others(place)
    assert acl.find_others(shared)  # is not ours


def test_a_directory_is_claimed_with_what_is_in_it(shared: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths.claim_private_dir(shared)
    assert not acl.find_others(shared)
    assert f"{shared} could be used by others and is now private" in caplog.text
    caplog.clear()
    paths.claim_private_dir(shared)
    assert caplog.text == ""


def test_a_private_file_that_others_could_read_becomes_so(shared: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = shared / "token.json"
    file.write_bytes(b"secret")
    grant(file, "RX")
    assert file_reader.read_private(file) == b"secret"
    assert not acl.find_others(file)
    assert "could be read by others and is now private" in caplog.text


def test_the_doctor_names_who_can_change_the_config_and_how_to_prevent_that(shared: Path) -> None:
    file = shared / "c.json"
    file.write_text('{"mcpServers": {}}')
    acl.make_private(shared)
    acl.make_private(file)
    assert [each.level for each in check_file(file, {})[1]] == [Level.OK]
    grant(file, "F")
    (finding,) = (each for each in check_file(file, {})[1] if each.level is Level.WARNING)
    assert "the file can be changed by Everyone, who can then run programs as you" in finding.what
    assert finding.hint.startswith(f'`icacls "{file}" /inheritance:r /grant:r ')


def test_the_doctor_names_who_can_read_secrets(shared: Path) -> None:
    file = shared / "c.json"
    file.write_text('{"mcpServers": {"a": {"url": "https://a", "headers": {"Authorization": "Bearer abcdef12345"}}}}')
    acl.make_private(shared)
    acl.make_private(file)
    grant(file, "RX")
    whats = [each.what for each in check_file(file, {})[1]]
    assert any("the secrets in it can be read by Everyone" in what for what in whats)


def test_an_error_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        acl.find_others(tmp_path / "gone")
