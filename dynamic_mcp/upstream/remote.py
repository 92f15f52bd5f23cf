"""Links to remote servers over both transports. Imported with the first remote group: httpx2 is slow to load."""

from __future__ import annotations

from typing import Literal

from dynamic_mcp.config.resolved import GroupConfig, Remote
from dynamic_mcp.mcp.mirrored_headers import ToolHeaders
from dynamic_mcp.oauth.authorization import ServerCredentials
from dynamic_mcp.upstream.endpoint import HttpEndpoint
from dynamic_mcp.upstream.http import HttpTransport
from dynamic_mcp.upstream.link import Link, LinkOwner
from dynamic_mcp.upstream.mask import mask_of
from dynamic_mcp.upstream.modern_http import ModernHttpTransport
from dynamic_mcp.upstream.sse import SseTransport

TransportKind = Literal["http", "sse"]


async def connect(
    config: GroupConfig,
    remote: Remote,
    kind: TransportKind,
    *,
    listener: LinkOwner,
    authorization: ServerCredentials | None = None,
) -> Link:
    """Return a link over this transport, before the handshake. Raises UpstreamError and LoginNeeded."""
    connect_s = config.timeouts.connect_s
    mask = mask_of(remote)
    endpoint = _endpoint(config, remote, authorization)
    if kind == "http":
        http = HttpTransport(endpoint, config.max_message_bytes)
        link = Link(config.name, http, listener, mask)
        link.has_streams = True
        http.attach(link)
        return link
    sse = SseTransport(endpoint, config.max_message_bytes)
    link = Link(config.name, sse, listener, mask)
    sse.attach(link)
    try:
        await sse.start(connect_s)
    except BaseException:
        await link.close()
        raise
    return link


def connect_modern(
    config: GroupConfig,
    remote: Remote,
    *,
    listener: LinkOwner,
    authorization: ServerCredentials | None = None,
) -> tuple[Link, ToolHeaders]:
    """Return a link for modern requests, and the headers of its tools. Raises Unreachable."""
    transport = ModernHttpTransport(_endpoint(config, remote, authorization), config.max_message_bytes)
    link = Link(config.name, transport, listener, mask_of(remote))
    link.has_streams = True
    transport.attach(link)
    return link, transport.tool_headers


def _endpoint(config: GroupConfig, remote: Remote, authorization: ServerCredentials | None) -> HttpEndpoint:
    # less than the whole timeout, to tell a server that cannot be reached from one that does not answer
    connect_s = 0.9 * config.timeouts.connect_s
    return HttpEndpoint(config.name, remote, connect_s=connect_s, authorization=authorization)
