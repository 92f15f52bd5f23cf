"""Does the tasks of `scripts.py` by FastMCP's CodeMode, in an environment of its own, and prints what they took.

The file has the code of each task by its name, and the results of each tool by its arguments.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.experimental.transforms.code_mode import CodeMode
from fastmcp.tools.base import Tool, ToolResult


class Recorded(Tool):  # type: ignore[misc]  # it is not installed where types are checked
    """A tool that answers as it was recorded."""

    results: dict[str, Any]

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Return the result for these arguments."""
        result = self.results[json.dumps(arguments, sort_keys=True)]
        if result.get("isError"):
            raise ToolError(result["content"][0]["text"])
        text = result["content"][0].get("text")
        if text is None:
            return ToolResult(content=result["content"])
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        return ToolResult(structured_content=value if isinstance(value, dict) else {"result": value})


# The scripts are those of `scripts.py`, so `call` is what it is there; a model would write `call_tool`.
PRELUDE = """async def call(group, name, args=None):
    found = await call_tool(name, args or {})
    return found["result"] if isinstance(found, dict) and list(found) == ["result"] else found
ToolError = Exception
"""


async def main() -> None:
    """Run each task, and a script of twenty calls several times."""
    asked = json.loads(_read(sys.argv[1]))
    server = FastMCP("tools", transforms=[CodeMode(max_tool_calls=200)])
    for name, results in asked["tools"].items():
        server.add_tool(Recorded(name=name, description=name, parameters={"type": "object"}, results=results))
    found: dict[str, Any] = {"tasks": {}}
    async with Client(server) as client:
        found["tools"] = len(json.dumps([tool.model_dump(exclude_none=True) for tool in await client.list_tools()]))
        for name, code in asked["tasks"].items():
            result = await client.call_tool("execute", {"code": PRELUDE + code}, raise_on_error=False)
            text = "".join(getattr(block, "text", "") for block in result.content)
            found["tasks"][name] = {"read": len(text), "text": text[:200], "failed": result.is_error}
        times = []
        for _ in range(20):
            began = time.perf_counter()
            await client.call_tool("execute", {"code": PRELUDE + asked["twenty"]})
            times.append((time.perf_counter() - began) * 1000)
    resident_kib = next(line.split()[1] for line in _read("/proc/self/status").splitlines() if "VmRSS" in line)
    print(json.dumps({**found, "resident_mib": int(resident_kib) >> 10, "times": sorted(times)}))


def _read(path: str) -> str:
    return Path(path).read_text()


if __name__ == "__main__":
    asyncio.run(main())
