"""Measure what access rules add to a call: no rules, and 500 rules of 50 roles, in front of an upstream in memory.

    python -m tests.benchmarks.access_rules [--calls 20000] [--rounds 7]

Rounds are interleaved. It judges nothing; the aim is 10 µs or less added to the median.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Mapping

from dynamic_mcp.config.access import Access, AccessRule, Condition, Effect
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.client_connection import ClientConnection, ClientOrigin
from dynamic_mcp.session.legacy import Session
from tests.fakes import FakeUpstream, Opener, config_of, group_config

ROLES = 50
RULES = 10  # of each role
ANSWER = {"content": [{"type": "text", "text": "x"}]}


def rules(*, with_arguments: bool) -> Mapping[str, tuple[AccessRule, ...]]:
    """Return ten rules for each role, the first of which allows the call."""
    conditions = (Condition("$.text", pattern="[a-z]+"),) if with_arguments else ()
    return {
        f"role{role}": (
            AccessRule("allow", servers=("u*",), tools=("echo",), arguments=conditions),
            *(
                AccessRule(f"r{number}", Effect.DENY, servers=("u*", "v*"), tools=(f"*drop_{role}_{number}*",))
                for number in range(RULES - 1)
            ),
        )
        for role in range(ROLES)
    }


class Peer:
    """A client in memory of a proxy with these rules."""

    def __init__(self, access: Access | None) -> None:
        upstream = FakeUpstream({"tools/call": ANSWER})
        self.proxy = Proxy(config_of(group_config("up"), access=access), opener=Opener(up=[upstream]))
        self._answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        roles = tuple(f"role{role}" for role in range(ROLES))
        ann = Authentication(Principal("https://idp.example", "ann"), "jwt", roles=roles)
        self.session = Session(ClientConnection(self._take, origin=ClientOrigin(ann)), self.proxy)

    async def request(self, method: str, params: object) -> bytes:
        """Send a request and return the answer."""
        self._answered = asyncio.get_running_loop().create_future()
        self.session.receive(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
        return await self._answered

    async def measure(self, calls: int) -> float:
        """Return the median time of a call, in microseconds."""
        call = {"group": "up", "name": "echo", "args": {"text": "hello"}}
        times: list[float] = []
        for _ in range(calls):
            start = time.perf_counter()
            answer = await self.request("tools/call", {"name": "call_dynamic_tool", "arguments": call})
            times.append(time.perf_counter() - start)
        assert b'"isError"' not in answer, answer
        return statistics.median(times) * 1e6

    def _take(self, line: bytes) -> None:
        if not self._answered.done() and b'"id":1' in line:
            self._answered.set_result(line)


async def main(calls: int, rounds: int) -> None:
    """Print the medians over all rounds, and what the rules add."""
    peers = {
        "no rules": Peer(None),
        "500 rules": Peer(Access(roles=rules(with_arguments=False))),
        "500 rules, conditions": Peer(Access(roles=rules(with_arguments=True))),
    }
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
    found: dict[str, list[float]] = {name: [] for name in peers}
    for peer in peers.values():
        await peer.request("initialize", hello)
        peer.session.receive(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        await peer.measure(200)
    for _ in range(rounds):
        for name, peer in peers.items():
            found[name].append(await peer.measure(calls))
    base = statistics.median(found["no rules"])
    for name, times in found.items():
        middle = statistics.median(times)
        print(f"{name:24} {middle:7.1f} µs  {middle - base:+6.1f} µs")
    for peer in peers.values():
        await peer.proxy.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    asyncio.run(main(options.calls, options.rounds))
