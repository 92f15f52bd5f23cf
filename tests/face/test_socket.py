"""What becomes of a window that keeps a daemon waiting: it is ended, and nothing of it stays."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from dynamic_mcp.face import frames
from dynamic_mcp.face import socket as face_socket
from dynamic_mcp.face.socket import SocketFace
from dynamic_mcp.proxy.proxy import Proxy
from tests.face_parties import HELLO, Frames, Reception
from tests.fakes import config_of
from tests.idle_loop import IdleLoop
from tests.program import BOUND_S

pytestmark = pytest.mark.posix_only("the sockets of the test take the place of Unix sockets, where Windows has pipes")

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{"roots":{}},"clientInfo":{"name":"a","version":"1"}}}\n'
)


@pytest.fixture
async def reception() -> AsyncIterator[Reception]:
    proxy = Proxy(config_of())
    yield Reception(proxy)
    await proxy.close()


async def idle() -> None:
    """Wait until nothing is left to do."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, IdleLoop)
    await loop.idle()


async def read_all(window: socket.socket) -> bytes:
    """Return what is written to a window until the end of the connection."""
    data = b""
    with contextlib.closing(window), contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(BOUND_S):
            while more := await asyncio.get_running_loop().sock_recv(window, 1 << 16):
                data += more
    return data


async def _send_for_ever(window: socket.socket, line: bytes) -> None:
    while True:
        await asyncio.get_running_loop().sock_sendall(window, line)


async def test_a_window_that_never_reads_is_ended_after_a_while(
    reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(face_socket, "UNREAD_FOR_S", 0.0)
    window = await reception.connect()
    await asyncio.get_running_loop().sock_sendall(window, HELLO)
    (face,) = reception.faces
    sending = asyncio.create_task(_send_for_ever(window, PING * 1000))
    async with asyncio.timeout(BOUND_S):
        await face.ended.wait()
    await asyncio.wait([sending])
    assert isinstance(sending.exception(), OSError)
    assert reception.dismissed == [face]
    window.close()


async def test_a_window_that_reads_again_in_time_gets_every_answer(reception: Reception) -> None:
    window = await reception.connect()
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(window, HELLO)
    count = 100_000
    sending = asyncio.create_task(loop.sock_sendall(window, PING * count))
    await idle()
    assert not sending.done()  # it is not read from while it does not read

    taken, numbers = Frames(), list[int]()
    async with asyncio.timeout(BOUND_S):
        while len(numbers) < count:
            numbers += [number for _, number, _ in taken.feed(await loop.sock_recv(window, 1 << 20)) if number]
    await sending
    assert sorted(numbers) == list(range(1, count + 1))
    window.close()
    await reception.faces[0].ended.wait()


async def test_nothing_more_of_a_window_is_taken_once_it_is_gone(reception: Reception) -> None:
    window = await reception.connect()
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(window, HELLO)
    await idle()
    (face,) = reception.faces
    window.setblocking(True)
    window.sendall(PING * 1000)
    window.close()
    async with asyncio.timeout(BOUND_S):
        await face.ended.wait()
    taken = face.lines_taken
    await idle()

    assert 0 < taken < 1000
    assert face.lines_taken == taken


async def test_a_connection_without_a_hello_is_ended_after_a_while(
    reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(face_socket, "HELLO_WITHIN_S", 0.0)
    silent, slow = await reception.connect(), await reception.connect()
    slow.send(HELLO[:20])
    assert await read_all(silent) == b""
    assert await read_all(slow) == b""
    assert len(reception.dismissed) == 2


async def test_a_hello_that_comes_byte_by_byte_is_one(reception: Reception) -> None:
    window = await reception.connect()
    loop = asyncio.get_running_loop()
    for byte in HELLO + PING:
        await loop.sock_sendall(window, bytes([byte]))
        await idle()
    taken = Frames().feed(await loop.sock_recv(window, 1 << 16))
    assert taken == [(frames.WELCOME, 0, b""), (frames.OUTPUT, 1, b'{"jsonrpc":"2.0","id":1,"result":{}}\n')]
    window.close()
    await reception.faces[0].ended.wait()


class Writes(asyncio.Transport):
    """A transport that remembers what it was given at once."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__({"socket": end})
        self.each: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.each.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def test_a_note_is_written_at_once_with_the_line_that_it_is_about(reception: Reception) -> None:
    window, end = socket.socketpair()
    with window, end:
        face, writes = SocketFace(reception, 1 << 20), Writes(end)
        face.connection_made(writes)
        face.data_received(HELLO + INITIALIZE)
        await idle()
        face.connection_lost(None)
    kinds = [[kind for kind, _, _ in Frames().feed(each)] for each in writes.each]
    assert kinds == [[frames.WELCOME], [frames.KEEP, frames.OUTPUT]]


@pytest.mark.parametrize("size", [(1 << 30) + 1, (1 << 32) - 1])
async def test_a_hello_that_is_too_long_is_refused_at_once(reception: Reception, size: int) -> None:
    window = await reception.connect()
    await asyncio.get_running_loop().sock_sendall(window, size.to_bytes(4))
    assert await read_all(window) == b""


async def test_a_stop_under_load_says_exactly_which_lines_were_taken(reception: Reception) -> None:
    window = await reception.connect()
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(window, HELLO)
    sending = asyncio.create_task(loop.sock_sendall(window, PING * 20_000))
    (face,) = reception.faces
    while not face.lines_taken:  # noqa: ASYNC110 - a turn of the loop, in which some lines are taken
        await asyncio.sleep(0)
    stopping = asyncio.create_task(face.drain(1))

    taken = Frames().feed(await read_all(window))
    await stopping
    await asyncio.wait([sending])
    stops = [number for kind, number, _ in taken if kind == frames.STOP]
    answered = [number for kind, number, _ in taken if kind == frames.OUTPUT and number]
    assert stops == [len(answered)]
    assert sorted(answered) == [*range(1, len(answered) + 1)]
    assert len(answered) < 20_000
    assert isinstance(sending.exception(), OSError | None)


async def test_a_window_that_is_refused_is_told_to_serve_alone(reception: Reception) -> None:
    window = await reception.connect()
    (face,) = reception.faces
    face.refuse()
    assert Frames().feed(await read_all(window)) == [(frames.REFUSE, 0, b"")]
