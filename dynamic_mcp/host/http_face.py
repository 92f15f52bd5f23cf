"""The HTTP core's options and timer, for every HTTP server of the program."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from dynamic_mcp.config.auth import BearerAuth
from dynamic_mcp.config.http import Http
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.options import HttpOptions

_TICK_S = 1.0


async def tick(face: HttpFace) -> None:
    """Run the core's due work until cancelled."""
    while True:
        await asyncio.sleep(_TICK_S)
        face.tick()


def make_options(
    http: Http, max_body_bytes: int, *, own_hosts: tuple[str, ...], accepts_any_address: bool
) -> HttpOptions:
    """Return the options for the config, at these hosts and at that of its public URL."""
    public_host, public_origin = _split_public_url(http.public_url)
    return HttpOptions(
        path=http.path,
        root_path=http.root_path,
        profile=http.profile,
        own_hosts=own_hosts + public_host,
        own_origins=public_origin,
        allowed_hosts=http.allowed_hosts,
        allowed_origins=http.allowed_origins,
        trusted_proxies=http.trusted_proxies,
        forwarders=http.forwarders,
        accepts_any_address=accepts_any_address,
        public_url=http.public_url,
        needs_token=bool(http.auth) and all(isinstance(each, BearerAuth) for each in http.auth),
        max_sessions=http.max_sessions,
        session_timeout_s=http.session_timeout_s,
        max_in_flight=http.max_in_flight,
        max_body_bytes=max_body_bytes,
    )


def _split_public_url(url: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the host of a URL, as in `Host` but without a port, and its origin; empty without a URL."""
    if url is None:
        return (), ()
    parts = urlsplit(url.lower())
    host = parts.hostname or ""
    return (f"[{host}]" if ":" in host else host,), (f"{parts.scheme}://{parts.netloc}",)
