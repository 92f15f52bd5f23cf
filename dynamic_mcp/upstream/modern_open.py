"""How a link to a modern upstream is opened, and how it is found out that an upstream is legacy.

MCP 2026-07-28, versioning, and the backward compatibility of each transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from dynamic_mcp.client import ClientHello
from dynamic_mcp.config.resolved import GroupConfig, Remote
from dynamic_mcp.errors import DynamicMcpError, LinkLost
from dynamic_mcp.oauth.authorization import Authorization
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.handshake import Era, ServerHello, greet, lacking
from dynamic_mcp.upstream.link import Link, Listener
from dynamic_mcp.upstream.modern_handshake import discover
from dynamic_mcp.upstream.modern_link import ModernLink
from dynamic_mcp.upstream.modern_stamp import Stamp
from dynamic_mcp.upstream.stdio import StdioTransport

# How long a program may take to show its era before it is greeted as a legacy one too.
PROBE_S = 1.5
# How long a server may take over HTTP, and after it has refused to be greeted: it is there, and starts nothing.
_ANSWER_WITHIN_S = 10.0

Opened = tuple[AnyLink, ServerHello]
Start = Callable[[], Awaitable[tuple[Link, StdioTransport]]]


async def open_program(
    config: GroupConfig, listener: Listener, hello: ClientHello, start: Start, *, lacks: Era | None = None
) -> Opened:
    """Start a program and open a modern link, or a legacy one to a program that shows no sign of being modern.

    One that ends when it is asked what it is starts again. Raises UpstreamError.
    """
    link, transport = await start()
    try:
        opened = await _find_out(config, listener, hello, link, transport, lacks)
    except BaseException:
        await asyncio.shield(link.close())
        raise
    if opened is not None:
        return opened
    await link.close()
    link, _ = await start()
    return await greet_or_close(link, config, hello)


async def greet_or_close(link: Link, config: GroupConfig, hello: ClientHello) -> Opened:
    """Greet an upstream that is not modern; its link is closed on failure."""
    try:
        return link, lacking("modern", await greet(link, hello, config))
    except BaseException:
        await asyncio.shield(link.close())
        raise


async def _find_out(
    config: GroupConfig,
    listener: Listener,
    hello: ClientHello,
    link: Link,
    transport: StdioTransport,
    lacks: Era | None,
) -> Opened | None:
    """Ask a program what it is, and greet it if it does not say so in time.

    One that has been greeted is legacy from then on, whatever it says of itself: it may serve one era at a time.
    Returns None if the program has ended.
    """
    stamp = Stamp(hello)
    probe = asyncio.create_task(discover(link, stamp, config, config.timeouts.connect_s))
    greeting: asyncio.Task[ServerHello] | None = None
    try:
        probe_s = min(PROBE_S, config.timeouts.connect_s / 2)
        await asyncio.wait([probe], timeout=None if lacks == "legacy" else probe_s)
        if not _has_failed(probe) and _result_of(probe) is None:  # it is legacy, or slow
            greeting = asyncio.create_task(greet(link, hello, config))
            await _wait_for_greeting(greeting, probe, probe_s)
        server = _result_of(probe)
        if greeting is not None and greeting.done() and not _has_failed(greeting):
            return link, lacking("modern" if server is None else None, greeting.result())
        if server is not None:
            return _modern(ModernLink(link, listener, stamp, server), server, transport)
        error = (greeting or probe).exception()
        assert error is not None, "one of the two succeeds or fails"
        if isinstance(error, LinkLost):
            return None
        raise error
    finally:
        for task in (probe, greeting):
            if task is not None:
                task.add_done_callback(lambda each: each.cancelled() or each.exception())
                task.cancel()


async def _wait_for_greeting(
    greeting: asyncio.Task[ServerHello], probe: asyncio.Task[ServerHello | None], within_s: float
) -> None:
    """Wait until a program has answered the greeting; one that is modern may ignore it, or refuse it first."""
    await asyncio.wait((greeting, probe), return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait([greeting], timeout=None if _result_of(probe) is None else within_s)
    if _has_failed(greeting):
        await asyncio.wait([probe])


def _has_failed(task: asyncio.Task[Any]) -> bool:  # Any: as above
    return task.done() and task.exception() is not None


def _result_of(probe: asyncio.Task[ServerHello | None]) -> ServerHello | None:
    return probe.result() if probe.done() and probe.exception() is None else None


def _modern(link: ModernLink, server: ServerHello, transport: StdioTransport | None) -> Opened:
    if transport is not None:
        transport.receive = link.receive
    link.start_listening()
    return link, server


async def open_refusing(
    config: GroupConfig, listener: Listener, hello: ClientHello, link: Link, transport: StdioTransport
) -> Opened | None:
    """Open a modern link to a program that has refused to be greeted; None if it is not modern either."""
    stamp = Stamp(hello)
    try:
        server = await discover(link, stamp, config, min(_ANSWER_WITHIN_S, config.timeouts.connect_s / 2))
    except DynamicMcpError:
        return None  # how it refused says more
    if server is None:
        return None
    return _modern(ModernLink(link, listener, stamp, server), lacking("legacy", server), transport)


async def open_remote(
    config: GroupConfig,
    remote: Remote,
    listener: Listener,
    hello: ClientHello,
    authorization: Authorization | None,
) -> Opened | None:
    """Open a modern link to a server; None if it shows that it is legacy. Raises UpstreamError and LoginNeeded."""
    from dynamic_mcp.upstream.remote import connect_modern  # with the first remote group: httpx2 is slow to load

    link, tool_headers = connect_modern(config, remote, listener=listener, authorization=authorization)
    stamp = Stamp(hello)
    try:
        server = await discover(link, stamp, config, min(_ANSWER_WITHIN_S, config.timeouts.connect_s / 2))
    except BaseException:
        await asyncio.shield(link.close())
        raise
    if server is None:
        await link.close()
        return None

    async def is_still_modern() -> bool:
        return await discover(link, stamp, config, _ANSWER_WITHIN_S) is not None

    modern = ModernLink(link, listener, stamp, server, tool_headers=tool_headers, is_still_modern=is_still_modern)
    return _modern(modern, server, None)
