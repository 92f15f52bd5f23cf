"""Opens a link to a modern upstream, and detects an upstream that is legacy.

MCP 2026-07-28, versioning, and the backward compatibility of each transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import GroupConfig, Remote
from dynamic_mcp.errors import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    DynamicMcpError,
    ErrorAnswer,
    HttpError,
    LinkLost,
    ProtocolViolation,
)
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.revisions import LEGACY, MODERN
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.oauth.authorization import ServerCredentials
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.call import LineTransport
from dynamic_mcp.upstream.handshake import Era, ServerInfo, error_code, initialize, lacking, result_of
from dynamic_mcp.upstream.link import Link, LinkOwner
from dynamic_mcp.upstream.modern_link import ModernLink
from dynamic_mcp.upstream.modern_stamp import Stamp

# Time for a program to show its era before it is greeted as a legacy one too.
PROBE_S = 1.5
# The same over HTTP, and after a refused greeting: the server already runs.
_ANSWER_WITHIN_S = 10.0

Opened = tuple[AnyLink, ServerInfo]
Start = Callable[[], Awaitable[tuple[Link, LineTransport]]]
# Errors that only modern servers answer with.
_MODERN_ERRORS = frozenset((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION))
# Statuses that do not show the era of a server, besides those of 500 and above.
_INCONCLUSIVE = frozenset((401, 403, 407, 408, 429))
# Members of the result that are not about the server.
_NOT_SAID = frozenset(("supportedVersions", "_meta", envelope.RESULT_TYPE, envelope.TTL_MS, envelope.CACHE_SCOPE))


async def open_program(
    config: GroupConfig, listener: LinkOwner, hello: ClientInfo, start: Start, *, lacks: Era | None = None
) -> Opened:
    """Start a program and open a modern link, or a legacy one to a program that shows no sign of being modern.

    A program that exits on `server/discover` is restarted. Raises UpstreamError.
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
    return await initialize_or_close(link, config, hello)


async def initialize_or_close(link: Link, config: GroupConfig, hello: ClientInfo) -> Opened:
    """Greet an upstream that is not modern; its link is closed on failure."""
    try:
        return link, lacking("modern", await initialize(link, hello, config))
    except BaseException:
        await asyncio.shield(link.close())
        raise


async def _find_out(
    config: GroupConfig,
    listener: LinkOwner,
    hello: ClientInfo,
    link: Link,
    transport: LineTransport,
    lacks: Era | None,
) -> Opened | None:
    """Send `server/discover` to a program, and initialize it as a legacy one if it does not answer in time.

    A greeted program is legacy from then on, even if it answers `server/discover` later: it may serve one era at a
    time. Returns None if the program has ended.
    """
    stamp = Stamp(hello)
    probe = asyncio.create_task(discover(link, stamp, config, config.timeouts.connect_s))
    greeting: asyncio.Task[ServerInfo] | None = None
    try:
        probe_s = min(PROBE_S, config.timeouts.connect_s / 2)
        await asyncio.wait([probe], timeout=None if lacks == "legacy" else probe_s)
        if not _has_failed(probe) and _result_of(probe) is None:  # it is legacy, or slow
            greeting = asyncio.create_task(initialize(link, hello, config))
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
    greeting: asyncio.Task[ServerInfo], probe: asyncio.Task[ServerInfo | None], within_s: float
) -> None:
    """Wait until a program has answered the greeting; a modern one may ignore it, or refuse it first."""
    await asyncio.wait((greeting, probe), return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait([greeting], timeout=None if _result_of(probe) is None else within_s)
    if _has_failed(greeting):
        await asyncio.wait([probe])


def _has_failed(task: asyncio.Task[Any]) -> bool:  # Any: as above
    return task.done() and task.exception() is not None


def _result_of(probe: asyncio.Task[ServerInfo | None]) -> ServerInfo | None:
    return probe.result() if probe.done() and probe.exception() is None else None


def _modern(link: ModernLink, server: ServerInfo, transport: LineTransport | None) -> Opened:
    if transport is not None:
        transport.receive = link.receive
    link.start_listening()
    return link, server


async def open_refusing(
    config: GroupConfig, listener: LinkOwner, hello: ClientInfo, link: Link, transport: LineTransport
) -> Opened | None:
    """Open a modern link to a program that has refused the greeting; None if it is not modern either."""
    stamp = Stamp(hello)
    try:
        server = await discover(link, stamp, config, min(_ANSWER_WITHIN_S, config.timeouts.connect_s / 2))
    except DynamicMcpError:
        return None  # the refusal explains more
    if server is None:
        return None
    return _modern(ModernLink(link, listener, stamp, server), lacking("legacy", server), transport)


async def open_remote(
    config: GroupConfig,
    remote: Remote,
    listener: LinkOwner,
    hello: ClientInfo,
    authorization: ServerCredentials | None,
) -> Opened | None:
    """Open a modern link to a server; None if the server is legacy. Raises UpstreamError and LoginNeeded."""
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


async def discover(link: Link, stamp: Stamp, config: GroupConfig, within_s: float) -> ServerInfo | None:
    """Send `server/discover` and return the answer; None if the upstream is legacy.

    Raises ErrorAnswer for a modern upstream that has no revision in common with the proxy, and UpstreamError and
    LoginNeeded if the era remains unknown.
    """
    try:
        answer = await _ask(link, stamp, within_s)
    except HttpError as exc:
        if exc.status >= 500 or exc.status in _INCONCLUSIVE:
            raise
        return None
    except ProtocolViolation:
        return None
    code = error_code(answer)
    if len(answer.error) and code not in _MODERN_ERRORS:
        return None
    if code == UNSUPPORTED_VERSION:
        _check_versions(wire.member(answer.error, "data", "supported"), config)
        return None
    try:
        result = result_of(answer, config, "server/discover")
    except ProtocolViolation:
        return None
    if "supportedVersions" not in result:
        return None
    if MODERN.name not in _versions(result["supportedVersions"]):
        _check_versions(result["supportedVersions"], config)
        return None
    members = {name: value for name, value in result.items() if name not in _NOT_SAID}
    server_info = envelope.meta_of(result).get(envelope.SERVER_INFO)
    if server_info is not None:
        members["serverInfo"] = server_info
    return ServerInfo({"protocolVersion": Raw(wire.encode(MODERN.name)), **members})


async def _ask(link: Link, stamp: Stamp, within_s: float) -> Frame:
    """Ask again if the upstream refuses our revision but lists it as supported."""
    answer = await link.request("server/discover", stamp.params(), timeout_s=within_s)
    supported = wire.member(answer.error, "data", "supported")
    if error_code(answer) != UNSUPPORTED_VERSION or MODERN.name not in _versions(supported):
        return answer
    return await link.request("server/discover", stamp.params(), timeout_s=within_s)


def _check_versions(versions: Raw, config: GroupConfig) -> None:
    """Return if an upstream without our modern revision supports a legacy one. Raises ErrorAnswer."""
    names = _versions(versions)
    if not any(revision.name in names for revision in LEGACY):
        if MODERN.name in names:
            raise ErrorAnswer(
                config.name, f"rejects `{MODERN.name}`, which it claims to support", code=UNSUPPORTED_VERSION
            )
        shown = ", ".join(f"`{name[:40]}`" for name in names[:5]) or "no version"
        raise ErrorAnswer(config.name, f"supports {shown}, which the proxy does not", code=UNSUPPORTED_VERSION)


def _versions(versions: Raw) -> list[str]:
    try:
        return [name for each in wire.elements(versions) if (name := wire.text(each)) is not None]
    except wire.Malformed:
        return []
