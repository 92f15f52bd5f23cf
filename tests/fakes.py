"""Our own stand-ins for the edges: an upstream that answers as told, a clock that is moved, a client in memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dynamic_mcp.client import ClientInfo, Transport
from dynamic_mcp.config.resolved import (
    CallHandling,
    Config,
    Features,
    GroupConfig,
    Presentation,
    Program,
    Timeouts,
    ToolFilter,
)
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.errors import DynamicMcpError, LinkLost, NotSent
from dynamic_mcp.identity import LOCAL_USER, Authentication
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.client_connection import ClientConnection, ClientOrigin
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.session.server import Server
from dynamic_mcp.upstream.handshake import Era, ServerInfo, initialize
from dynamic_mcp.upstream.link import Link, LinkOwner
from tests.idle_loop import IdleLoop
from tests.upstreams import full

Json = Any  # whatever JSON a test writes down
BOUND_S = 5.0


PRESENTATION = Presentation(
    description=None,
    features=Features(tools=True, resources=True, prompts=True),
    tools=ToolFilter(include=("*",), exclude=()),
    direct=DirectTools(),
    answers=CallHandling(validate=None, limit=100_000, compact=False),
)


class PresentedGroup(GroupConfig, frozen=True):
    """What is run for a group, together with what clients are shown of it."""

    presentation: Presentation = PRESENTATION


def group_config(name: str = "up", **changes: Any) -> PresentedGroup:  # Any: fields of GroupConfig and Presentation
    """Return the config of a group with every default."""
    shown = {key: changes.pop(key) for key in list(changes) if key in Presentation.__struct_fields__}
    shown["asks"] = any(guard.asks for guard in shown.get("rules", {}).get("guards", ()))
    config = PresentedGroup(
        name=name,
        presentation=replace(PRESENTATION, **shown),
        timeouts=Timeouts(connect_s=5, tools_s=5, resources_s=5, prompts_s=5),
        eager=False,
        idle_after_s=1800,
        attempts=3,
        concurrency=64,
        max_message_bytes=1 << 20,
        upstream=Program(command="fake", args=(), env={}, cwd=None),
    )
    return replace(config, **changes)


def config_of(*groups: PresentedGroup, **changes: Any) -> Config:  # Any: fields of Config
    """Return a config of these groups."""
    config = Config(
        file=Path("dynamic-mcp.json"),
        groups=groups,
        presentations={group.name: group.presentation for group in groups},
        warnings=(),
        max_message_bytes=1 << 20,
    )
    return replace(config, **changes)


def tool(name: str, **members: Json) -> dict[str, Json]:
    """Return a tool as upstreams list it."""
    return {"name": name, "inputSchema": {"type": "object"}, **members}


@dataclass(frozen=True)
class Error:
    """A JSON-RPC error, for an answer of a fake upstream."""

    code: int = -32603
    message: str = "no network"


class FakeUpstream:
    """The far side of a link, and its transport: keeps what it is sent, answers what it is told to.

    `answers` maps a method to its result, or to a function of the params that returns one; a result that
    is bytes is JSON already, and an `Error` is one. A method without an entry is left unanswered, until the test
    calls `say`.
    """

    def __init__(self, answers: Mapping[str, Json] | None = None, tools: Iterable[str] = ("echo",)) -> None:
        self.sent: list[dict[str, Json]] = []
        self.lines: list[bytes] = []
        self.deaf = ""  # why it takes no more lines
        self.closed = False
        self.answers: dict[str, Json] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "fake", "version": "1"},
            },
            "tools/list": {"tools": [tool(name) for name in tools]},
            **(answers or {}),
        }
        self.link: Link
        self._arrived = asyncio.Event()

    def send(self, line: bytes) -> None:
        if self.deaf:
            raise NotSent(self.link.group, self.deaf)
        message = json.loads(line)
        self.sent.append(message)
        self.lines.append(line)
        method = message.get("method", "an answer")
        self._arrived.set()
        self._arrived = asyncio.Event()
        if "id" in message and method in self.answers:
            asyncio.get_running_loop().call_soon(self._answer, message)

    async def close(self) -> None:
        self.closed = True

    def heard(self, method: str) -> list[dict[str, Json]]:
        """Return the messages with this method that have come."""
        return [message for message in self.sent if message.get("method", "an answer") == method]

    async def hears(self, method: str, times: int = 1) -> dict[str, Json]:
        """Wait until so many messages with this method have come, and return the latest."""
        async with asyncio.timeout(BOUND_S):
            while len(self.heard(method)) < times:
                await self._arrived.wait()
        return self.heard(method)[-1]

    def say(self, message: Json) -> None:
        """Send a message, or a line as it is."""
        self.link.receive(message if isinstance(message, bytes) else json.dumps(message).encode())

    def die(self, reason: str = "the server exited with code 1") -> None:
        """End the connection."""
        self.link.lose(LinkLost(self.link.group, reason))

    def _answer(self, message: dict[str, Json]) -> None:
        answer = self.answers[message["method"]]
        result = answer(message.get("params")) if callable(answer) else answer
        if isinstance(result, Error):
            self.say(
                {"jsonrpc": "2.0", "id": message["id"], "error": {"code": result.code, "message": result.message}}
            )
            return
        text = result if isinstance(result, bytes) else json.dumps(result).encode()
        self.say(b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (message["id"], text))


class FullUpstream(FakeUpstream):
    """The server of tests/upstreams/full.py on the far side of a link, without a process."""

    def __init__(self, **options: Any) -> None:  # Any: fields of Options
        super().__init__()
        self.answers = {}
        self.server = full.Server(full.Options(**options), self._write)
        self.server.crash = self.die

    def send(self, line: bytes) -> None:
        super().send(line)
        asyncio.get_running_loop().call_soon(self.server.receive, line.rstrip(b"\n"))

    def _write(self, line: bytes) -> None:
        self.link.receive(line.rstrip(b"\n"))


class Opener:
    """Opens links to fake upstreams: `plan` gives, for each attempt at a group, an upstream or an error."""

    def __init__(self, **plan: Sequence[FakeUpstream | DynamicMcpError]) -> None:
        self.plan = {name: list(attempts) for name, attempts in plan.items()}
        self.opened: list[str] = []
        self.upstreams: list[FakeUpstream] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(
        self, config: GroupConfig, listener: LinkOwner, hello: ClientInfo, *, lacks: Era | None = None
    ) -> tuple[Link, ServerInfo]:
        self.opened.append(config.name)
        await self.gate.wait()
        planned = self.plan[config.name]
        upstream = planned.pop(0) if len(planned) > 1 else planned[0]
        if isinstance(upstream, DynamicMcpError):
            raise upstream
        self.upstreams.append(upstream)
        upstream.link = Link(config.name, upstream, listener)
        return upstream.link, await initialize(upstream.link, hello, config)


class FakeClock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.time = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.time + seconds, woken))
        await woken

    def sleeps(self) -> list[float]:
        """How long each sleeper has still to sleep."""
        return [until - self.time for until, woken in self._sleepers if not woken.done()]

    async def pass_(self, seconds: float) -> None:
        """Let all happen that is due, then time pass, and then what is due by that."""
        await settled()
        self.time += seconds
        for until, woken in self._sleepers:
            if until <= self.time and not woken.done():
                woken.set_result(None)
        self._sleepers = [(until, woken) for until, woken in self._sleepers if not woken.done()]
        await settled()


async def settled() -> None:
    """Wait until everything has run that can run without time passing."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, IdleLoop)
    async with asyncio.timeout(BOUND_S):
        await loop.idle()


