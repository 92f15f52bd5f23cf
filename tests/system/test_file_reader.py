"""Only what ends is read as a file, and reading never waits for a writer."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from dynamic_mcp.system.file_reader import LARGEST_BYTES, UnsuitableFileError, read_bytes


@pytest.mark.posix_only("symbolic links need a privilege on Windows")
def test_a_regular_file_is_read_whole_through_links(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"all of it")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_bytes(tmp_path / "link") == b"all of it"


@pytest.mark.posix_only("pipes and devices of Windows are not in the file system")
@pytest.mark.parametrize("name", ["fifo", "link", "socket", "/dev/zero", "/dev/tty"])
@pytest.mark.parametrize("may_be_piped", [True, False])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path, name: str, may_be_piped: bool) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "socket"))
    server.close()

    with pytest.raises(UnsuitableFileError, match="not a regular file"):
        read_bytes(tmp_path / name, may_be_piped=may_be_piped)


def test_a_file_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(LARGEST_BYTES + 1)
    with pytest.raises(UnsuitableFileError, match="larger than 64 MiB"):
        read_bytes(tmp_path / "large")


@pytest.mark.posix_only("a pipe of a shell has no name on Windows")
def test_a_pipe_of_the_shell_is_read_where_that_makes_sense_and_within_the_bound() -> None:
    for content, most in ((b"{}", 2), (b"{ }", 2)):
        ours, theirs = os.pipe()
        os.write(theirs, content)
        os.close(theirs)
        file = Path(f"/dev/fd/{ours}")
        if content == b"{}":
            with pytest.raises(UnsuitableFileError, match="not a regular file"):
                read_bytes(file)
            assert read_bytes(file, may_be_piped=True, most=most) == b"{}"
        else:
            with pytest.raises(UnsuitableFileError, match="larger than"):
                read_bytes(file, may_be_piped=True, most=most)
        os.close(ours)


def test_the_null_device_is_an_empty_file_where_no_file_is_meant() -> None:
    assert read_bytes(Path(os.devnull), may_be_piped=True) == b""
    with pytest.raises(UnsuitableFileError):
        read_bytes(Path(os.devnull))


def test_what_is_missing_or_a_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)
    with pytest.raises(OSError, match="not a valid file name"):
        read_bytes(tmp_path / "a\0b")


@pytest.mark.skipif(sys.platform != "win32", reason="other systems have no such names")
@pytest.mark.parametrize("name", ["AUX", "COM1", "aux.json", "nul.json"])
def test_a_device_of_windows_is_no_file_and_not_the_null_device(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match=r"not a regular file|no such|cannot find|not found"):
        read_bytes(tmp_path / name, may_be_piped=True)
    assert read_bytes(Path("NUL"), may_be_piped=True) == b""
