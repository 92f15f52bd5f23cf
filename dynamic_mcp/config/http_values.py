"""Checks single values of `settings.http`; each function returns the value or raises `FlawError`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from dynamic_mcp.config.auth_values import kind_of
from dynamic_mcp.config.values import FlawError, check_url, printable

UNIX_PEER = "unix"  # among the trusted proxies: whoever connects to the Unix socket
PATH = r"^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$"
SOCKET_MODE = r"^0?[0-7]{3}$"
# What the server answers beside its MCP endpoint.
_TAKEN = frozenset({"/health", "/ready", "/sse", "/messages", "/upstream-login"})
ORIGIN = r"^[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?)(:[0-9]{1,5})?$"
HOST = r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?)(:[0-9]{1,5})?$"


def check_path(text: str) -> str:
    """Check the path of the MCP endpoint."""
    if re.fullmatch(PATH, text, re.ASCII) is None:
        raise FlawError(
            "must be a path such as `/mcp`", hint="letters, digits, `-`, `_`, `.`, `~`; no `/` at the end"
        )
    if any(text == taken or text.startswith(f"{taken}/") for taken in _TAKEN):
        raise FlawError(f"must not be `{text}`, which is answered otherwise")
    return text


def check_socket_mode(text: str) -> str:
    """Check the mode of a file, in octal."""
    if re.fullmatch(SOCKET_MODE, text, re.ASCII) is None:
        raise FlawError("must be a file mode such as `0660`")
    return text


def check_root_path(text: str) -> str:
    """Check the path that a reverse proxy puts before all of ours, and takes away; it may be empty."""
    if text and re.fullmatch(PATH, text, re.ASCII) is None:
        raise FlawError("must be a path such as `/tools`, or empty", hint="without `/` at the end")
    return text


def check_hosts(names: Sequence[str]) -> Sequence[str]:
    """Check names, with or without a port, that clients may use for this server (RFC 9110, section 7.2)."""
    for name in names:
        if "*" in name:
            raise FlawError(
                f"`{printable(name)}` would let any web page reach the servers, by DNS rebinding",
                hint="list each name that clients use, such as `mcp.example.com`",
            )
        if re.fullmatch(HOST, name, re.ASCII) is None:
            raise FlawError(
                f"`{printable(name)}` is not a host", hint="write `mcp.example.com` or `mcp.example.com:8443`"
            )
    return names


def check_origins(origins: Sequence[str]) -> Sequence[str]:
    """Check origins of web pages that may call this server (RFC 6454, section 6.2)."""
    for origin in origins:
        if "*" in origin or origin == "null":
            raise FlawError(
                f"`{printable(origin)}` would let web pages of anybody call the servers",
                hint="list each origin exactly, such as `https://app.example.com`",
            )
        if re.fullmatch(ORIGIN, origin, re.ASCII) is None:
            raise FlawError(
                f"`{printable(origin)}` is not an origin",
                hint="write `https://app.example.com`, in lower case, with the port unless it is the usual one,"
                " and without a path",
            )
    return origins


def check_public_url(text: str) -> str:
    """Check the URL by which clients reach the MCP endpoint; plain HTTP is for this machine only (RFC 9728)."""
    from urllib.parse import urlsplit

    parts = urlsplit(check_url(text))
    if parts.query or parts.fragment or parts.username is not None or parts.scheme not in ("http", "https"):
        raise FlawError("must be a plain URL, without a query", hint="write `https://mcp.example.com/mcp`")
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise FlawError("must begin with `https://`", hint="tokens can be read on the way with `http://`")
    return text


def check_proxies(peers: Sequence[str]) -> Sequence[str]:
    """Check the reverse proxies whose forwarded headers count: addresses, networks, or `unix`."""
    from ipaddress import ip_network

    for peer in peers:
        if peer == UNIX_PEER:
            continue
        try:
            ip_network(peer)
        except ValueError as exc:
            hint = "write `10.0.0.5`, `10.0.0.0/8`, or `unix` for whoever connects to the Unix socket"
            raise FlawError(f"`{printable(peer)}` is not an address or a network", hint=hint) from exc
    return peers


class Server(Protocol):
    """A form or model of the HTTP server, as far as its members depend on one another."""

    @property
    def public_url(self) -> str | None:
        """The URL as clients write it."""
        ...

    @property
    def auth(self) -> Sequence[object] | None:
        """The providers."""
        ...


def check_server(server: Server) -> None:
    """Check what providers need of the rest of the server. Raises FlawError."""
    by_kind = {kind_of(each): each for each in server.auth or ()}
    for kind in ("jwt", "login"):
        if kind in by_kind and server.public_url is None:
            hint = 'add `"public_url": "https://mcp.example.com/mcp"`, as clients write it'
            raise FlawError(f"`{kind}` needs `public_url`, which its tokens are for", hint=hint)
    if "login" in by_kind and getattr(by_kind["login"], "oidc") is None and "forwarded" not in by_kind:  # noqa: B009
        hint = "add `oidc` to `login`, or a `forwarded` for what the reverse proxy says"
        raise FlawError("`login` needs somebody who asks for a password: `oidc` or `forwarded`", hint=hint)
