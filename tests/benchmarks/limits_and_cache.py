"""Measure what limits and kept results add to a call, or save: in memory, and over pipes beside the server itself.

    python -m tests.benchmarks.limits_and_cache [--calls 5000] [--rounds 5]

Rounds are interleaved; each figure is the median over the rounds of their medians. It judges nothing; the aim is that
a hit takes less time than a call of the server itself, and that rules which do not match take next to none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from dynamic_mcp.config.access import ToolAccess
from dynamic_mcp.config.rules import Cache, Limit, Rules
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.legacy import Session
from tests.benchmarks import driver
from tests.benchmarks.core import SERVER, plain, through_group
from tests.benchmarks.driver import Json
from tests.fakes import FakeUpstream, Opener, config_of, group_config

ANSWER = {"content": [{"type": "text", "text": "x"}]}
RATES = tuple(
    Limit(f"limits[{n}]", tools=("e*", f"x{n}"), per_person=n % 2 == 0, rate=1e6, burst=1_000_000) for n in range(10)
)
PLACES = tuple(Limit(f"limits[{n}]", tools=("e*", f"x{n}"), concurrent=64) for n in range(10))
OTHERS = tuple(Cache(f"cache[{n}]", tools=(f"*other_{n}*",), resources=(f"x://{n}/*",)) for n in range(10))
IN_MEMORY: Mapping[str, Rules] = {
    "no rules": Rules(),
    "ten rates of other tools": Rules(limits=tuple(Limit(each.id, tools=("y*",), rate=1) for each in RATES)),
    "ten rates": Rules(limits=RATES),
    "one for places": Rules(limits=PLACES[:1]),
    "ten for places": Rules(limits=PLACES),
    "ten kept of other tools": Rules(cache=OTHERS),
    "a hit": Rules(cache=(Cache("cache[0]", tools=("echo",), ttl_s=3600),)),
}


class Client:
    """A client in memory of a proxy with these rules."""

    def __init__(self, rules: Rules) -> None:
        upstream = FakeUpstream({"tools/call": ANSWER})
        group = group_config("up", rules=rules, access=ToolAccess(read=("echo",)))
        self.proxy = Proxy(config_of(group), opener=Opener(up=[upstream]))
        self._answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._session = Session(self._take, self.proxy)

    async def start(self) -> None:
        """Shake hands."""
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
        await self._request("initialize", hello)
        self._session.receive(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    async def measure(self, calls: int) -> float:
        """Return the median time of a call, in microseconds."""
        call = {"group": "up", "name": "echo", "args": {"text": "hello"}}
        times: list[float] = []
        for _ in range(calls):
            start = time.perf_counter()
            answer = await self._request("tools/call", {"name": "call_dynamic_tool", "arguments": call})
            times.append(time.perf_counter() - start)
        assert b'"isError"' not in answer, answer
        return statistics.median(times) * 1e6

    async def _request(self, method: str, params: object) -> bytes:
        self._answered = asyncio.get_running_loop().create_future()
        self._session.receive(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
        return await self._answered

    def _take(self, line: bytes) -> None:
        if not self._answered.done() and b'"id":1' in line:
            self._answered.set_result(line)


async def measure_in_memory(calls: int, rounds: int) -> None:
    """Print what each set of rules adds to a call of an upstream in memory."""
    clients = {name: Client(rules) for name, rules in IN_MEMORY.items()}
    found: dict[str, list[float]] = {name: [] for name in clients}
    for client in clients.values():
        await client.start()
        await client.measure(200)
    for _ in range(rounds):
        for name, client in clients.items():
            found[name].append(await client.measure(calls))
    show("in memory", found, "no rules")
    for client in clients.values():
        await client.proxy.close()


def measure_over_pipes(calls: int, rounds: int) -> None:
    """Print how long a call takes to the server itself, through the proxy, and if it is a hit."""
    for size in (100, 100_000):
        with tempfile.TemporaryDirectory() as folder:
            peers = {
                "the server itself": (SERVER, plain),
                "through the proxy": (_proxy(folder, "plain", {}), through_group),
                "a hit": (_proxy(folder, "kept", {"cache": [{"tools": ["blob"], "ttl": "1h"}]}), through_group),
            }
            found: dict[str, list[float]] = {name: [] for name in peers}
            for _ in range(rounds):
                for name, (argv, call) in peers.items():
                    found[name].append(_measure_peer(argv, call("blob", {"bytes": size}), calls))
        show(f"over pipes, {size} bytes", found, "the server itself")


def _proxy(folder: str, name: str, rules: Json) -> list[str]:
    server = {"command": SERVER[0], "args": SERVER[1:], "access": {"read": ["blob"]}, **rules}
    file = Path(folder) / f"{name}.json"
    file.write_text(json.dumps({"mcpServers": {"group0": server}}))
    return [str(Path(sys.executable).with_name("dynamic-mcp")), str(file)]


def _measure_peer(argv: list[str], call: Json, calls: int) -> float:
    peer = driver.Peer(argv)
    try:
        peer.start()
        peer.until_works(call)
        peer.burst(200, 1, call)
        return peer.burst(calls, 1, call).at(0.5) * 1e6
    finally:
        peer.close()


def show(title: str, found: Mapping[str, list[float]], base: str) -> None:
    """Print a table of medians."""
    print(f"\n{title}")
    middle = statistics.median(found[base])
    for name, times in found.items():
        own = statistics.median(times)
        print(f"{name:26} {own:8.1f} µs  {own - middle:+8.1f} µs")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(measure_in_memory(options.calls, options.rounds))
    measure_over_pipes(options.calls, options.rounds)
