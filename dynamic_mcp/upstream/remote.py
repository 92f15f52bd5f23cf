"""Links to remote servers over both transports. Imported with the first remote group: httpx2 is slow to load."""

from __future__ import annotations

from typing import Literal

from dynamic_mcp.config.resolved import GroupConfig, Remote
from dynamic_mcp.oauth.authorization import Authorization
from dynamic_mcp.upstream.endpoint import HttpEndpoint
from dynamic_mcp.upstream.http import HttpTransport
from dynamic_mcp.upstream.link import Link, Listener
from dynamic_mcp.upstream.mask import mask_of
from dynamic_mcp.upstream.sse import SseTransport

TransportKind = Literal["http", "sse"]


async def connect(
    config: GroupConfig,
    remote: Remote,
    kind: TransportKind,
    *,
    listener: Listener,
    authorization: Authorization | None = None,
) -> Link:
    """Return a link over this transport, before the handshake. Raises UpstreamError and LoginNeeded."""
    connect_s = config.timeouts.connect_s
    mask = mask_of(remote)
    # less than the whole timeout, to tell a server that cannot be reached from one that does not answer
    endpoint = HttpEndpoint(config.name, remote, connect_s=0.9 * connect_s, authorization=authorization)
    if kind == "http":
        http = HttpTransport(endpoint, config.max_message_bytes)
        link = Link(config.name, http, listener, mask)
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
