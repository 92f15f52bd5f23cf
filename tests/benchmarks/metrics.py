"""Measure what metrics add to a call, and how long a reader is served with 50 groups.

    python -m tests.benchmarks.metrics [--calls 500] [--rounds 40]

Rounds are interleaved: nobody observes, somebody observes and does nothing, and metrics. It judges nothing; the aim
is 5 µs or less added to the median.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from dynamic_mcp.features.metrics.exposition import Form, render
from dynamic_mcp.features.metrics.gauges import process_families, read_gauges
from dynamic_mcp.features.metrics.observer import MetricsObserver
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Observer, Observers
from tests.benchmarks.access_rules import ANSWER, Peer
from tests.fakes import Client, FakeUpstream, Opener, config_of, group_config

GROUPS = 50
TOOLS = (1, 10)  # that were called, of each group
READS = 50


async def measure_calls(calls: int, rounds: int) -> None:
    """Print the median time of a call: of all rounds, and of the best, which tells more on a busy machine."""
    peers = {"off": Peer(None), "an idle observer": Peer(None), "metrics": Peer(None)}
    peers["an idle observer"].proxy.observers = Observers([Observer()])
    peers["metrics"].proxy.observers = Observers([MetricsObserver()])
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
    found: dict[str, list[float]] = {name: [] for name in peers}
    for peer in peers.values():
        await peer.request("initialize", hello)
        peer.session.receive(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        await peer.measure(200)
    for _ in range(rounds):
        for name, peer in peers.items():
            found[name].append(await peer.measure(calls))
    for what, choose in (("median round", statistics.median), ("best round", min)):
        base = choose(found["off"])
        for name, times in found.items():
            print(f"{what:14} {name:20} {choose(times):7.1f} µs  {choose(times) - base:+6.1f} µs")
    for peer in peers.values():
        await peer.proxy.close()


async def measure_reads(tools: int) -> None:
    """Print how long it takes to write the metrics of 50 groups, and how many bytes they are."""
    names = [f"tool_{number}" for number in range(tools)]
    plan = {f"group{number}": [FakeUpstream({"tools/call": ANSWER}, tools=names)] for number in range(GROUPS)}
    proxy, observer = Proxy(config_of(*map(group_config, plan)), opener=Opener(**plan)), MetricsObserver()
    proxy.observers = Observers([observer])
    client = Client(proxy)
    await client.initialize()
    for group in plan:
        for name in names:
            await client.call(group, name)
    for form in Form:
        times: list[float] = []
        for _ in range(READS):
            start = time.perf_counter()
            text = render([*observer.families, *read_gauges(proxy), *process_families()], form)
            times.append(time.perf_counter() - start)
        took = f"{statistics.median(times) * 1000:5.1f} ms, {min(times) * 1000:5.1f} at best"
        print(f"{GROUPS} groups, {tools:2} tools each: {took}, {len(text) >> 10} KiB, {form.name.lower()}")
    await proxy.close()


async def main(calls: int, rounds: int) -> None:
    """Measure calls, then reads."""
    await measure_calls(calls, rounds)
    for tools in TOOLS:
        await measure_reads(tools)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    asyncio.run(main(options.calls, options.rounds))
