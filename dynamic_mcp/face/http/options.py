"""What the core of the HTTP face is told: where it is reached, whom it answers, and its bounds."""

from __future__ import annotations

from msgspec import Struct

DEFAULT_PATH = "/mcp"


class HttpOptions(Struct, frozen=True):
    """How to serve over HTTP.

    `own_hosts` are the names and addresses that it listens on, as they stand in `Host` without a port,
    `own_origins` those of its own pages as browsers name them, whatever a reverse proxy makes of `Host`.
    `accepts_any_address` tells that it listens on all addresses of the machine. `trusted_proxies` are addresses and
    networks whose `X-Forwarded-Host` counts, `unix` every peer of a Unix socket, and `forwarders` those whose
    `X-Forwarded-For` does. `profile` is that of clients that
    choose none by their path. `max_in_flight` bounds the requests of one session.
    """

    path: str = DEFAULT_PATH
    root_path: str = ""
    profile: str | None = None
    own_hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "[::1]")
    own_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    forwarders: tuple[str, ...] = ()
    accepts_any_address: bool = False
    max_sessions: int = 1000
    session_timeout_s: float = 3600.0
    max_in_flight: int = 256
    max_body_bytes: int = 64 << 20
