"""What an operation of the shared store costs: `python -m tests.benchmarks.shared_store [redis-server]`.

One process asks a server on loopback, alone and with 32 at once. CPU is that of the asking process.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from dynamic_mcp.features.cluster.local_store import LocalStore
from dynamic_mcp.system.event_loop import loop_factory
from dynamic_mcp.system.shared_store import Lease, Rate, SharedStore, StoreSpace
from tests.features.cluster.store_servers import open_valkey, store_server

PLAIN = StoreSpace("plain")
ROUNDS = 3000


async def measure(name: str, operation: Callable[[], Awaitable[object]], at_once: int) -> None:
    """Print operations a second, p50 and p99 in milliseconds, and the CPU of one in microseconds."""
    times: list[float] = []

    async def ask() -> None:
        for _ in range(ROUNDS // at_once):
            began = time.perf_counter()
            await operation()
            times.append(time.perf_counter() - began)

    cpu, began = _cpu_s(), time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(at_once)))
    took_s, cpu_s = time.perf_counter() - began, _cpu_s() - cpu
    times.sort()
    p50, p99 = (times[int(len(times) * each)] * 1000 for each in (0.5, 0.99))
    rate = len(times) / took_s
    print(f"{name:24} {at_once:4} {rate:8.0f}/s {p50:7.3f} {p99:7.3f} ms {cpu_s / len(times) * 1e6:6.0f} µs")


async def measure_all(store: SharedStore) -> None:
    print(store)
    await store.put(PLAIN, "a", b"x" * 200, 600)
    rates = [Rate("tool", 0.000_001, 10)]
    for at_once in (1, 32):
        await measure("count (a limit)", lambda: store.count(PLAIN, rates), at_once)
        await measure("get 200 bytes", lambda: store.get(PLAIN, "a"), at_once)
        await measure("put 200 bytes", lambda: store.put(PLAIN, "a", b"x" * 200, 600), at_once)
        await measure("acquire (concurrent)", lambda: store.acquire(PLAIN, [Lease("p", 9)], "a", 60), at_once)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def main() -> None:
    program = sys.argv[1] if len(sys.argv) > 1 else "redis-server"
    with tempfile.TemporaryDirectory() as folder:
        with store_server(Path(folder), program) as server:
            async with open_valkey(server.address) as store:
                await measure_all(store)
        local = LocalStore(Path(folder) / "store.sqlite")
        await measure_all(local)
        await local.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())
