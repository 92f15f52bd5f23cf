"""Checks the HTTP server through its public URL: the metadata that tells clients where to log in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dynamic_mcp.config.http import Http
from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.mcp.well_known import PROTECTED_RESOURCE, metadata_url
from dynamic_mcp.system.text import one_line

if TYPE_CHECKING:
    import httpx2

_WITHIN_S = 10.0
_MAX_BYTES = 1 << 16
_WHERE = "settings.http.public_url"


async def check_public_url(http: Http | None) -> list[Finding]:
    """Fetch the metadata as a client does, and return the problems; none if clients do not need it."""
    if http is None or not http.auth or http.public_url is None:
        return []
    import httpx2

    from dynamic_mcp.system.request_errors import REQUEST_ERRORS
    from dynamic_mcp.web.guarded_client import explain  # with httpx2

    url = metadata_url(http.public_url)
    try:
        async with (
            httpx2.AsyncClient(timeout=_WITHIN_S, follow_redirects=False) as client,
            client.stream("GET", url, headers={"accept": "application/json"}) as answer,
        ):
            body = b""
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > _MAX_BYTES:
                    break
    except REQUEST_ERRORS as exc:
        hint = "do dynamic-mcp and the reverse proxy run? This machine may also see another address than clients do"
        return [_warn(f"`{url}` {explain(exc)}", hint)]
    return [_judge(url, http.public_url, answer, body)]


def _judge(url: str, public_url: str, answer: httpx2.Response, body: bytes) -> Finding:
    """Return the finding for a response."""
    status = answer.status_code
    document = _parse(body)
    resource, why = find_text(document, "resource"), find_text(document.get("error"), "message")
    if status == 200 and resource:
        return _compare(public_url, resource)
    if why and "jsonrpc" in document:  # dynamic-mcp itself has responded
        if status == 403:
            hint = "let the reverse proxy pass `Host` on: `proxy_set_header Host $http_host;` in nginx"
            return _warn(f"`{url}` is refused: {why}", hint)
        hint = "another version of the config may be served: `dynamic-mcp status` shows the proxies that run"
        return _warn(f"`{url}` is answered {status}: {why}", hint)
    if status in (401, 403) or 300 <= status < 400:
        hint = (
            f"let requests for `{PROTECTED_RESOURCE}` pass without a password: clients read it before they have one"
        )
        return _warn(f"`{url}` is answered {status}, but must be readable by everybody", hint)
    hint = f"let the reverse proxy pass `{PROTECTED_RESOURCE}` on to dynamic-mcp, with its path as it is"
    return _warn(f"`{url}` is answered {status}, and not by dynamic-mcp: clients do not find where to log in", hint)


def _compare(public_url: str, resource: str) -> Finding:
    if resource == public_url.rstrip("/"):
        return Finding(Level.OK, _WHERE, f"clients find where to log in to `{public_url}`")
    hint = "clients refuse a URL that is not the one they were given: is this the proxy of this config?"
    return _warn(f"the metadata is about `{resource}`, not `{public_url}`", hint)


def _parse(body: bytes) -> dict[str, object]:
    """Parse a JSON object; anything else is an empty one."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def find_text(document: object, name: str) -> str:
    """Return a string member of a document on one line; empty if missing."""
    value = document.get(name) if isinstance(document, dict) else None
    return one_line(value, 200) if isinstance(value, str) else ""


def _warn(what: str, hint: str) -> Finding:
    return Finding(Level.WARNING, _WHERE, what, hint)
