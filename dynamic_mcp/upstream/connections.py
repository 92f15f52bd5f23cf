"""Connections to one remote server: pooled, TLS verified, through the proxy that the environment names."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import urllib.request
from functools import cache
from urllib.parse import unquote, urlsplit

import httpx2

# As many as a burst of calls leaves behind; more are opened when needed, without a bound, and closed afterwards.
_KEPT_OPEN = 32
# Shorter than what servers and balancers allow, save those that close after five seconds, which is noticed.
_KEPT_OPEN_S = 30.0
# A network that forgets a silent stream would leave it silent for ever.
_PROBE_AFTER_S, _PROBE_EVERY_S, _PROBES = 60, 15, 4


def address(url: str) -> httpx2.URL:
    """Return where requests go; a socket's name in `http+unix://%2Frun%2Fmcp.sock/mcp` is left out of it."""
    parts = urlsplit(url)
    if parts.scheme != "http+unix":
        return httpx2.URL(url).copy_with(fragment=None)
    return httpx2.URL(parts._replace(scheme="http", netloc="localhost", fragment="").geturl())


def connections_to(url: str) -> httpx2.AsyncHTTPTransport:
    """Return the pool for one server. Raises OSError where `SSL_CERT_FILE` cannot be used, ValueError for a proxy."""
    at = address(url)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=_KEPT_OPEN, keepalive_expiry=_KEPT_OPEN_S)
    if url.startswith("http+unix:"):
        return httpx2.AsyncHTTPTransport(verify=_no_tls(), limits=limits, uds=unquote(urlsplit(url).netloc))
    proxy = proxy_for(at.scheme, at.host, at.port)
    verify = tls() if at.scheme == "https" or proxy else _no_tls()
    return httpx2.AsyncHTTPTransport(verify=verify, limits=limits, proxy=proxy, socket_options=_probing())


@cache
def tls() -> ssl.SSLContext:
    """Return how certificates are verified: by `SSL_CERT_FILE`, `SSL_CERT_DIR` or the system's authorities."""
    return httpx2.create_ssl_context()


def _no_tls() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody; reading the authorities takes its time


def proxy_for(scheme: str, host: str, port: int | None) -> str | None:
    """Return the proxy for a server by the usual variables (`HTTPS_PROXY`, `NO_PROXY`, …), if there is one."""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(host if port is None else f"{host}:{port}"):
        return None
    if any(_is_within(host, network.strip()) for network in proxies.get("no", "").split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_within(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _probing() -> list[tuple[int, int, int]]:
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    names = {"TCP_KEEPIDLE": _PROBE_AFTER_S, "TCP_KEEPINTVL": _PROBE_EVERY_S, "TCP_KEEPCNT": _PROBES}
    return options + [
        (socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in names.items() if hasattr(socket, name)
    ]
