"""The socket of a daemon: one daemon has it, and it comes back when somebody removes it."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamic_mcp.face.listener import DaemonListener
from dynamic_mcp.system import private_socket


@pytest.fixture
def path() -> Iterator[Path]:
    """The path of a socket, which must be short."""
    with tempfile.TemporaryDirectory(prefix="dm-") as folder:
        yield Path(folder, "d.sock")


def can_connect(path: Path) -> bool:
    connection = private_socket.connect_to(str(path))
    if connection is not None:
        connection.close()
    return connection is not None


async def test_a_second_daemon_does_not_get_the_socket_of_the_first(path: Path) -> None:
    first, second = DaemonListener(path), DaemonListener(path)
    assert await first.open(asyncio.Protocol)
    assert not await second.open(asyncio.Protocol)
    first.close()
    assert await second.open(asyncio.Protocol)
    assert can_connect(path)
    second.close()
    assert not path.exists()  # noqa: ASYNC240 - a small file


async def test_a_socket_that_was_removed_comes_back(path: Path) -> None:
    listener = DaemonListener(path)
    await listener.open(asyncio.Protocol)
    await listener.restore(asyncio.Protocol)
    path.unlink()  # noqa: ASYNC240 - a small file
    assert not can_connect(path)

    await listener.restore(asyncio.Protocol)

    assert can_connect(path)
    listener.close()
    assert not path.exists()  # noqa: ASYNC240 - a small file


@pytest.mark.posix_only("a Unix socket")
async def test_a_socket_that_is_another_daemons_by_now_is_left_to_it(path: Path) -> None:
    listener = DaemonListener(path)
    await listener.open(asyncio.Protocol)
    path.unlink()  # noqa: ASYNC240 - a small file
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        await listener.restore(asyncio.Protocol)
        listener.close()
        assert can_connect(path)


@pytest.mark.posix_only("a Unix socket")
def test_a_daemon_that_accepts_nobody_is_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_socket, "_CONNECT_WITHIN_S", 0.05)
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(path))
        hung.listen(0)
        waiting = [private_socket.connect_to(str(path)) for _ in range(3)]
        assert waiting[-1] is None
        for connection in waiting:
            if connection is not None:
                connection.close()


@pytest.mark.posix_only("a Unix socket")
def test_the_process_at_the_other_end_is_known(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        connection = private_socket.connect_to(str(path))
        assert connection is not None
        assert private_socket.peer_process(connection) == os.getpid()
        assert private_socket.peer_user(connection) == os.getuid()
        connection.close()
