"""A file that another program has open for a moment is replaced all the same, on Windows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dynamic_mcp.system import file_reader, paths


class Refusal:
    """An action that the system denies a number of times, as a virus scanner that reads the file causes it."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> str:
        self.left -= 1
        if self.left >= 0:
            raise PermissionError(13, "the file is used by another process")
        return "done"


def test_what_is_denied_for_a_moment_is_done_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert file_reader.retry(Refusal(2)) == "done"


def test_what_stays_denied_is_an_error_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    refusal = Refusal(1_000_000)
    with pytest.raises(PermissionError):
        file_reader.retry(refusal, within_s=0.1)
    assert refusal.left < 999_999


def test_elsewhere_what_is_denied_is_denied_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    refusal = Refusal(2)
    with pytest.raises(PermissionError):
        file_reader.retry(refusal)
    assert refusal.left == 1


def test_a_private_file_is_written_while_an_editor_closes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    rename, refusal = Path.replace, Refusal(2)

    def replace(file: Path, target: Path) -> Path:
        refusal()
        return rename(file, target)

    monkeypatch.setattr(Path, "replace", replace)
    file = tmp_path / "token.json"
    file.write_bytes(b"old")
    paths.write_private(file, b"new")
    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(sys.platform != "win32", reason="open files can be replaced there")
def test_a_file_that_is_open_elsewhere_keeps_its_content_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token.json"
    file.write_bytes(b"old")
    with file.open("rb"), pytest.raises(PermissionError):
        paths.write_private(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]
