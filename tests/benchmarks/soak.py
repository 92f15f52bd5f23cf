"""Use the program hard for a few minutes and see that nothing is lost, mixed up, left open or ever growing.

    python -m tests.benchmarks.soak [--calls 100000] [--kills 1000] [--reloads 200]

Five groups on this machine; 50 calls in flight, each with a nonce that must come back; one in a hundred is
cancelled and one in a hundred meets a fault. Then servers are killed and the config is saved again and again. It
prints what was open after the warm-up and at the end, and every wrong, lost or doubled answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = Any  # whatever JSON this writes down
ODD = str(Path(__file__).parent.parent / "upstreams" / "odd.py")
GROUPS = [f"g{n}" for n in range(5)]
IN_FLIGHT = 50
FAULTS = ["wrong_id", "twice", "neither", "garbage_before", "rpc_error", "odd_result"]


@dataclass
class Driver:
    """One client of one running proxy; answers are matched and counted as they come."""

    process: asyncio.subprocess.Process
    waiting: dict[int, asyncio.Future[Json]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    number: int = 0

    async def read(self) -> None:
        """Give every answer to its request; what nobody waits for is doubled or wrong."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            message = json.loads(line)
            if "method" in message:
                self.counts["notifications"] += 1
            elif (future := self.waiting.pop(message["id"], None)) is not None:
                if not future.done():
                    future.set_result(message)
            else:
                self.counts["doubled or unasked"] += 1

    def send(self, message: Json) -> None:
        """Write a message."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(self, method: str, params: Json) -> tuple[int, asyncio.Future[Json]]:
        """Send a request; return its id and its answer to come."""
        self.number += 1
        future = self.waiting[self.number] = asyncio.get_running_loop().create_future()
        self.send({"id": self.number, "method": method, "params": params})
        return self.number, future

    async def call(self, group: str, name: str, args: Json) -> Json:
        """Call a tool and return the result."""
        _, answer = self.ask("tools/call", through(group, name, args))
        async with asyncio.timeout(60):
            message = await answer
        return message["result"] if "result" in message else {"isError": True, "content": [{"text": str(message)}]}

    async def checked_call(self, chance: random.Random) -> None:
        """Make one call of the mixture, and judge what comes back."""
        group, nonce, kind = chance.choice(GROUPS), chance.randrange(1 << 40), chance.random()
        if kind < 0.01:
            id, _ = self.ask("tools/call", through(group, "sleep", {"seconds": 30}))
            self.send({"method": "notifications/cancelled", "params": {"requestId": id}})
            self.waiting.pop(id)
            self.counts["cancelled"] += 1
        elif kind < 0.02:
            await self.call(group, "fault", {"kind": chance.choice(FAULTS)})
            self.counts["faulty"] += 1
        else:
            result = await self.call(group, "echo", {"text": f"{nonce}"})
            right = not result.get("isError") and result["content"][0]["text"] == f"{nonce}"
            self.counts["right" if right else "wrong"] += 1
            if not right:
                print(result, file=sys.stderr)


def through(group: str, name: str, args: Json) -> Json:
    """Return the params of a call through the two tools."""
    return {"name": "call_dynamic_tool", "arguments": {"group": group, "name": name, "args": args}}


def write_config(file: Path, note: int) -> None:
    """Save the config the way editors do: a new file over the old one."""
    server = {"command": sys.executable, "args": [ODD], "timeout": {"tools": "2s"}}
    servers = {group: {**server, "description": f"{group} {note}"} for group in GROUPS}
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"mcpServers": servers}))
    new.replace(file)


def state(pid: int) -> dict[str, float]:
    """Return what a process has open, and its memory."""
    root = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (root / "status").read_text().splitlines())
    children = [child for task in (root / "task").iterdir() for child in (task / "children").read_text().split()]
    return {
        "descriptors": len(list((root / "fd").iterdir())),
        "children": len(children),
        "threads": int(status["Threads"]),
        "MiB": int(status["VmRSS"].split()[0]) / 1024,
    }


async def counts(pid: int, file: Path) -> dict[str, float]:
    """Return how many tasks, requests, links and the like there are in the process."""
    os.kill(pid, signal.SIGUSR2)
    async with asyncio.timeout(30):
        while not file.exists():  # noqa: ASYNC110, ASYNC240 - a benchmark may look
            await asyncio.sleep(0.01)
    found: dict[str, float] = json.loads(file.read_text())  # noqa: ASYNC240
    file.unlink()  # noqa: ASYNC240
    return found


async def many(driver: Driver, calls: int, seed: int) -> None:
    """Make so many calls of the mixture, with a bounded number in flight."""
    chance, left = random.Random(seed), iter(range(calls))  # noqa: S311 - nothing secret

    async def worker() -> None:
        for _ in left:
            await driver.checked_call(chance)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(worker())


async def kill(driver: Driver, kills: int) -> None:
    """Kill a server, and see that the next call works, so many times."""
    for number in range(kills):
        group = GROUPS[number % len(GROUPS)]
        pid = int((await driver.call(group, "pid", {}))["content"][0]["text"])
        os.kill(pid, signal.SIGKILL)
        for _ in range(3):
            result = await driver.call(group, "nonce", {"n": number})
            if not result.get("isError"):
                break
            driver.counts["calls that a kill met"] += 1
        driver.counts["back after a kill" if not result.get("isError") else "not back"] += 1


async def reload(driver: Driver, file: Path, reloads: int) -> None:
    """Save the config so many times; each change is announced, and unchanged servers live on."""
    before = (await driver.call("g0", "pid", {}))["content"][0]["text"]
    for number in range(reloads):
        heard = driver.counts["notifications"]
        write_config(file, number + 1)
        async with asyncio.timeout(30):
            while driver.counts["notifications"] == heard:  # noqa: ASYNC110 - a benchmark may look
                await asyncio.sleep(0.01)
        driver.counts["reloads"] += 1
    after = (await driver.call("g0", "pid", {}))["content"][0]["text"]
    driver.counts["server kept over reloads" if before == after else "server lost over reloads"] += 1


async def main() -> None:
    """Run the phases and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--calls", type=int, default=100_000)
    options.add_argument("--kills", type=int, default=1000)
    options.add_argument("--reloads", type=int, default=200)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dynamic-mcp.json"
        write_config(file, 0)
        strict = ("-X", "dev", "-W", "error::ResourceWarning")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *strict, "-m", "tests.benchmarks.watched", str(file)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=(Path(folder) / "stderr").open("wb"),
            env={
                **os.environ,
                "XDG_CACHE_HOME": folder,
                "DYNAMIC_MCP_LOG": "error",
                "MALLOC_ARENA_MAX": "2",
                "WATCHED_FILE": f"{folder}/watched",
            },
            limit=1 << 24,
        )
        driver = Driver(process)
        reader = asyncio.create_task(driver.read())
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}}
        await driver.ask("initialize", hello)[1]
        await phases(driver, file, chosen)
        assert process.stdin is not None
        process.stdin.close()
        print(f"exit code {await process.wait()}")
        await reader
        said = (Path(folder) / "stderr").read_text().splitlines(keepends=True)
        slow = [line for line in said if "Executing <" in line]  # asyncio's debug mode times every step
        print(f"stderr: {''.join(line for line in said if line not in slow) or 'nothing'}")
        print(f"steps over 0.1 s: {len(slow)}")


