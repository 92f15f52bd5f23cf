"""Joins the sessions of a run to a proxy. All that knows how the program is built is in this file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from dynamic_mcp.config.resolved import CallHandling, Program, Remote, Share, Timeouts
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.face import frames
from dynamic_mcp.face.lines import LineFace, Streams
from dynamic_mcp.face.socket import SocketFace
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.client_connection import ClientConnection
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.session.stream_session import StreamSession
from tests.face_parties import HELLO, Frames, Reception
from tests.fakes import FakeUpstream, Opener, PresentedGroup, config_of, group_config
from tests.history.nonce_server import Json, NonceServer
from tests.history.record import NOWHERE, Came, History


class Send(Protocol):
    """Takes a line, and how it came."""

    def __call__(self, line: bytes, came: Came = NOWHERE, /) -> None: ...


SERVER = Path(__file__).parent / "nonce_server.py"
# Short, so that `big` is kept and read as a resource.
RESULT_LIMIT = 2000
MAX_MESSAGE_BYTES = 1 << 20
# No call of a run may fail only because the machine is busy: the patience of sessions bounds what never comes.
_TIMEOUTS = Timeouts(connect_s=60, tools_s=60, resources_s=60, prompts_s=60)


def connect(proxy: Proxy, send: Send) -> Session:
    """Begin a session, which takes lines by `receive`."""
    return Session(ClientConnection(send), proxy)


async def disconnect(proxy: Proxy, session: Session | StreamSession) -> None:
    """End a session, with whatever it has in flight."""
    await session.finish(0)
    session.close()


async def open_face(proxy: Proxy, stdin: int, stdout: int) -> LineFace:
    """Begin a session on two file descriptors."""
    face = LineFace(MAX_MESSAGE_BYTES)
    await face.open(proxy, Streams(stdin, stdout))
    return face


async def close_face(proxy: Proxy, face: LineFace) -> None:
    """End the session of a face, once its input has ended."""
    await face.ended.wait()
    await disconnect(proxy, face.session)
    await face.sink.close()


def complain(proxy: Proxy, text: str) -> None:
    """Let the proxy log an error of its own."""
    proxy.complain(text)


def group(
    name: str, upstream: Program | Remote | None = None, *, share: str = "", direct: bool = False
) -> PresentedGroup:
    """Return the config of a group, shared by these (`auto` where nothing is said)."""
    changes: dict[str, Json] = {"upstream": upstream} if upstream else {}
    answers = CallHandling(validate=None, limit=RESULT_LIMIT, compact=False)
    config = group_config(name, answers=answers, direct=DirectTools(is_all=direct), timeouts=_TIMEOUTS, **changes)
    return replace(config, share=Share(share)) if share else config


def remote() -> Remote:
    """Return the config of a remote server, for an upstream in memory that has a stream for each call as those do."""
    return Remote(kind="http", url="http://127.0.0.1:1/mcp", headers={})


# --- sessions ----------------------------------------------------------------------------------------------


class Line(Protocol):
    """What a client has of its session."""

    def send(self, line: bytes) -> None:
        """Write a line to the proxy."""
        ...

    async def close(self) -> list[weakref.ref[object]]:
        """End the session; returns references to what nobody may hold any more."""
        ...


class Host(Protocol):
    """Where clients connect."""

    async def open(self, take: Send) -> Line:
        """Begin a session that is written to with `take`."""
        ...

    async def close(self) -> None:
        """End everything."""
        ...


class Shared:
    """One proxy for all sessions."""

    def __init__(self, proxy: Proxy, *, over_pipes: bool = False) -> None:
        self.proxy = proxy
        self._over_pipes = over_pipes

    async def open(self, take: Send) -> Line:
        return await _open(self.proxy, take, over_pipes=self._over_pipes)

    async def close(self) -> None:
        await self.proxy.close()


class Windows:
    """One proxy for all sessions, each of which comes over a socket, as the windows of a daemon do."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self._reception = Reception(proxy, MAX_MESSAGE_BYTES)

    async def open(self, take: Send) -> Line:
        line = _SocketLine(self._reception, take)
        await line.open()
        return line

    async def close(self) -> None:
        await self.proxy.close()


class Apart:
    """A proxy and upstreams for each session, so that nothing can cross: what a history must look like."""

    def __init__(self, make_proxy: Callable[[], Proxy], *, over_pipes: bool = False) -> None:
        self._make_proxy = make_proxy
        self._over_pipes = over_pipes

    async def open(self, take: Send) -> Line:
        proxy = self._make_proxy()
        return _OwningLine(await _open(proxy, take, over_pipes=self._over_pipes), proxy)

    async def close(self) -> None:
        """Each session has ended its own."""


async def _open(proxy: Proxy, take: Send, *, over_pipes: bool) -> Line:
    if not over_pipes:
        return _InProcessLine(proxy, take)
    line = _PipeLine(proxy, take)
    await line.open()
    return line


class _OwningLine:
    """The line of a session with a proxy of its own, which ends with it."""

    def __init__(self, line: Line, proxy: Proxy) -> None:
        self._line = line
        self._proxy = proxy

    def send(self, line: bytes) -> None:
        self._line.send(line)

    async def close(self) -> list[weakref.ref[object]]:
        references = await self._line.close()
        await self._proxy.close()
        return references


