"""Opens links to upstreams; the implementation is imported with the first link."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.upstream.handshake import Era, Opened

if TYPE_CHECKING:
    from dynamic_mcp.oauth.logins import Logins
    from dynamic_mcp.upstream.link import LinkOwner


class OpenLink(Protocol):
    """The type of `open_link`, with `logins` bound."""

    def __call__(
        self, config: GroupConfig, listener: LinkOwner, hello: ClientInfo, *, lacks: Era | None = None
    ) -> Awaitable[Opened]:
        """Open a link to an upstream that does not support the era `lacks`."""
        ...


async def open_link(
    config: GroupConfig,
    listener: LinkOwner,
    hello: ClientInfo,
    *,
    lacks: Era | None = None,
    logins: Callable[[], Logins | None] = lambda: None,
) -> Opened:
    """Connect and shake hands within the group's connect timeout; a failure ends everything that was started.

    The link has the era of the client if the upstream supports it; `lacks` is the era that the upstream does not
    support. Credentials come from the config's headers, else from `logins`, which is called only for a remote server.

    Raises Unreachable, LinkLost, TimedOut, ProtocolViolation, HttpError, ErrorAnswer and LoginNeeded.
    """
    from dynamic_mcp.upstream import opener

    return await opener.open_link(config, listener, hello, lacks=lacks, logins=logins)
