"""A modern client in memory, in front of a proxy with fake upstreams."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping

from dynamic_mcp.identity import LOCAL_USER, Authentication
from dynamic_mcp.mcp.revisions import MODERN
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.client_connection import ClientConnection, ClientOrigin
from dynamic_mcp.session.server import ModernServer
from dynamic_mcp.session.stream_session import StreamSession
from tests.fakes import BOUND_S, Json, Opener, PresentedGroup, config_of, group_config

PREFIX = "io.modelcontextprotocol/"
CAN_ALL: Json = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
INFO = {"name": "modern", "version": "1"}


@contextlib.asynccontextmanager
async def modern_client_of(opener: Opener, *configs: PresentedGroup, **settings: Json) -> AsyncIterator[ModernClient]:
    """Run a proxy in front of these groups, else of one for each name in the opener's plan, for one client."""
    groups = configs or tuple(group_config(name) for name in opener.plan)
    proxy = Proxy(config_of(*groups, **settings), opener=opener)
    try:
        yield ModernClient(proxy)
    finally:
        await proxy.close()


class ModernClient:
    """A client that sends each request with who it is."""

    def __init__(
        self,
        server: ModernServer,
        *,
        capabilities: Json = None,
        info: Json = None,
        authentication: Authentication = LOCAL_USER,
        only: str | None = None,
        profile: str | None = None,
    ) -> None:
        self.server = server
        self.capabilities = CAN_ALL if capabilities is None else capabilities
        self.info = info or INFO
        self.messages: list[dict[str, Json]] = []
        connection = ClientConnection(self._take, origin=ClientOrigin(authentication, only=only, profile=profile))
        self.session = StreamSession(connection, server)
        self._ids = itertools.count(1)
        self._arrived = asyncio.Event()

    def send(self, message: Json) -> None:
        """Send a message, or a line as it is."""
        self.session.receive(message if isinstance(message, bytes) else json.dumps(message).encode())

    def begin(
        self, method: str, params: Mapping[str, Json] | None = None, meta: Mapping[str, Json] | None = None
    ) -> int:
        """Send a request; returns its id. `meta` has more members of `_meta`, which `None` takes out."""
        id = next(self._ids)
        own = {
            f"{PREFIX}protocolVersion": MODERN.name,
            f"{PREFIX}clientInfo": self.info,
            f"{PREFIX}clientCapabilities": self.capabilities,
        }
        whole = {**own, **(params or {}).get("_meta", {}), **(meta or {})}
        body = {**(params or {}), "_meta": {name: value for name, value in whole.items() if value is not None}}
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": body})
        return id

    async def answer_to(self, id: Json) -> dict[str, Json]:
        """Wait for the answer to a request."""
        async with asyncio.timeout(BOUND_S):
            while True:
                for message in self.messages:
                    if message.get("id") == id:
                        return message
                await self._arrived.wait()

    async def request(
        self, method: str, params: Mapping[str, Json] | None = None, meta: Mapping[str, Json] | None = None
    ) -> dict[str, Json]:
        """Send a request and return its answer."""
        return await self.answer_to(self.begin(method, params, meta))

    async def call(self, group: str, name: str, args: Json = None, **params: Json) -> dict[str, Json]:
        """Call a tool through `call_dynamic_tool` and return the answer."""
        return await self.request("tools/call", call_of(group, name, args, **params))

    def begin_call(self, group: str, name: str, args: Json = None, **params: Json) -> int:
        """Begin to call a tool through `call_dynamic_tool`; returns the id of the request."""
        return self.begin("tools/call", call_of(group, name, args, **params))

    def cancel(self, id: int) -> None:
        """Cancel a request."""
        self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})

    def heard(self, method: str) -> list[dict[str, Json]]:
        """Return the notifications with this method that have come."""
        return [message for message in self.messages if message.get("method") == method]

    async def hears(self, method: str, times: int = 1) -> dict[str, Json]:
        """Wait until so many notifications with this method have come, and return the latest."""
        async with asyncio.timeout(BOUND_S):
            while len(self.heard(method)) < times:
                await self._arrived.wait()
        return self.heard(method)[-1]

    def _take(self, line: bytes) -> None:
        self.messages.append(json.loads(line))
        self._arrived.set()
        self._arrived = asyncio.Event()


def call_of(group: str, name: str, args: Json = None, **params: Json) -> dict[str, Json]:
    """Return the params of a call through `call_dynamic_tool`."""
    arguments = {"group": group, "name": name, **({} if args is None else {"args": args})}
    return {"name": "call_dynamic_tool", "arguments": arguments, **params}


def retry_of(answer: Mapping[str, Json], response: Json = None, **responses: Json) -> dict[str, Json]:
    """Return what a retry has beside the params: the state, and the same response to all, or one to each."""
    result = answer["result"]
    given = responses or dict.fromkeys(result["inputRequests"], response or {"action": "accept", "content": {}})
    return {"requestState": result["requestState"], "inputResponses": given}