class _InProcessLine:
    def __init__(self, proxy: Proxy, take: Send) -> None:
        self._proxy = proxy
        self._session: Session | None = connect(proxy, take)

    def send(self, line: bytes) -> None:
        assert self._session is not None
        self._session.receive(line)

    async def close(self) -> list[weakref.ref[object]]:
        session, self._session = self._session, None
        assert session is not None
        await disconnect(self._proxy, session)
        return [weakref.ref(session)]


class _PipeLine:
    """A session that reads from a pipe and writes to another."""

    def __init__(self, proxy: Proxy, take: Send) -> None:
        self._proxy = proxy
        self._take = take
        self._face: LineFace | None = None
        self._writer: asyncio.WriteTransport
        self._reading: asyncio.Task[None]

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        stdin, to_proxy = os.pipe()
        from_proxy, stdout = os.pipe()
        reader = asyncio.StreamReader(limit=MAX_MESSAGE_BYTES)
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_proxy, "rb", buffering=0)
        )
        self._writer, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(to_proxy, "wb", buffering=0))
        self._face = await open_face(self._proxy, stdin, stdout)
        self._reading = loop.create_task(self._read(reader))

    def send(self, line: bytes) -> None:
        self._writer.write(line + b"\n")

    async def close(self) -> list[weakref.ref[object]]:
        face, self._face = self._face, None
        assert face is not None
        self._writer.close()
        await close_face(self._proxy, face)
        await self._reading
        return [weakref.ref(face.session)]

    async def _read(self, reader: asyncio.StreamReader) -> None:
        async for line in reader:
            self._take(line)


class _SocketLine:
    """A session at the other end of a socket."""

    def __init__(self, reception: Reception, take: Send) -> None:
        self._reception = reception
        self._take = take
        self._face: SocketFace | None = None
        self._writer: asyncio.StreamWriter
        self._reading: asyncio.Task[None]

    async def open(self) -> None:
        reader, self._writer = await asyncio.open_unix_connection(sock=await self._reception.connect())
        self._face = self._reception.faces.pop()
        self._writer.write(HELLO)
        self._reading = asyncio.get_running_loop().create_task(self._read(reader))

    def send(self, line: bytes) -> None:
        self._writer.write(line + b"\n")

    async def close(self) -> list[weakref.ref[object]]:
        face, self._face = self._face, None
        assert face is not None
        self._writer.close()
        await face.ended.wait()
        await self._reading
        self._reception.dismissed.remove(face)
        return [weakref.ref(face), weakref.ref(face.session)]

    async def _read(self, reader: asyncio.StreamReader) -> None:
        taken = Frames()
        while data := await reader.read(1 << 16):
            for kind, _, line in taken.feed(data):
                if kind == frames.OUTPUT and line:
                    self._take(line)


# --- upstreams in memory -----------------------------------------------------------------------------------


class MemoryUpstream(FakeUpstream):
    """The nonce server at the far side of a link. With `has_streams` each call has a stream, as over HTTP."""

    def __init__(self, group: str, number: int, history: History, *, has_streams: bool = False) -> None:
        super().__init__()
        self.name = f"{group}#{number}"
        self.server = NonceServer(group, self._write)
        self._history = history
        self._has_streams = has_streams
        self._is_turning = False

    def send(self, line: bytes) -> None:
        self._history.get(self.name, line)
        self.receive(line)

    async def close(self) -> None:
        self._history.close(self.name)
        await super().close()

    def receive(self, line: bytes) -> None:
        """Give a line to the server, and let it run while it has something to do."""
        asyncio.get_running_loop().call_soon(self._take, line)

    def _take(self, line: bytes) -> None:
        self.server.receive(line)
        if not self._is_turning:
            self._is_turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turning = self.server.is_busy and not self.closed
        if self._is_turning:
            self.server.turn()
            asyncio.get_running_loop().call_soon(self._turn)

    def _write(self, line: bytes, about: int | None) -> None:
        if not self.closed:
            self._history.send(self.name, line)
            self.deliver(line, about)

    def deliver(self, line: bytes, about: int | None) -> None:
        """Give a line to the link."""
        if self._has_streams:
            self.link.receive(line, b"" if about is None else b"%d" % about)
        else:
            self.link.receive(line)


MakeUpstream = Callable[[str, int], FakeUpstream]


def memory_proxy(make: MakeUpstream, *configs: PresentedGroup, instances: int) -> Proxy:
    """Return a proxy before groups in memory, each with so many instances at most."""
    plan = {config.name: [make(config.name, number) for number in range(instances)] for config in configs}
    return Proxy(config_of(*configs), opener=Opener(**plan))


# --- upstreams that are processes --------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def journal(history: History, group: str) -> AsyncIterator[Program]:
    """Hand out the program of a server whose every process tells this history what it does."""
    tasks: set[asyncio.Task[None]] = set()
    numbers = iter(range(1_000_000))

    async def follow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = f"{group}#{next(numbers)}"
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            name = f"{name} of {int(await reader.readline() or 0)}"
            async for line in reader:
                note = history.get if line.startswith(b"<") else history.send
                note(name, line[1:].rstrip(b"\n"))
        history.close(name)

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(follow(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(take, "127.0.0.1", 0, limit=MAX_MESSAGE_BYTES)
    port = server.sockets[0].getsockname()[1]
    try:
        arguments = ("-I", "-S", str(SERVER), group, str(port))
        yield Program(command=sys.executable, args=arguments, env=dict(os.environ), cwd=None)
    finally:
        server.close()
        for task in [*tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
