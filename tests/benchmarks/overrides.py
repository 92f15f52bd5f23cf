"""Measure what overrides add to a call: none, ten about other tools, and ten of which one is about the tool.

    python -m tests.benchmarks.overrides [--calls 5000] [--rounds 7]

Rounds are interleaved. It judges nothing; the aim is that ten rules of each kind together add 30 µs or less to the
median.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time

from dynamic_mcp.config.rules import Rules
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.legacy import Session
from tests.fakes import FakeUpstream, Json, Opener, config_of, group_config, tool
from tests.policy.overridden import rules_of

ANSWER = {"content": [{"type": "text", "text": "x"}]}
TEXT = {"type": "string"}
SCHEMA = {"type": "object", "properties": {"text": TEXT, "repo": TEXT, "labels": {"type": "array"}}}
OTHERS: Json = {f"other_{number}_*": {"title": "x", "arguments": {"a": {"fixed": 1}}} for number in range(9)}
ARGUMENTS: Json = {"text": {"rename": "body"}, "repo": {"fixed": "acme/app"}, "labels": {"default": []}}


class Peer:
    """A client in memory of a proxy with these rules, which calls a tool by this name with these arguments."""

    def __init__(self, rules: Rules, name: str, args: Json) -> None:
        upstream = FakeUpstream({"tools/call": ANSWER, "tools/list": {"tools": [tool("echo", inputSchema=SCHEMA)]}})
        self.proxy = Proxy(config_of(group_config("up", rules=rules)), opener=Opener(up=[upstream]))
        self._answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._session = Session(self._take, self.proxy)
        self._call = {"group": "up", "name": name, "args": args}

    async def request(self, method: str, params: object) -> bytes:
        """Send a request and return the answer."""
        self._answered = asyncio.get_running_loop().create_future()
        self._session.receive(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
        return await self._answered

    async def measure(self, calls: int) -> float:
        """Return the median time of a call, in microseconds."""
        times: list[float] = []
        for _ in range(calls):
            start = time.perf_counter()
            answer = await self.request("tools/call", {"name": "call_dynamic_tool", "arguments": self._call})
            times.append(time.perf_counter() - start)
        assert b'"isError"' not in answer, answer
        return statistics.median(times) * 1e6

    def _take(self, line: bytes) -> None:
        if not self._answered.done() and b'"id":1' in line:
            self._answered.set_result(line)


async def main(calls: int, rounds: int) -> None:
    """Print the medians over all rounds, and what the overrides add."""
    given = {"text": "hello", "repo": "acme/app", "labels": []}
    peers = {
        "no overrides": Peer(Rules(), "echo", given),
        "ten about other tools": Peer(rules_of(**OTHERS), "echo", given),
        "ten, one of which renames the tool": Peer(rules_of(echo={"rename": "say"}, **OTHERS), "say", given),
        "ten, one of which changes arguments": Peer(
            rules_of(echo={"rename": "say", "arguments": ARGUMENTS}, **OTHERS), "say", {"body": "hello"}
        ),
    }
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    for peer in peers.values():
        await peer.request("initialize", hello)
        await peer.measure(100)
    medians: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(rounds):
        for name, peer in peers.items():
            medians[name].append(await peer.measure(calls))
    base = min(medians["no overrides"])
    for name, found in medians.items():
        print(f"{name:<40} {min(found):7.1f} µs  {min(found) - base:+6.1f}")
    for peer in peers.values():
        await peer.proxy.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    asyncio.run(main(options.calls, options.rounds))
