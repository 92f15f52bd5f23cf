"""What the tools of a config take up of a model's context, through each proxy and without one.

usage: python -m tests.benchmarks.context CONFIG [--query "create directory"] [--fastmcp PYTHON]

The peers are `dynamic-mcp` and, where it is on PATH, the reference `dmcp`; with `--fastmcp`, the Python of an
environment that has it, also FastMCP's BM25 search. Tokens are characters / 4 of the names, descriptions and input
schemas in `tools/list` and of the `instructions`. It judges nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

from tests.benchmarks.driver import Json, Peer

_GIVEN = ("name", "description", "inputSchema")
_ALL_CONNECTED_S = 5.0
_SEARCHES = {"get_dynamic_tools", "search_tools"}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--query", default="create directory")
    parser.add_argument("--group", help="the group that a proxy without a search is asked for; default: the largest")
    parser.add_argument("--fastmcp", metavar="PYTHON")
    asked = parser.parse_args()
    servers = json.loads(asked.config.read_text())["mcpServers"]
    direct = {name: _start([each["command"], *each.get("args", [])]) for name, each in servers.items()}
    group = asked.group or max(direct, key=lambda name: direct[name])
    print(f"{'':26}{'start':>8}{'search':>8}{'together':>10}   (tokens: characters / 4)")
    print(f"{'each server directly':26}{sum(direct.values()):8,}{'-':>8}{sum(direct.values()):10,}")
    for name, argv in _peers(asked.config, asked.fastmcp).items():
        start, search = _measured(argv, asked.query, group)
        print(f"{name:26}{start:8,}{search:8,}{start + search:10,}")


def _peers(config: Path, fastmcp: str | None) -> dict[str, list[str]]:
    peers = {"dynamic-mcp": [sys.executable, "-m", "dynamic_mcp", str(config)]}
    if reference := shutil.which("dmcp"):
        peers["reference (whole group)"] = [reference, str(config)]
    if fastmcp:
        peers["FastMCP search"] = [fastmcp, str(Path(__file__).parent / "fastmcp_context.py"), str(config)]
    return peers


def _start(argv: list[str]) -> int:
    peer = Peer(argv)
    try:
        peer.start()
        return _told(peer)
    finally:
        peer.close()


def _measured(argv: list[str], query: str, group: str) -> tuple[int, int]:
    """Return the tokens of the start, and of one search; without one, of the one group that has to be read."""
    peer = Peer(argv)
    try:
        peer.start()
        search = _search(_tools(peer), query, group)
        peer.until_works(search)
        time.sleep(_ALL_CONNECTED_S)
        answer = peer.request("tools/call", search)
        texts = [block.get("text", "") for block in answer["result"]["content"]]
        return _told(peer), _tokens("\n".join(texts))
    finally:
        peer.close()


def _search(tools: list[Json], query: str, group: str) -> Json:
    """Return the call that finds: by a query, or where there is none, by the group."""
    tool = next(tool for tool in tools if tool["name"] in _SEARCHES)
    by_query = "query" in tool["inputSchema"]["properties"]
    return {"name": tool["name"], "arguments": {"query": query} if by_query else {"group": group}}


def _told(peer: Peer) -> int:
    """Return the tokens of what a model is told at the start."""
    given = [{key: tool[key] for key in _GIVEN if key in tool} for tool in _tools(peer)]
    return _tokens(json.dumps(given, separators=(",", ":"), ensure_ascii=False) + peer.instructions)


def _tools(peer: Peer) -> list[Json]:
    tools: list[Json] = peer.request("tools/list", {})["result"]["tools"]
    return tools


def _tokens(text: str) -> int:
    return -(-len(text) // 4)


if __name__ == "__main__":
    main()
