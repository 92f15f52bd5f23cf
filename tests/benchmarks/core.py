"""Measure the core: start, latency, throughput, payload sizes and memory, with 1 to 100 groups.

    python -m tests.benchmarks.core [--rounds 5] [--calls 2000] [--groups 1,10,100]

Beside dynamic-mcp stands the upstream alone, and the reference (`dmcp`) and FastMCP's proxy (`fastmcp`) where
their commands are on the PATH. Rounds are interleaved; each figure is the median over the rounds. It judges
nothing: quote ratios of one run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.driver import Json, Peer

SERVER = [sys.executable, str(Path(__file__).with_name("echo_server.py"))]
PAYLOADS = (100, 10_000, 100_000, 1_000_000)


def through_group(name: str, arguments: Json) -> Json:
    """Return the params of a call through the two tools."""
    return {"name": "call_dynamic_tool", "arguments": {"group": "group0", "name": name, "args": arguments}}


def plain(name: str, arguments: Json) -> Json:
    """Return the params of a plain call."""
    return {"name": name, "arguments": arguments}


def config(folder: Path, groups: int) -> str:
    """Write a config of so many groups."""
    server = {"description": "echo", "command": SERVER[0], "args": SERVER[1:]}
    file = folder / f"{groups}.json"
    file.write_text(json.dumps({"mcpServers": {f"group{n}": server for n in range(groups)}}))
    return str(file)


def peers(folder: Path, groups: int) -> dict[str, tuple[list[str], Json]]:
    """Return how to start each peer, and how it is called."""
    file = config(folder, groups)
    found = {"dynamic-mcp": ([sys.executable, "-m", "dynamic_mcp", file], through_group)}
    if groups == 1:
        found["direct"] = (SERVER, plain)
        if fastmcp := shutil.which("fastmcp"):
            found["fastmcp"] = ([fastmcp, "run", file, "--no-banner"], plain)
    if dmcp := shutil.which("dmcp"):
        found["reference"] = ([dmcp, file], through_group)
    return found


def measure(argv: list[str], call: Json, calls: int) -> dict[str, float]:
    """Start a peer and return its figures."""
    peer = Peer(argv)
    try:
        echo = call("echo", {"text": "hello"})
        figures = {"start ms": peer.start() * 1e3}
        peer.until_works(echo)
        peer.burst(200, 1, echo)
        one = peer.burst(calls, 1, echo)
        many = peer.burst(calls * 2, 32, echo)
        figures |= {"p50 us": one.at(0.5) * 1e6, "p99 us": one.at(0.99) * 1e6}
        figures |= {"calls/s": one.calls_per_s, "calls/s @32": many.calls_per_s}
        for size in PAYLOADS:
            figures[f"{size:.0e} B us"] = peer.burst(50, 1, call("blob", {"bytes": size})).at(0.5) * 1e6
        figures["MiB"] = peer.resident_mib()
        return figures
    finally:
        peer.close()


def main() -> None:
    """Measure and print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--calls", type=int, default=2000)
    options.add_argument("--groups", default="1,10,100")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for groups in map(int, chosen.groups.split(",")):
            rows: dict[str, list[dict[str, float]]] = {}
            for _ in range(chosen.rounds):
                for name, (argv, call) in peers(Path(folder), groups).items():
                    rows.setdefault(name, []).append(measure(argv, call, chosen.calls))
            show(groups, rows)


def show(groups: int, rows: dict[str, list[dict[str, float]]]) -> None:
    """Print a table of medians."""
    columns = list(next(iter(rows.values()))[0])
    print(f"\n{groups} group{'s' if groups > 1 else ''}")
    print(f"{'':12}" + "".join(f"{column:>13}" for column in columns))
    for name, rounds in rows.items():
        medians = (statistics.median(each[column] for each in rounds) for column in columns)
        print(f"{name:12}" + "".join(f"{value:13.1f}" for value in medians))


if __name__ == "__main__":
    main()