async def until_read(reader: int, writer: int) -> None:
    """Write to a pipe, and wait until somebody has begun to read it."""
    os.write(writer, b"A=1\n")
    async with asyncio.timeout(BOUND_S):
        while select.select([reader], [], [], 0)[0]:  # noqa: ASYNC110 - a pipe tells nobody
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def client_of(opener: Opener, *configs: PresentedGroup, bound_s: float = BOUND_S) -> AsyncIterator[Client]:
    """Run a proxy in front of these groups, else of one for each name in the opener's plan, for one client."""
    groups = configs or tuple(group_config(name) for name in opener.plan)
    proxy = Proxy(config_of(*groups), opener=opener)
    try:
        yield Client(proxy, bound_s=bound_s)
    finally:
        await proxy.close()


class Client:
    """A client in memory, in front of a proxy; `bound_s` is how long it waits, which is for fake upstreams."""

    def __init__(
        self,
        server: Server,
        workspace: Workspace | None = None,
        *,
        only: str | None = None,
        profile: str | None = None,
        authentication: Authentication = LOCAL_USER,
        transport: Transport = "stdio",
        shared_id: str = "",
        bound_s: float = BOUND_S,
    ) -> None:
        self.server = server
        self._bound_s = bound_s
        self.lines: list[bytes] = []
        origin = ClientOrigin(authentication, transport, only, workspace, profile)
        self.session = Session(ClientConnection(self._take, origin=origin, shared_id=shared_id), server)
        self._ids = 0
        self._arrived = asyncio.Event()

    def send(self, message: Json) -> None:
        """Send a message, or a line as it is."""
        self.session.receive(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def request(self, method: str, params: Json = None) -> dict[str, Json]:
        """Send a request and return the answer; params that are bytes are JSON already."""
        return json.loads(await self.exchange(method, params))  # type: ignore[no-any-return]

    async def exchange(self, method: str, params: Json = None) -> bytes:
        """Send a request and return the line that answers it."""
        self._ids += 1
        id = f"c{self._ids}"
        body = b"" if params is None else b',"params":' + _json(params)
        self.send(b'{"jsonrpc":"2.0","id":"%s","method":%s%s}' % (id.encode(), _json(method), body))
        return await self.line(lambda message: message.get("id") == id and "method" not in message)

    async def call(self, group: str, name: str, args: Json = None, **params: Json) -> dict[str, Json]:
        """Call a tool through `call_dynamic_tool` and return the result."""
        arguments = {"group": group, "name": name, **({} if args is None else {"args": args})}
        answer = await self.request("tools/call", {"name": "call_dynamic_tool", "arguments": arguments, **params})
        result: dict[str, Json] = answer["result"]
        return result

    def reply(self, question: Mapping[str, Json], result: Json) -> None:
        """Answer a request of the server; a result that is bytes is JSON already."""
        self.send(b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (_json(question["id"]), _json(result)))

    async def initialize(
        self, version: str = "2025-11-25", capabilities: Json = None, client_info: Json = None
    ) -> dict[str, Json]:
        """Shake hands."""
        info = client_info or {"name": "t"}
        hello = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": info}
        answer = await self.request("initialize", hello)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    async def line(self, wanted: Callable[[dict[str, Json]], bool]) -> bytes:
        """Wait for a message like this and return its line."""
        seen = 0
        async with asyncio.timeout(self._bound_s):
            while True:
                new, seen = self.lines[seen:], len(self.lines)
                for line in new:
                    message = json.loads(line)
                    if isinstance(message, dict) and wanted(message):
                        return line
                await self._arrived.wait()

    def heard(self, method: str) -> list[dict[str, Json]]:
        """Return the messages with this method that have come."""
        messages = [json.loads(line) for line in self.lines]
        return [each for each in messages if isinstance(each, dict) and each.get("method") == method]

    async def hears(self, method: str, times: int = 1) -> dict[str, Json]:
        """Wait until so many messages with this method have come, and return the latest."""
        async with asyncio.timeout(self._bound_s):
            while len(self.heard(method)) < times:
                await self._arrived.wait()
        return self.heard(method)[-1]

    async def next_line(self, after: int) -> bytes:
        """Wait for the line that follows the first `after` ones."""
        async with asyncio.timeout(self._bound_s):
            while len(self.lines) <= after:
                await self._arrived.wait()
        return self.lines[after]

    def _take(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        self.lines.append(line)
        self._arrived.set()
        self._arrived = asyncio.Event()


def _json(value: Json) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def part(line: bytes, *path: str) -> bytes:
    """Return the bytes of what stands at a path of names in a message."""
    return bytes(wire.member(line, *path))


def text_of(result: Mapping[str, Json]) -> str:
    """Return the text of a tool's result."""
    text: str = result["content"][0]["text"]
    return text


def frame(**members: bytes) -> Frame:
    """Return a frame with these members, given as JSON."""
    return wire.parse(b"{" + b",".join(b'"%s":%s' % (key.encode(), value) for key, value in members.items()) + b"}")
