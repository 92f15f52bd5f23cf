"""What opens links to upstreams; how that is done is loaded with the first one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from dynamic_mcp.client import ClientHello
from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.upstream.handshake import Era, Opened

if TYPE_CHECKING:
    from dynamic_mcp.oauth.logins import Logins
    from dynamic_mcp.upstream.link import Listener


class OpenLink(Protocol):
    """What opens links: `open_link` or something in its place."""

    def __call__(
        self, config: GroupConfig, listener: Listener, hello: ClientHello, *, lacks: Era | None = None
    ) -> Awaitable[Opened]:
        """Open a link to an upstream that was found not to speak the era that it `lacks`."""
        ...


async def open_link(
    config: GroupConfig,
    listener: Listener,
    hello: ClientHello,
    *,
    lacks: Era | None = None,
    logins: Callable[[], Logins | None] = lambda: None,
) -> Opened:
    """Connect and shake hands, within the group's connect timeout; what was begun is ended on failure.

    The link speaks the era of the client if the upstream does; `lacks` is the one that it was found not to speak.
    Credentials come from the config's headers, else from the `logins`, which are asked for where a server is remote.

    Raises Unreachable, LinkLost, TimedOut, ProtocolViolation, HttpError, Refused and LoginNeeded.
    """
    from dynamic_mcp.upstream import opener

    return await opener.open_link(config, listener, hello, lacks=lacks, logins=logins)
