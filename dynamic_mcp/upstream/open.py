"""The one switch on the kind of an upstream: how a link to it is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Literal

from dynamic_mcp.config.resolved import Broken, GroupConfig, Program, Remote
from dynamic_mcp.errors import HttpError, TimedOut, Unreachable
from dynamic_mcp.oauth.authorization import Authorization
from dynamic_mcp.oauth.logins import Logins
from dynamic_mcp.upstream.handshake import ClientHello, ServerHello, greet
from dynamic_mcp.upstream.link import Link, Listener
from dynamic_mcp.upstream.mask import mask_of
from dynamic_mcp.upstream.stdio import StdioTransport

# What a server that speaks only the older transport answers to the first POST (MCP 2025-11-25, basic/transports).
_TRY_OLDER = frozenset({400, 404, 405})
# URLs of servers that were found to be such, while this program runs.
_OLDER: set[str] = set()

TransportKind = Literal["http", "sse"]


async def open_link(
    config: GroupConfig, listener: Listener, hello: ClientHello, *, logins: Logins | None = None
) -> tuple[Link, ServerHello]:
    """Connect and shake hands, within the group's connect timeout; what was begun is ended on failure.

    Credentials come from the config's headers, else from the logins.

    Raises Unreachable, LinkLost, TimedOut, ProtocolViolation, HttpError, Refused and LoginNeeded.
    """
    match config.upstream:
        case Program() as program:
            return await _greet_or_close(await _start(config, program, listener), config, hello)
        case Remote(kind=kind) as remote:
            authorization = logins.authorization(config.name, remote) if logins is not None else None
            open_as = partial(_open_remote, config, remote, listener, hello, authorization)
            return await (_open_either(remote.url, open_as) if kind is None else open_as(kind))
        case Broken(reason=reason):
            raise Unreachable(config.name, reason, final=True)


async def _greet_or_close(link: Link, config: GroupConfig, hello: ClientHello) -> tuple[Link, ServerHello]:
    try:
        return link, await greet(link, hello, config)
    except BaseException:
        await asyncio.shield(link.close())
        raise


async def _start(config: GroupConfig, program: Program, listener: Listener) -> Link:
    transport = StdioTransport(config.name, config.max_message_bytes)
    link = Link(config.name, transport, listener, mask_of(program))
    transport.receive, transport.lost = link.receive, link.lose
    link.pid = await transport.start(program)
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

    link = await connect(config, remote, kind, listener=listener, authorization=authorization)
    return await _greet_or_close(link, config, hello)
