"""Measure what the audit log adds to a call: off, and on with each way to record arguments.

    python -m tests.benchmarks.audit [--calls 5000] [--rounds 9]

Rounds are interleaved. It judges nothing; the aim is 25 µs or less added to the median, and nothing while it is off.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path

from dynamic_mcp.observe.audit.keeper import Keeping
from dynamic_mcp.observe.audit.trail import Trail
from dynamic_mcp.proxy.audit import AuditObserver
from dynamic_mcp.proxy.audit_arguments import Mode
from dynamic_mcp.proxy.observation import Observer, Observers
from tests.benchmarks.access_rules import Peer

MODES: tuple[Mode, ...] = ("off", "keys", "redacted", "full")


class Bare(Observer):
    """Observes nothing: what it costs is to have observers at all."""


async def main(calls: int, rounds: int, directory: Path) -> None:
    """Print the medians over all rounds, and what the log adds."""
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
    base = statistics.median(found["no audit"])
    for name, times in found.items():
        middle = statistics.median(times)
        print(f"{name:26} {middle:7.1f} µs  {middle - base:+6.1f} µs")
    for peer in peers.values():
        await peer.proxy.close()
    for trail in trails:
        trail.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(options.calls, options.rounds, Path(place)))
