"""The options of the core of the HTTP face."""

from __future__ import annotations

from msgspec import Struct

DEFAULT_PATH = "/mcp"


class HttpOptions(Struct, frozen=True):
    """The options of an `HttpFace`.

    `own_hosts` are the names and addresses of the listen addresses, as in `Host` without a port, `own_origins` the
    origins of our pages as browsers send them. `accepts_any_address` is set if it listens on all addresses of the
    machine. `trusted_proxies` are the addresses and networks whose `X-Forwarded-Host` is trusted, `unix` means every
    peer of a Unix socket, and `forwarders` are those whose `X-Forwarded-For` is trusted. `profile` is for clients
    whose path names none. `public_url` is that of the endpoint for everyone, `needs_token` whether clients need a
    token that a person gives them. `max_in_flight` limits the requests of one session.
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
    public_url: str | None = None
    needs_token: bool = False
    max_sessions: int = 1000
    session_timeout_s: float = 3600.0
    max_in_flight: int = 256
    max_body_bytes: int = 64 << 20
