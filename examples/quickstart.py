"""See dynamic-mcp at work: what a model sees of two small MCP servers, and how it calls one of their tools.

pip install .
python examples/quickstart.py
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from textwrap import indent
from typing import TextIO

try:
    from mcp import Client, MCPError, StdioServerParameters, Tool, stdio_client
    from mcp.types import CallToolResult, TextContent
except ImportError:
    sys.exit("quickstart: `mcp` is not installed\nhint: run `pip install .` in a virtual environment first")

CONFIG = Path(__file__).resolve().with_name("quickstart.json")
BIN = Path(sys.executable).parent
ARGS = {"start": "2026-12-23", "days": 5, "holidays": ["2026-12-25"]}
CALL = {"group": "dates", "name": "add_working_days", "args": ARGS}


async def show(log: TextIO) -> None:
    """Start the proxy and the servers, send the requests of a model, and print the answers."""
    servers = json.loads(CONFIG.read_text(encoding="utf-8"))["mcpServers"]
    print(f"\n1. Starting `dynamic-mcp {CONFIG.name}`: one MCP server in front of {len(servers)} others.")
    direct = [tool for entry in servers.values() for tool in await direct_tools(entry, log)]
    async with start([sys.executable, "-m", "dynamic_mcp", str(CONFIG)], log) as client:
        tools = (await client.list_tools()).tools
        print(f"\n2. A model sees {len(tools)} tools instead of {len(direct)}:")
        table((tool.name, tool.description or "") for tool in tools)
        print(f"   They take {size(tools)} bytes of context; all {len(direct)} would take {size(direct)}.")
        print("   The others are in groups, one for each server:")
        finder = next(tool for tool in tools if tool.name == "get_dynamic_tools")
        groups = finder.input_schema["properties"]["group"]["enum"]
        table((group, servers[group]["description"]) for group in groups)

        print(f"\n3. It looks into the group `{CALL['group']}` with get_dynamic_tools:")
        found = json.loads(text(await client.call_tool("get_dynamic_tools", {"group": CALL["group"]})))["tools"]
        table((tool["name"], tool.get("description", "")) for tool in found)

        print(f"\n4. It calls one of these tools with call_dynamic_tool:\n     {json.dumps(CALL)}")
        print("   The answer:\n" + indent(text(await client.call_tool("call_dynamic_tool", CALL)), "     "))

    path = f"{BIN}{os.pathsep}{os.defpath}"  # an AI tool does not know which `python` the config means
    entry = {"command": sys.executable, "args": ["-m", "dynamic_mcp", str(CONFIG)], "env": {"PATH": path}}
    print(f"\n5. Put this into the MCP settings of your AI tool; then write your own {CONFIG.name}:")
    print(indent(json.dumps({"mcpServers": {"dynamic-mcp": entry}}, indent=2), "     "))


async def direct_tools(entry: dict[str, str], log: TextIO) -> list[Tool]:
    """Return the tools of one server of the config, without the proxy."""
    async with start([entry["command"], *entry["args"]], log, CONFIG.parent / entry["cwd"]) as client:
        return (await client.list_tools()).tools


def start(command: list[str], log: TextIO, folder: Path | None = None) -> Client:
    """Return a client of the server that this command starts; the server's stderr goes to `log`."""
    program, *args = command
    server = StdioServerParameters(command=program, args=args, env=dict(os.environ), cwd=folder)
    return Client(stdio_client(server, errlog=log), mode="legacy", read_timeout_seconds=30)


def text(result: CallToolResult) -> str:
    """Return the first text of a tool's answer; for `get_dynamic_tools` it holds the tools, and remarks follow."""
    answer = next(block.text for block in result.content if isinstance(block, TextContent))
    if result.is_error:
        raise RuntimeError(answer)
    return answer


def size(tools: list[Tool]) -> int:
    """Return the size of the tools as JSON, in bytes."""
    entries = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    return len(json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode())


def table(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and the first sentence of their descriptions, aligned."""
    for name, description in rows:
        print(f"     {name:18}  {description.partition('. ')[0].rstrip('.')}")


def main() -> None:
    """Run the demo; if something fails, say what, with the last lines of the servers' stderr."""
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # the config says `python`
    failure = ""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            asyncio.run(show(log))
        except* (MCPError, OSError, RuntimeError, ValueError) as failed:
            reason: BaseException = failed
            while isinstance(reason, BaseExceptionGroup):
                reason = reason.exceptions[0]
            log.seek(0)
            failure = f"\nquickstart: failed: {reason}\n{''.join(log.readlines()[-10:])}"
    if failure:
        sys.exit(f"{failure}hint: was `pip install .` run in this environment?")


if __name__ == "__main__":
    main()
