"""Measure what the audit log adds to a call: off, and on with each way to record arguments.

    python -m tests.benchmarks.audit [--calls 50] [--rounds 150]

Rounds are short and interleaved, so that what else the machine does falls on all alike; the calmest round is shown
beside the median of all. It judges nothing; the aim is 25 µs or less added to the median, and nothing while off.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path

from dynamic_mcp.features.audit.arguments import ArgumentMode
from dynamic_mcp.features.audit.keeper import Keeping
from dynamic_mcp.features.audit.observer import AuditObserver
from dynamic_mcp.features.audit.recorder import Trail
from dynamic_mcp.proxy.request import Observer, Observers
from tests.benchmarks.access_rules import Peer

MODES: tuple[ArgumentMode, ...] = ("off", "keys", "redacted", "full")


class Bare(Observer):
    """Observes nothing: what it costs is to have observers at all."""


async def main(calls: int, rounds: int, directory: Path) -> None:
    """Print the medians of the calmest round and of all, and what the log adds to them."""
    peers = {"no audit": Peer(None), "no audit, again": Peer(None), "an idle observer": Peer(None)}
    peers["an idle observer"].proxy.observers = Observers([Bare()])
    trails: list[Trail] = []
    for mode in MODES:
        trail = Trail(directory / mode, Keeping(86_400.0), stops_writes=True)
        trails.append(trail)
        peers[f"audit, arguments {mode}"] = peer = Peer(None)
        peer.proxy.observers = Observers([AuditObserver(trail, arguments=mode, config="/config.jsonc")])
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
    found: dict[str, list[float]] = {name: [] for name in peers}
    for peer in peers.values():
        await peer.request("initialize", hello)
        peer.session.receive(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        await peer.measure(200)
    for _ in range(rounds):
        for name, peer in peers.items():
            found[name].append(await peer.measure(calls))
    calmest, usual = min(found["no audit"]), statistics.median(found["no audit"])
    print(f"{'':26}   calmest round          median")
    for name, times in found.items():
        low, middle = min(times), statistics.median(times)
        print(f"{name:26} {low:7.1f} {low - calmest:+7.1f} µs {middle:7.1f} {middle - usual:+7.1f} µs")
    for peer in peers.values():
        await peer.proxy.close()
    for trail in trails:
        trail.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=150)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(options.calls, options.rounds, Path(place)))
