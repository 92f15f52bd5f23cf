"""Drive one stdio MCP server with raw JSON-RPC lines and time it, adding as little of its own as possible."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = Any  # whatever JSON a benchmark writes down
_BOUND_S = 60


@dataclass(frozen=True)
class Burst:
    """What a number of calls took: all of them, and each."""

    calls_per_s: float
    latencies_s: list[float]

    def at(self, share: float) -> float:
        """Return the latency that this share of the calls did not exceed, in seconds."""
        return self.latencies_s[min(len(self.latencies_s) - 1, int(share * len(self.latencies_s)))]


class Peer:
    """A server as a child process."""

    def __init__(self, argv: list[str]) -> None:
        self._began = time.perf_counter()
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout.fileno()
        self._rest = b""
        self.instructions = ""
        self._id = 0

    def start(self) -> float:
        """Shake hands; return the seconds from the start of the process to the answer."""
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        answer = self.request("initialize", hello)
        self.instructions = answer["result"].get("instructions") or ""
        took = time.perf_counter() - self._began
        self._write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        return took

    def until_works(self, call: Json) -> None:
        """Repeat a call until it succeeds."""
        for _ in range(400):
            answer = self.request("tools/call", call)
            if not answer.get("result", {"isError": True}).get("isError"):
                return
            time.sleep(0.05)
        raise TimeoutError("the peer never answers")

    def request(self, method: str, params: Json) -> dict[str, Json]:
        """Send a request and wait for its answer."""
        self._id += 1
        body = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self._write(json.dumps(body).encode() + b"\n")
        for line in self._lines():
            message: dict[str, Json] = json.loads(line)
            if message.get("id") == self._id and "method" not in message:
                return message
        raise EOFError

    def burst(self, count: int, in_flight: int, call: Json) -> Burst:
        """Make `count` calls with so many in flight."""
        body = json.dumps(call).encode()
        started: dict[int, float] = {}
        latencies: list[float] = []
        first, sent = self._id + 1, 0
        self._id += count

        def send_one() -> None:
            nonlocal sent
            started[first + sent] = time.perf_counter()
            self._write(b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}\n' % (first + sent, body))
            sent += 1

        began = time.perf_counter()
        for _ in range(min(in_flight, count)):
            send_one()
        for line in self._lines():
            now = time.perf_counter()
            if b'"method"' in line[:100]:
                continue
            at = line.index(b'"id":') + 5 if len(line) > 1 << 16 else 0
            id = int(line[at : at + 20].split(b",")[0]) if at else json.loads(line)["id"]
            latencies.append(now - started.pop(id))
            if sent < count:
                send_one()
            elif not started:
                break
        return Burst(count / (time.perf_counter() - began), sorted(latencies))

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def resident_mib(self) -> float:
        """Return the resident memory of the process itself, without its children."""
        status = Path(f"/proc/{self._process.pid}/status")
        if sys.platform == "win32" or not status.exists():
            return float("nan")
        row = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
        return int(row.split()[1]) / 1024

    def cpu_s(self) -> float:
        """Return the processor time that the threads of the process have used so far, without its children."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9 or float("nan")

    def close(self) -> None:
        """End the process."""
        self._stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write(self, data: bytes) -> None:
        self._stdin.write(data)
        self._stdin.flush()

    def _lines(self) -> Iterator[bytes]:
        while True:
            end = self._rest.find(b"\n")
            if end >= 0:
                line, self._rest = self._rest[:end], self._rest[end + 1 :]
                yield line
                continue
            # Windows can only wait for sockets
            if sys.platform != "win32" and not select.select([self._stdout], [], [], _BOUND_S)[0]:
                raise TimeoutError("no answer")
            chunk = os.read(self._stdout, 1 << 20)
            if not chunk:
                raise EOFError("the peer ended")
            self._rest += chunk
