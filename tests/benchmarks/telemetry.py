"""Measure what telemetry adds to a call: off, metrics only, and traces and metrics, with a collector that takes all.

    python -m tests.benchmarks.telemetry [--calls 5000] [--rounds 7] [--upstreams memory,program]

In memory, the upstream is a fake on the far side of a link; as a program, the whole proxy runs in front of a server
over stdio. Rounds are interleaved. It judges nothing; the aim is 150 µs or less added to the median.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from dynamic_mcp.features.telemetry.recorder import Recorder
from dynamic_mcp.features.telemetry.records import TelemetrySettings
from dynamic_mcp.features.telemetry.tracing import Tracing
from dynamic_mcp.proxy.request import Observers
from tests.benchmarks.access_rules import Peer
from tests.benchmarks.core import SERVER, through_group
from tests.benchmarks.driver import Peer as ProgramPeer
from tests.otlp_receiver import receiving

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
KINDS = {"off": (False, False), "metrics": (False, True), "traces and metrics": (True, True)}


async def measure_memory(url: str, calls: int, rounds: int) -> Mapping[str, list[float]]:
    """Return the median times of calls in memory, in microseconds, for each kind and round."""
    peers = {name: Peer(None) for name in KINDS}
    recorders: list[Recorder] = []
    for name, peer in peers.items():
        await peer.request("initialize", HELLO)
        traces, metrics = KINDS[name]
        if traces or metrics:
            recorder = Recorder(TelemetrySettings(url, traces, metrics, "benchmark"))
            recorder.start()
            recorders.append(recorder)
            peer.proxy.observers = Observers([Tracing(recorder)])
        await peer.measure(500)
    found: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(rounds):
        for name, peer in peers.items():
            found[name].append(await peer.measure(calls))
    for recorder in recorders:
        await asyncio.to_thread(recorder.close)
        print(recorder)
    for peer in peers.values():
        await peer.proxy.close()
    return found


def measure_program(url: str, calls: int, rounds: int) -> Mapping[str, list[float]]:
    """Return the same for calls through the whole program."""
    found: dict[str, list[float]] = {name: [] for name in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for name, (traces, metrics) in KINDS.items():
                file = Path(folder) / f"{name}.json"
                telemetry = {"endpoint": url, "traces": traces, "metrics": metrics} if traces or metrics else False
                servers = {"group0": {"command": SERVER[0], "args": SERVER[1:]}}
                file.write_text(json.dumps({"mcpServers": servers, "settings": {"telemetry": telemetry}}))
                found[name].append(_p50_us([sys.executable, "-m", "dynamic_mcp", str(file)], calls))
    return found


def _p50_us(command: list[str], calls: int) -> float:
    echo = through_group("echo", {"text": "hello"})
    peer = ProgramPeer(command)
    try:
        peer.start()
        peer.until_works(echo)
        peer.burst(1000, 1, echo)
        return peer.burst(calls, 1, echo).at(0.5) * 1e6
    finally:
        peer.close()


def show(what: str, found: Mapping[str, list[float]]) -> None:
    """Print the medians over all rounds, and what each kind adds."""
    base = statistics.median(found["off"])
    for name, times in found.items():
        middle = statistics.median(times)
        print(f"{what:10} {name:20} {middle:7.1f} µs  {middle - base:+6.1f} µs")


@contextmanager
def collector() -> Iterator[str]:
    """Run a collector in a process of its own; its URL."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_collect, args=(theirs,))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def _collect(pipe: Connection) -> None:
    with receiving() as receiver:
        receiver.behave("ignore")
        pipe.send(receiver.url)
        pipe.recv()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--upstreams", default="memory,program")
    options = parser.parse_args()
    os.environ.setdefault("OTEL_METRIC_EXPORT_INTERVAL", "5000")
    with collector() as url:
        if "memory" in options.upstreams:
            show("memory", asyncio.run(measure_memory(url, options.calls, options.rounds)))
        if "program" in options.upstreams:
            show("program", measure_program(url, options.calls, options.rounds))


if __name__ == "__main__":
    main()
