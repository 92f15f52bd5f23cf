"""The one switch on the kind of an upstream, and the handshake that every kind shares."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Literal

from msgspec import Raw, Struct, field

from dynamic_mcp import __version__
from dynamic_mcp.config.resolved import Broken, GroupConfig, Program, Remote
from dynamic_mcp.errors import METHOD_NOT_FOUND, HttpError, ProtocolViolation, Refused, TimedOut, Unreachable
from dynamic_mcp.mcp import wire
from dynamic_mcp.oauth.authorization import Authorization
from dynamic_mcp.oauth.logins import Logins
from dynamic_mcp.upstream.call import Caller
from dynamic_mcp.upstream.link import Link, Listener
from dynamic_mcp.upstream.mask import mask_of
from dynamic_mcp.upstream.stdio import StdioTransport

# Newest first: an upstream is offered the first, unless the client spoke an older one.
PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
# What a server that speaks only the older transport answers to the first POST (MCP 2025-11-25, basic/transports).
_TRY_OLDER = frozenset({400, 404, 405})
# URLs of servers that were found to be such, while this program runs.
_OLDER: set[str] = set()

TransportKind = Literal["http", "sse"]

OURSELVES = Raw(wire.encode({"name": "dynamic-mcp", "version": __version__}))


class ClientHello(Struct, frozen=True):
    """What an upstream is told at its start: what the client is and can do, word for word, and for whom it starts."""

    version: str = PROTOCOL_VERSIONS[0]
    capabilities: Raw = field(default_factory=lambda: wire.EMPTY_OBJECT)
    client_info: Raw = field(default_factory=lambda: OURSELVES)
    home: Caller | None = None

    def advice(self, config: GroupConfig) -> str:
        """Say which variables of a server are not set and what to do with this client; empty where all are."""
        if not (config.unset or config.empty):
            return ""
        from dynamic_mcp.config.clients import advice

        return advice(config.unset, config.empty, wire.text(wire.member(self.client_info, "name")) or "")


class ServerHello(Struct, frozen=True):
    """What an upstream said of itself: the members of its `initialize` result, as bytes."""

    result: dict[str, Raw]

    @property
    def capabilities(self) -> dict[str, Raw]:
        """What the upstream can do, by the capability's name."""
        try:
            return wire.members(self.result.get("capabilities", wire.EMPTY_OBJECT))
        except wire.Malformed:
            return {}

    @property
    def instructions(self) -> str:
        """The upstream's own words on how to use it."""
        return wire.text(self.result.get("instructions")) or ""

    @property
    def title(self) -> str:
        """The upstream's name for people."""
        try:
            info = wire.members(self.result.get("serverInfo", wire.EMPTY_OBJECT))
        except wire.Malformed:
            return ""
        return wire.text(info.get("title")) or ""


async def open_link(
    config: GroupConfig, listener: Listener, hello: ClientHello, *, logins: Logins | None = None
) -> tuple[Link, ServerHello]:
    """Connect and shake hands, within the group's connect timeout; what was begun is ended on failure.

    Credentials come from the config's headers, else from the logins.

    Raises Unreachable, LinkLost, TimedOut, ProtocolViolation, HttpError, Refused and LoginNeeded.
    """
    match config.upstream:
        case Program() as program:
            return await _greeted(await _start(config, program, listener, hello), config, hello)
        case Remote(kind=kind) as remote:
            authorization = logins.authorization(config.name, remote) if logins is not None else None
            open_as = partial(_open_remote, config, remote, listener, hello, authorization)
            return await (_open_either(remote.url, open_as) if kind is None else open_as(kind))
        case Broken(reason=reason):
            raise Unreachable(config.name, reason, final=True)


async def _greeted(link: Link, config: GroupConfig, hello: ClientHello) -> tuple[Link, ServerHello]:
    try:
        return link, await greet(link, hello, config)
    except BaseException:
        await asyncio.shield(link.close())
        raise


async def _start(config: GroupConfig, program: Program, listener: Listener, hello: ClientHello) -> Link:
    transport = StdioTransport(config.name, config.max_message_bytes)
    link = Link(config.name, transport, listener, hello.home, mask_of(program))
    transport.receive, transport.lost = link.receive, link.lost
    await transport.start(program)
    return link


async def _open_either(
    url: str, open_as: Callable[[TransportKind], Awaitable[tuple[Link, ServerHello]]]
) -> tuple[Link, ServerHello]:
    """Find out which transport a server speaks, as the specification says; the older one is remembered."""
    if url in _OLDER:
        try:
            return await open_as("sse")
        except HttpError:
            _OLDER.remove(url)  # it may have learnt the newer one
    try:
        return await open_as("http")
    except HttpError as exc:
        if exc.status not in _TRY_OLDER:
            raise
        newer = exc
    try:
        opened = await open_as("sse")
    except (HttpError, TimedOut):
        raise newer from None  # it speaks neither, and what it said first is the better reason
    _OLDER.add(url)
    return opened


async def _open_remote(
    config: GroupConfig,
    remote: Remote,
    listener: Listener,
    hello: ClientHello,
    authorization: Authorization | None,
    kind: TransportKind,
) -> tuple[Link, ServerHello]:
    await asyncio.to_thread(import_module, "dynamic_mcp.upstream.remote")  # calls of others go on meanwhile
    from dynamic_mcp.upstream.remote import connect

    link = await connect(config, remote, kind, listener=listener, home=hello.home, authorization=authorization)
    return await _greeted(link, config, hello)


async def greet(link: Link, hello: ClientHello, config: GroupConfig) -> ServerHello:
    """Initialize as the lifecycle of the MCP specification says."""
    params = {
        "protocolVersion": Raw(wire.encode(hello.version)),
        "capabilities": hello.capabilities,
        "clientInfo": hello.client_info,
    }
    answer = await link.request("initialize", params, timeout_s=config.timeouts.connect_s)
    result = result_of(answer, config, "initialize")
    version = wire.text(result.get("protocolVersion"))
    if version not in PROTOCOL_VERSIONS:
        raise ProtocolViolation(link.group, f"speaks protocol version `{version}`, which is not supported")
    link.notify("notifications/initialized")
    return ServerHello(result)


def result_of(answer: wire.Frame, config: GroupConfig, what: str) -> dict[str, Raw]:
    """Return the members of a result that the proxy itself must read. Raises Refused and ProtocolViolation."""
    if len(answer.error):
        error = bytes(answer.error).decode("utf-8", "replace")
        if not isinstance(config.upstream, Broken):
            error = mask_of(config.upstream)(error)
        is_unknown = bytes(wire.member(answer.error, "code")) == b"%d" % METHOD_NOT_FOUND
        raise Refused(config.name, f"answered {what} with the error {error}", is_unknown=is_unknown)
    try:
        return wire.members(answer.result)
    except wire.Malformed:
        raise ProtocolViolation(config.name, f"answered {what} with something other than an object") from None
