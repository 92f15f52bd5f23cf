"""Connections to one remote server: pooled, with TLS verified, through the proxy from the environment."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import urllib.request
from functools import cache
from urllib.parse import unquote, urlsplit

import httpx2

# Enough for a burst of calls. More are opened when needed, without a bound, and closed afterwards.
_MAX_IDLE = 32
# Shorter than what servers and load balancers allow; those that close after five seconds are noticed.
_IDLE_S = 30.0
# Without probes, a stream that the network has dropped would stay silent for ever.
_PROBE_AFTER_S, _PROBE_EVERY_S, _PROBES = 60, 15, 4


def request_url(url: str) -> httpx2.URL:
    """Return the URL of requests; for `http+unix://%2Frun%2Fmcp.sock/mcp`, it does not contain the socket's path."""
    parts = urlsplit(url)
    if parts.scheme != "http+unix":
        return httpx2.URL(url).copy_with(fragment=None)
    return httpx2.URL(parts._replace(scheme="http", netloc="localhost", fragment="").geturl())


def create_pool(url: str) -> httpx2.AsyncHTTPTransport:
    """Return the pool for a server.

    Raises OSError for a bad `SSL_CERT_FILE`, ValueError for a bad proxy, or for a Unix socket where there are none.
    """
    target = request_url(url)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=_MAX_IDLE, keepalive_expiry=_IDLE_S)
    if url.startswith("http+unix:"):
        if not hasattr(socket, "AF_UNIX"):
            raise ValueError("Python for Windows has no Unix sockets; have the server listen on a port")
        return httpx2.AsyncHTTPTransport(verify=_unused_context(), limits=limits, uds=unquote(urlsplit(url).netloc))
    proxy = find_proxy(target.scheme, target.host, target.port)
    verify = tls_context() if target.scheme == "https" or proxy else _unused_context()
    return httpx2.AsyncHTTPTransport(verify=verify, limits=limits, proxy=proxy, socket_options=_keepalive_options())


@cache
def tls_context() -> ssl.SSLContext:
    """Return a context that verifies certificates by `SSL_CERT_FILE`, `SSL_CERT_DIR` or the system's authorities."""
    return httpx2.create_ssl_context()


def _unused_context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts no authority; loading them takes time


def find_proxy(scheme: str, host: str, port: int | None) -> str | None:
    """Return the proxy for a server from the usual variables (`HTTPS_PROXY`, `NO_PROXY`, …), or None."""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(host if port is None else f"{host}:{port}"):
        return None
    if any(_is_in_network(host, network.strip()) for network in proxies.get("no", "").split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _keepalive_options() -> list[tuple[int, int, int]]:
    """Return those that this system accepts: Wine refuses what the Windows whose version it reports has."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    names = {"TCP_KEEPIDLE": _PROBE_AFTER_S, "TCP_KEEPINTVL": _PROBE_EVERY_S, "TCP_KEEPCNT": _PROBES}
    with socket.socket() as probe:
        for name, value in names.items():
            if hasattr(socket, name):
                with contextlib.suppress(OSError):
                    probe.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
                    options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options