async def phases(driver: Driver, file: Path, chosen: argparse.Namespace) -> None:
    """Warm up, then calls, kills and reloads; print what is open after each."""
    pid = driver.process.pid
    rows: list[tuple[str, dict[str, float]]] = []

    async def phase(name: str, work: Any) -> None:  # Any: a coroutine
        began = time.perf_counter()
        await work
        await many(driver, 200, 0)  # every group is up again
        await asyncio.sleep(2)  # what is ending has ended
        inside = await counts(pid, file.with_name("watched"))
        rows.append((f"{name}, {time.perf_counter() - began:.0f} s", state(pid) | inside))

    await phase("warm-up", many(driver, 5000, 1))
    await phase(f"{chosen.calls} calls", many(driver, chosen.calls, 2))
    await phase(f"{chosen.kills} kills", kill(driver, chosen.kills))
    await phase(f"{chosen.reloads} reloads", reload(driver, file, chosen.reloads))
    columns = list(dict.fromkeys(column for _, row in rows for column in row))
    print(f"{'after':24}" + "".join(f"{column:>12}" for column in columns))
    for name, row in rows:
        print(f"{name:24}" + "".join(f"{row.get(column, 0):12.1f}" for column in columns))
    print(
        f"still waiting: {len(driver.waiting)}; " + ", ".join(f"{k}: {n}" for k, n in sorted(driver.counts.items()))
    )


if __name__ == "__main__":
    asyncio.run(main())
