"""What a command says last is heard by the daemon, whatever the daemon is writing at that moment."""

from __future__ import annotations

import asyncio
import socket

import pytest

from dynamic_mcp.errors import Interrupted
from dynamic_mcp.face import frames
from dynamic_mcp.face.daemon_connection import DaemonConnection
from dynamic_mcp.mcp.wire import Frame
from tests.program import BOUND_S

pytestmark = pytest.mark.posix_only("the sockets of the test take the place of Unix sockets, where Windows has pipes")

PROGRESS = frames.frame(frames.OUTPUT, 0, b'{"jsonrpc":"2.0","method":"notifications/message"}\n')


async def test_a_daemon_may_write_to_a_command_that_closes_until_it_has_read_what_that_said_last() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    heard: list[Frame] = []
    connection = DaemonConnection(heard.append)
    async with asyncio.timeout(BOUND_S):
        await loop.sock_sendall(theirs, frames.frame(frames.WELCOME, 0))
        await connection.open(ours, "/config.json")
        call = asyncio.create_task(connection.request("tools/call", b"{}"))
        await asyncio.sleep(0)
        call.cancel("interrupted")
        await asyncio.wait([call])

        closing = asyncio.create_task(connection.close())
        said = b""
        while more := await loop.sock_recv(theirs, 1 << 16):
            said += more
            await loop.sock_sendall(theirs, PROGRESS)
        await loop.sock_sendall(theirs, PROGRESS)
        theirs.close()
        await closing

    assert b'"notifications/cancelled","params":{"requestId":1,"reason":"interrupted"}' in said
    assert len(heard) >= 1


async def test_nothing_is_said_once_the_connection_closes(caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    connection = DaemonConnection(lambda _: None)
    async with asyncio.timeout(BOUND_S):
        await loop.sock_sendall(theirs, frames.frame(frames.WELCOME, 0))
        await connection.open(ours, "/config.json")
        call = asyncio.create_task(connection.request("tools/call", b"{}"))
        await asyncio.sleep(0)

        closing = asyncio.create_task(connection.close())
        said = b""
        while more := await loop.sock_recv(theirs, 1 << 16):
            said += more
        call.cancel()
        await asyncio.wait([call])
        connection.send(b"late\n")
        with pytest.raises(Interrupted):
            await connection.request("ping", b"{}")
        theirs.close()
        await closing

    assert call.cancelled()
    assert b"tools/call" in said
    assert not caplog.records
