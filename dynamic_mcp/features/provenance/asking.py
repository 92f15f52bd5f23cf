"""Asks registries of packages, within bounds of time and size. Answers come from strangers, and are kept as bytes.

Imports httpx2: load this when a registry is asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from dynamic_mcp import __version__
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.provenance.sources import PackageSource
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.request_errors import REQUEST_ERRORS
from dynamic_mcp.system.text import one_line
from dynamic_mcp.upstream.connections import create_pool
from dynamic_mcp.upstream.http_errors import network_error
from dynamic_mcp.upstream.small_answer import SmallAnswer, UnusableAnswer, fetch
from dynamic_mcp.web.address_policy import AddressPolicy, ForbiddenUrl

T = TypeVar("T")

# The full description of a package with thousands of versions has some megabytes.
MOST_BYTES = 24 << 20
TIMEOUT_S = 8.0
_MISSING = (404, 410)
_JSON = {"accept": "application/json"}


class NotAnswered(Exception):
    """Raised if a registry says nothing of use; the message names it and says why."""


class Registries:
    """Connections to registries; use it as a context."""

    def __init__(self, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._pools: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def __aenter__(self) -> Registries:
        return self

    async def __aexit__(self, *_: object) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    async def ask(
        self, source: PackageSource, path: str, headers: Mapping[str, str] = _JSON, *, most_bytes: int = MOST_BYTES
    ) -> bytes | None:
        """Return what a registry has at a path; None if it has nothing there. Raises NotAnswered."""
        answer = await self.request(source, path, headers, most_bytes=most_bytes)
        if answer.status in _MISSING:
            return None
        if answer.status != 200:
            redirects = ", which is not followed" if 300 <= answer.status < 400 else ""
            raise NotAnswered(f"{_shown(source.url)} answers with status {answer.status}{redirects}")
        return answer.body

    async def request(
        self,
        source: PackageSource,
        path: str,
        headers: Mapping[str, str],
        *,
        method: str = "GET",
        most_bytes: int = MOST_BYTES,
    ) -> SmallAnswer:
        """Return whatever a registry answers. Raises NotAnswered."""
        url = f"{source.url}{path}"
        if not url.startswith(("https://", "http://")):
            raise NotAnswered(f"{_shown(source.url)} is not asked, since it is not reached by HTTP")
        try:
            pool = self._pool_for(url)
            async with asyncio.timeout(self._timeout_s):
                return await fetch(
                    pool,
                    url,
                    {"user-agent": f"dynamic-mcp/{__version__}", **headers, **_login(source)},
                    most_bytes=most_bytes,
                    timeout_s=self._timeout_s,
                    method=method,
                )
        except UnusableAnswer as exc:
            raise NotAnswered(f"the answer of {_shown(source.url)} cannot be used: {exc}") from exc
        except TimeoutError as exc:
            raise NotAnswered(f"{_shown(source.url)} did not answer within {self._timeout_s:g} s") from exc
        except REQUEST_ERRORS as exc:
            error: DynamicMcpError = network_error("", urlsplit(url).hostname or "", exc)
            raise NotAnswered(getattr(error, "reason", error.message)) from exc
        except (OSError, ValueError, ImportError) as exc:  # a bad `SSL_CERT_FILE`, proxy or header
            reason = one_line(str(exc), 200)
            raise NotAnswered(f"{_shown(source.url)} cannot be asked with the current settings: {reason}") from exc

    def _pool_for(self, url: str) -> httpx2.AsyncHTTPTransport:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._pools:
            self._pools[origin] = create_pool(url)
        return self._pools[origin]


def decode_answer(data: bytes | msgspec.Raw, kind: type[T], source: PackageSource) -> T:
    """Return an answer as this type. Raises NotAnswered."""
    try:
        return decode_as(data, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        reason = one_line(str(exc), 150)
        raise NotAnswered(f"{_shown(source.url)} answers with something else than expected: {reason}") from exc


def parse_object(data: bytes) -> dict[str, object] | None:
    """Return a JSON object of a stranger, or None if it is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _login(source: PackageSource) -> Mapping[str, str]:
    """Return the login of a registry, unless others could read it on its way."""
    try:
        AddressPolicy(source.url).check(source.url)
    except ForbiddenUrl:
        return {}
    return source.headers


def _shown(url: str) -> str:
    try:
        return f"`{one_line(urlsplit(url).hostname or url, 100)}`"
    except ValueError:
        return f"`{one_line(url, 100)}`"
