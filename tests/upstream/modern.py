"""A modern upstream on the far side of a link, and links to it, as tests of modern links use them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Raw

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.mcp.revisions import MODERN
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.upstream.handshake import ServerInfo
from dynamic_mcp.upstream.link import Link, LinkOwner
from dynamic_mcp.upstream.modern_link import ModernLink
from dynamic_mcp.upstream.modern_open import discover
from dynamic_mcp.upstream.modern_stamp import Stamp
from tests.fake_parties import Ear, FakeCaller
from tests.fakes import BOUND_S, FakeUpstream, Json, group_config

PREFIX = "io.modelcontextprotocol/"
SERVER = {"name": "fake", "version": "1"}
LEGACY_HELLO = ClientInfo(
    capabilities=Raw(b'{"sampling":{},"elicitation":{},"roots":{"listChanged":true},"tasks":{"list":{}}}'),
    client_info=Raw(b'{"name":"old","version":"9"}'),
)


def discovered(capabilities: Json = None, **members: Json) -> dict[str, Json]:
    """Return the result of `server/discover`."""
    return {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": capabilities if capabilities is not None else {"tools": {}},
        "_meta": {f"{PREFIX}serverInfo": SERVER},
        "ttlMs": 1000,
        "cacheScope": "public",
        **members,
    }


def complete(**members: Json) -> dict[str, Json]:
    """Return a result as modern servers give it."""
    return {"resultType": "complete", "_meta": {f"{PREFIX}serverInfo": SERVER}, **members}


class ModernUpstream(FakeUpstream):
    """A fake upstream that knows no `initialize`; what it says reaches the modern link once there is one."""

    def __init__(self, capabilities: Json = None, **answers: Json) -> None:
        super().__init__()
        self.modern: ModernLink | None = None
        self.has_streams = False
        self.answers = {
            "server/discover": discovered(capabilities),
            "tools/list": complete(tools=[], ttlMs=0, cacheScope="private"),
            **answers,
        }

    def say(self, message: Json) -> None:
        receive = self.link.receive if self.modern is None else self.modern.receive
        receive(message if isinstance(message, bytes) else json.dumps(message).encode())

    def acknowledge(self, listen: Json, **honoured: Json) -> None:
        """Acknowledge a subscription, with all that it asks for unless other things are given."""
        self.announce(
            listen, "subscriptions/acknowledged", notifications=honoured or listen["params"]["notifications"]
        )

    def announce(self, listen: Json, what: str, **params: Json) -> None:
        """Send a notification of a subscription."""
        meta = {f"{PREFIX}subscriptionId": listen["id"]}
        self.say({"jsonrpc": "2.0", "method": f"notifications/{what}", "params": {"_meta": meta, **params}})


async def modern_link_to(
    upstream: ModernUpstream, *, listener: LinkOwner | None = None, hello: ClientInfo = LEGACY_HELLO
) -> ModernLink:
    """Return a link to an upstream that has said what it is."""
    link, _ = await open_modern(upstream, listener or Ear(), hello)
    return link


async def open_modern(
    upstream: ModernUpstream, listener: LinkOwner, hello: ClientInfo
) -> tuple[ModernLink, ServerInfo]:
    """Open a link, and return what the upstream says of itself too."""
    upstream.link = Link("up", upstream, listener)
    upstream.link.has_streams = upstream.has_streams
    stamp = Stamp(hello)
    server = await discover(upstream.link, stamp, group_config(), BOUND_S)
    assert server is not None
    upstream.modern = ModernLink(upstream.link, listener, stamp, server, jitter=lambda: 0.5)
    upstream.modern.start_listening()
    return upstream.modern, server


def legacy_caller() -> FakeCaller:
    """Return a caller whose client has shaken hands."""
    caller = FakeCaller()
    caller.hello = LEGACY_HELLO
    return caller


def modern_caller(level: str = "") -> FakeCaller:
    """Return a caller whose client is modern."""
    caller = FakeCaller()
    caller.hello = ClientInfo(MODERN)
    caller.log_level = level
    return caller


class Client(FakeCaller):
    """A legacy client that answers each question by a function of its method and params."""

    def __init__(self, answer: Callable[[str, Json], Frame]) -> None:
        super().__init__()
        self.hello = LEGACY_HELLO
        self._answer = answer

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        self.asked.append(frame)
        return self._answer(frame.method, json.loads(bytes(frame.params) or b"null"))


def in_turn(*results: Json) -> Callable[[Json], Json]:
    """Return an answer that is another result each time."""
    rest: Iterator[Json] = iter(results)
    return lambda _: next(rest)


def begin_call(link: Any, caller: FakeCaller | None = None, **more: Json) -> asyncio.Task[Frame]:  # Any: either link
    """Begin a call of a tool; the answer is the task's result."""
    params = {"name": Raw(b'"t"'), "arguments": Raw(b'{"n" : 1.50}'), **more.pop("params", {})}
    request = link.request("tools/call", params, **{"timeout_s": 5, "caller": caller, "label": "`t`", **more})
    return asyncio.create_task(request)


async def result(request: asyncio.Task[Frame]) -> Json:
    """Return the result of a request, or its error."""
    async with asyncio.timeout(BOUND_S):
        frame = await request
    return json.loads(bytes(frame.result if len(frame.result) else frame.error))


async def until(condition: Callable[[], object]) -> None:
    """Wait for something of which nobody is told."""
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)


def meta_of(message: Json) -> Json:
    """Return the `_meta` of a message."""
    return message["params"]["_meta"]
