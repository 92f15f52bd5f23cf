"""A stand-in for the proxy behind a session, and a client in front of it."""

from __future__ import annotations

import asyncio
import json

from dynamic_mcp.client import Client as ConnectedClient
from dynamic_mcp.client import ClientInfo
from dynamic_mcp.errors import Disabled, NotFound, TimedOut
from dynamic_mcp.mcp import revisions, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import View, ViewScope
from tests.fakes import Client, Json

BATCHES = "2025-03-26"  # the one revision that has them
EMPTY_VIEW = View((), ViewScope())


def ignore_status(frame: Frame) -> None:
    """Take what a client says of a request that it was asked, and forget it."""


class Desk:
    """Stands where the proxy would: one method for each way of answering."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.given_up: list[str] = []
        self.released: list[ConnectedClient] = []
        self.gate = asyncio.Event()

    def view_for(self, client: ConnectedClient) -> View:
        return EMPTY_VIEW

    async def initialize(self, client: ConnectedClient) -> dict[str, object]:
        return {"protocolVersion": client.hello.revision.name}

    def notify(self, request: Request) -> None:
        self.heard.append(request.method)

    def release(self, client: ConnectedClient) -> None:
        self.released.append(client)

    async def answer(self, request: Request) -> Frame:
        match request.method:
            case "echo":
                return wire.result_frame(bytes(request.params) or b"null")
            case "hold":
                return await self._held(request)
            case "ask":
                return await request.ask(Frame(method="sampling/createMessage", params=request.params), ignore_status)
            case "members":
                return wire.result_frame({"count": len(wire.members(request.params))})
            case "tools/call" | "missing":
                raise NotFound("group", "x", hint="the groups are `y`")
            case "disabled":
                raise Disabled("tools", "x")
            case "late":
                raise TimedOut("x", "too late")
            case _:
                raise ZeroDivisionError("a bug")

    async def _held(self, request: Request) -> Frame:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.given_up.append(bytes(request.params).decode())
            raise
        return wire.result_frame({"held": True})


def make_client(version: str = "2025-11-25") -> tuple[Client, Desk]:
    desk = Desk()
    client = Client(desk)
    client.session.hello = ClientInfo(revisions.negotiate(version))
    return client, desk


async def greeted_client(*capabilities: str, version: str = "2025-11-25") -> tuple[Client, Desk]:
    """Return a client that has declared these, and what it has heard up to now is forgotten."""
    client, desk = make_client(version)
    await client.initialize(version, capabilities={name: {} for name in capabilities})
    client.lines.clear()
    desk.heard.clear()
    return client, desk


async def next_json(client: Client, after: int = 0) -> Json:
    return json.loads(await client.next_line(after))


def cancel(client: Client, id: Json) -> None:
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
