"""Named pipes: only their user can open them, and reads and writes of an end do not wait for each other."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("_winapi", reason="named pipes are of Windows")
assert sys.platform == "win32"

import _winapi  # noqa: E402

from dynamic_mcp.system import named_pipe  # noqa: E402
from dynamic_mcp.system.named_pipe import PipeConnection  # noqa: E402


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with the name of a new pipe."""
    file = tmp_path / "d.sock"
    file.write_text(named_pipe.new_address(), encoding="ascii")
    return file


@pytest.fixture
def server(path: Path) -> Iterator[int]:
    handle = named_pipe.create(path.read_text(encoding="ascii"), is_first=True)
    yield handle
    _winapi.CloseHandle(handle)


@pytest.fixture
def connection(path: Path, server: int) -> Iterator[PipeConnection]:
    client = named_pipe.connect_to(str(path))
    assert client is not None
    yield client
    client.close()


def test_a_pipe_belongs_to_this_user_and_no_other_may_open_it(server: int) -> None:
    assert named_pipe.is_own(server)
    text, descriptor = ctypes.c_wchar_p(), ctypes.c_void_p()
    advapi32, access_list = ctypes.WinDLL("advapi32"), 4
    advapi32.GetSecurityInfo(
        ctypes.c_void_p(server), 6, access_list, None, None, None, None, ctypes.byref(descriptor)
    )
    advapi32.ConvertSecurityDescriptorToStringSecurityDescriptorW(
        descriptor, 1, access_list, ctypes.byref(text), None
    )
    assert (text.value or "").count("(") == 1
    assert named_pipe.own_user() in (text.value or "")


@pytest.mark.not_in_wine("FILE_FLAG_FIRST_PIPE_INSTANCE, with which Windows refuses a second first end")
def test_the_first_end_of_a_pipe_is_not_made_where_one_is(path: Path, server: int) -> None:
    with pytest.raises(PermissionError):
        named_pipe.create(path.read_text(encoding="ascii"), is_first=True)


def test_no_connection_is_made_to_a_pipe_of_another_user(
    path: Path, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_pipe, "own_user", lambda: "S-1-5-21-1-2-3-4")
    assert named_pipe.connect_to(str(path)) is None


@pytest.mark.parametrize("text", ["", "\\\\.\\pipe\\other", "C:\\file", "\\\\server\\pipe\\dynamic-mcp-1"])
def test_a_file_with_another_name_leads_nowhere(tmp_path: Path, text: str) -> None:
    file = tmp_path / "d.sock"
    file.write_text(text, encoding="ascii")
    assert named_pipe.connect_to(str(file)) is None


def test_the_process_at_the_other_end_is_known(connection: PipeConnection) -> None:
    assert named_pipe.server_process(connection.fileno()) == os.getpid()


def test_a_write_goes_on_while_a_read_waits(connection: PipeConnection, server: int) -> None:
    connection.setblocking(False)
    with pytest.raises(BlockingIOError):
        connection.recv(10)

    connection.send(b"question")
    reading, _ = _winapi.ReadFile(server, 100, overlapped=True)
    reading.GetOverlappedResult(True)
    assert reading.getbuffer() == b"question"

    _winapi.WriteFile(server, b"answer", overlapped=True)[0].GetOverlappedResult(True)
    connection.settimeout(5)
    assert connection.recv(3) + connection.recv(10) == b"answer"


def test_what_was_written_before_the_end_is_read(connection: PipeConnection, path: Path, server: int) -> None:
    other = named_pipe.create(path.read_text(encoding="ascii"), is_first=False)
    client = named_pipe.connect_to(str(path))
    assert client is not None
    _winapi.WriteFile(other, b"last", overlapped=True)[0].GetOverlappedResult(True)
    _winapi.CloseHandle(other)
    client.settimeout(5)
    assert [client.recv(10), client.recv(10)] == [b"last", b""]
    client.close()


def test_a_full_pipe_takes_no_more_until_it_is_read(connection: PipeConnection, server: int) -> None:
    connection.setblocking(False)
    while connection.write_event() is None:
        connection.send(b"x" * 100_000)
    with pytest.raises(BlockingIOError):
        connection.send(b"x")
    connection.settimeout(0.01)
    with pytest.raises(TimeoutError):
        connection.sendall(b"x")
