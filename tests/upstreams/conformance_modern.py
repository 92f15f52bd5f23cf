"""A strict server of MCP 2026-07-28 alone: `python conformance_modern.py PORT`, or over stdio without.

It offers what the official conformance suites call, and refuses what is not as the specification says: a proxy that
leaves out a header, mints it wrongly, or loses a `requestState` fails. It is made without any SDK. `ModernHttp` is
the same server in a test's own loop.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from .modern_http import ModernHttp
    from .modern_stdio import serve_stdio
else:  # started by its path, as an upstream is
    from modern_http import ModernHttp
    from modern_stdio import serve_stdio

__all__ = ["ModernHttp"]


async def serve_http(port: int) -> None:
    """Serve over HTTP, until the process is ended."""
    async with ModernHttp(port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve_http(int(sys.argv[1])) if len(sys.argv) > 1 else serve_stdio())
