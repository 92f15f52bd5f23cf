"""Waits for the first client before work starts that it does not need."""

from __future__ import annotations

import asyncio
import contextlib

from dynamic_mcp.proxy.proxy import Proxy

# Servers start first: what is not needed for that begins this long after a client was greeted; if no client says
# hello, it begins after the other time.
_SERVERS_FIRST_S = 0.5
_HELLO_WITHIN_S = 5.0


async def wait_for_greeting(proxy: Proxy, within_s: float) -> None:
    """Wait until a client was greeted, for so many seconds at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await proxy.is_initialized.wait()


async def wait_for_first_client(proxy: Proxy) -> None:
    """Wait until the first client has its answer, or for a while if none says hello."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_HELLO_WITHIN_S):
            await proxy.is_initialized.wait()
            await asyncio.sleep(_SERVERS_FIRST_S)
