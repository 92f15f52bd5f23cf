"""Rank with FastMCP's BM25 search transform, in an environment of its own.

Reads {"tools": […], "queries": […]} from stdin; writes {"found": [[name, …], …], "ms": …} to stdout.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools.base import Tool


async def main() -> None:
    """Answer all queries."""
    asked = json.load(sys.stdin)
    tools = [Tool(name=t["name"], description=t["description"], parameters=t["inputSchema"]) for t in asked["tools"]]
    transform = BM25SearchTransform(max_results=8)
    began = time.perf_counter()
    found = [[tool.name for tool in await transform._search(tools, query)] for query in asked["queries"]]  # noqa: SLF001
    ms = (time.perf_counter() - began) * 1e3 / len(found)
    json.dump({"found": found, "ms": ms}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
