"""Measure calls to one server over HTTP, made with the Python SDK: directly, through this proxy, through FastMCP's.

    python -m tests.benchmarks.http [--rounds 5] [--calls 500]

FastMCP takes part where `$DYNAMIC_MCP_BENCH_FASTMCP` names the `fastmcp` command of an environment that has it.
Rounds are interleaved; each figure is the median over the rounds. It judges nothing: quote ratios of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx2

from tests.benchmarks.core import plain, through_group
from tests.benchmarks.driver import Json, Peer
from tests.journeys.remote_server import free_port, listening
from tests.program import UPSTREAMS

SERVER = (sys.executable, str(UPSTREAMS / "sdk_http.py"))
IN_FLIGHT = (1, 32)
_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def figures(in_flight: int, latencies_s: list[float], calls_per_s: float) -> dict[str, float]:
    """Return what is shown of so many calls."""
    ordered = sorted(latencies_s)
    return {
        f"p50 ms @{in_flight}": ordered[len(ordered) // 2] * 1e3,
        f"p99 ms @{in_flight}": ordered[int(len(ordered) * 0.99)] * 1e3,
        f"calls/s @{in_flight}": calls_per_s,
    }


async def direct(url: str, calls: int) -> dict[str, float]:
    """Call the server itself, with httpx2."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(headers=_HEADERS, limits=limits) as client:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        answer = await client.post(url, json=_request("initialize", hello))
        client.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        client.headers["mcp-protocol-version"] = "2025-06-18"
        await client.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        params = json.dumps(plain("echo", {"text": "hello"})).encode()
        ids = itertools.count(2)

        async def call() -> None:
            body = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%b}' % (next(ids), params)
            answer = await client.post(url, content=body)
            assert b"hello" in answer.content

        await _measured(call, 100, 1)
        found: dict[str, float] = {}
        for in_flight in IN_FLIGHT:
            found |= await _measured(call, calls * (1 if in_flight == 1 else 2), in_flight)
        return found


async def _measured(call: Callable[[], Awaitable[None]], calls: int, in_flight: int) -> dict[str, float]:
    latencies: list[float] = []

    async def repeat(times: int) -> None:
        for _ in range(times):
            began = time.perf_counter()
            await call()
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(repeat(calls // in_flight) for _ in range(in_flight)))
    return figures(in_flight, latencies, len(latencies) / (time.perf_counter() - began))


def _request(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def proxied(argv: list[str], call: Json, calls: int) -> dict[str, float]:
    """Call the server through a proxy over stdio."""
    peer = Peer(argv)
    try:
        peer.start()
        peer.until_works(call)
        peer.burst(100, 1, call)
        found: dict[str, float] = {}
        for in_flight in IN_FLIGHT:
            burst = peer.burst(calls * (1 if in_flight == 1 else 2), in_flight, call)
            found |= figures(in_flight, burst.latencies_s, burst.calls_per_s)
        return found | {"MiB": peer.resident_mib()}
    finally:
        peer.close()


async def measure(rounds: int, calls: int, folder: Path) -> dict[str, list[dict[str, float]]]:
    """Return the figures of each peer in each round; every peer gets a fresh server."""
    rows: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for name, run in peers(folder, calls).items():
            port = free_port()
            async with listening(*SERVER, str(port), "http", port=port):
                rows.setdefault(name, []).append(await run(f"http://127.0.0.1:{port}/mcp"))
    return rows


def peers(folder: Path, calls: int) -> dict[str, Callable[[str], Awaitable[dict[str, float]]]]:
    """Return how each peer is measured in front of the server at a URL."""
    ours, fastmcp = Path(sys.executable).with_name("dynamic-mcp"), os.environ.get("DYNAMIC_MCP_BENCH_FASTMCP")

    def through(command: list[str], call: Json, url: str) -> Awaitable[dict[str, float]]:
        (folder / "config.json").write_text(json.dumps({"mcpServers": {"group0": {"url": url}}}))
        return asyncio.to_thread(proxied, command, call, calls)

    file = str(folder / "config.json")
    found: dict[str, Callable[[str], Awaitable[dict[str, float]]]] = {
        "direct": lambda url: direct(url, calls),
        "dynamic-mcp": partial(through, [str(ours), file], through_group("echo", {"text": "hello"})),
    }
    if fastmcp:
        found["fastmcp"] = partial(through, [fastmcp, "run", file, "--no-banner"], plain("echo", {"text": "hello"}))
    return found


def main() -> None:
    """Measure and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--calls", type=int, default=500)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure(chosen.rounds, chosen.calls, Path(folder)))
    columns = list(rows["dynamic-mcp"][0])
    print(f"{'':12}" + "".join(f"{column:>14}" for column in columns))
    for name, rounds in rows.items():
        medians = (statistics.median(each.get(column, float("nan")) for each in rounds) for column in columns)
        print(f"{name:12}" + "".join(f"{value:14.2f}" for value in medians))


if __name__ == "__main__":
    main()
