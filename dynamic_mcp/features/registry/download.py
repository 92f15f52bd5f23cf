"""Downloads a bundle over HTTPS, within bounds."""

from __future__ import annotations

import asyncio
from typing import IO

import httpx2

from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.features.registry.build import is_this_machine
from dynamic_mcp.features.registry.bundle import MOST_BYTES, BadBundle
from dynamic_mcp.system.request_errors import REQUEST_ERRORS
from dynamic_mcp.system.text import one_line

_WITHIN_S, _SILENT_S = 600.0, 30.0
_MOST_REDIRECTS = 5


async def download(url: str, file: IO[bytes]) -> None:
    """Write what is at a URL to a file. Raises DynamicMcpError."""
    shown = one_line(url, 200)
    try:
        async with asyncio.timeout(_WITHIN_S):
            await _download(url, file)
    except TimeoutError:
        raise DynamicMcpError(f"`{shown}` took longer than {_WITHIN_S:g} s") from None
    except REQUEST_ERRORS as exc:
        raise DynamicMcpError(f"`{shown}` cannot be downloaded: {one_line(str(exc), 200)}") from exc


async def _download(url: str, file: IO[bytes]) -> None:
    async def check(request: httpx2.Request) -> None:
        if request.url.scheme != "https" and not is_this_machine(request.url.host):
            raise InvalidArguments(f"`{one_line(str(request.url), 200)}` is not https")

    client = httpx2.AsyncClient(
        follow_redirects=True,
        max_redirects=_MOST_REDIRECTS,
        timeout=_SILENT_S,
        event_hooks={"request": [check]},
    )
    async with client, client.stream("GET", url) as response:
        if response.status_code != 200:
            raise DynamicMcpError(f"`{one_line(url, 200)}` answers with HTTP {response.status_code}")
        left = MOST_BYTES
        async for chunk in response.aiter_bytes():
            left -= len(chunk)
            if left < 0:
                raise BadBundle(f"it is larger than {MOST_BYTES >> 20} MiB")
            file.write(chunk)
