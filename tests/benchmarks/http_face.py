"""Measure programs that serve an MCP server over HTTP: calls, memory, the start, and what a frozen server costs.

    python -m tests.benchmarks.http_face [--rounds 3] [--seconds 2] [--sessions 1,32,256] [--streams 1000]

Every program is put in front of the same cheap stdio server, and called by `tests.benchmarks.http_load`, which checks
every answer. Peers take part where their command is on the PATH: `mcp-proxy-ts` (npm's mcp-proxy), `mcp-proxy-py`
(PyPI's), `supergateway`, and `fastmcp`. Rounds are interleaved; each figure is the median over the rounds. Memory is
of the program without its servers; a stream is what it grows by per session that listens and does nothing else, with
the session. Then one of two servers is frozen with SIGSTOP while sessions call it, and the calls to the other are
timed beside those of before. It judges nothing: quote ratios of one run. Linux only, because of `/proc`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.core import SERVER
from tests.benchmarks.driver import Json
from tests.benchmarks.http_load import ECHO, TEXT
from tests.journeys.remote_server import free_port

_STARTS_WITHIN_S = 30.0
_ENDS_WITHIN_S = 10.0
_SETTLES_S = 1.0
# The other server's sessions when one is frozen, and how often each of them calls.
_FROZEN_SESSIONS, _EVERY_S = 64, 0.1
Figures = dict[str, float]


@dataclass(frozen=True)
class Peer:
    """A program: how it is started at a port, and the params of a call of `echo` through it."""

    command: Callable[[int], list[str]]
    params: str = ECHO


def list_peers(folder: Path) -> dict[str, Peer]:
    """Return the programs that are there."""
    config, server = str(write_config(folder, 1)), [*SERVER]
    peers = {"dynamic-mcp": Peer(serve(Path(config)), call("group0"))}
    line = " ".join(server)
    others: dict[str, Callable[[str, str], list[str]]] = {
        "mcp-proxy-ts": lambda it, port: [
            it,
            "--host",
            "127.0.0.1",
            "--port",
            port,
            "--server",
            "stream",
            "--",
            *server,
        ],
        "mcp-proxy-py": lambda it, port: [it, "--port", port, "--log-level", "ERROR", *server],
        "supergateway": lambda it, port: [
            *(it, "--stdio", line, "--outputTransport", "streamableHttp", "--stateful"),
            *("--port", port, "--logLevel", "none"),
        ],
        "fastmcp": lambda it, port: [
            *(it, "run", config, "--transport", "http", "--port", port, "--no-banner", "--log-level", "ERROR")
        ],
    }
    for name, command in others.items():
        if found := shutil.which(name):
            peers[name] = Peer(lambda port, command=command, found=found: command(found, str(port)))  # type: ignore[misc]
    return peers


def call(group: str) -> str:
    """Return the params of a call of `echo` of a group, through `call_dynamic_tool`."""
    arguments = {"group": group, "name": "echo", "args": {"text": TEXT}}
    return json.dumps({"name": "call_dynamic_tool", "arguments": arguments})


def write_config(folder: Path, servers: int, **settings: Json) -> Path:
    """Write a config of so many cheap servers."""
    entry = {"description": "echo", "command": SERVER[0]}
    groups = [f"group{number}" for number in range(servers)]
    tree = {"mcpServers": {group: {**entry, "args": [*SERVER[1:], group]} for group in groups}, **settings}
    file = folder / f"config-{servers}-{len(settings)}.json"
    file.write_text(json.dumps(tree))
    return file


def serve(config: Path) -> Callable[[int], list[str]]:
    """Return how to serve a config at a port."""
    ours = str(Path(sys.executable).with_name("dynamic-mcp"))
    return lambda port: [ours, "serve", str(config), "--http", f"127.0.0.1:{port}"]


# --- processes -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def running(command: Callable[[int], list[str]], folder: Path, port: int = 0) -> Iterator[tuple[int, int, float]]:
    """Run a server, at this port if it is not 0; hand out its port, its process id, and the ms until it listened."""
    port = port or free_port()
    homes = {name: str(folder) for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")}
    quiet, began = subprocess.DEVNULL, time.perf_counter()
    process = subprocess.Popen(
        command(port), stdin=quiet, stdout=quiet, stderr=quiet, env={**os.environ, **homes}, start_new_session=True
    )
    try:
        _wait_until_it_listens(process, port)
        yield port, process.pid, (time.perf_counter() - began) * 1e3
    finally:
        process.terminate()
        try:
            process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.perf_counter() + _STARTS_WITHIN_S
    while True:
        if process.poll() is not None or time.perf_counter() > deadline:
            raise RuntimeError(f"{process.args!r} does not listen")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.005)


def load(port: int, *options: str) -> dict[str, Json]:
    """Run the load client, and return its figures."""
    command = [sys.executable, "-m", "tests.benchmarks.http_load", "--port", str(port), *options]
    done = subprocess.run(command, check=True, capture_output=True, timeout=300)
    figures: dict[str, Json] = json.loads(done.stdout)
    if figures["errors"]:
        print(f"{figures['errors']} errors, first: {figures['first_error']}", file=sys.stderr)
    return figures


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that these have started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *descendants(child)]
    return found


def is_server(pid: int, group: str = "") -> bool:
    """Tell whether a process is one of the cheap servers, or that of a group."""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return command[1:2] == [SERVER[1].encode()] and group.encode() in (b"", *command)
    return False


def resident_kib(pid: int) -> float:
    """Return the memory of a program, with what it has started but its servers."""
    total = 0.0
    for each in [pid, *descendants(pid)]:
        if not is_server(each):
            rows = Path(f"/proc/{each}/status").read_text().splitlines()
            total += next(float(row.split()[1]) for row in rows if row.startswith("VmRSS"))
    return total


# --- what is measured ----------------------------------------------------------------------------------


def measure(peer: Peer, chosen: argparse.Namespace, folder: Path) -> Figures:
    """Return the figures of one program in one round."""
    found: Figures = {}
    with running(peer.command, folder) as (port, pid, started_ms):
        found["start ms"] = started_ms
        time.sleep(_SETTLES_S)
        for sessions in chosen.sessions.split(","):
            options = ("--sessions", sessions, "--seconds", str(chosen.seconds), "--params", peer.params)
            figures = load(port, *options)
            found |= {f"{name} @{sessions}": figures[key] for name, key in _SHOWN.items()}
            found[f"MiB @{sessions}"] = resident_kib(pid) / 1024
            found["errors"] = found.get("errors", 0) + figures["errors"]
    return found


_SHOWN = {"p50 ms": "p50_ms", "p99 ms": "p99_ms", "calls/s": "rate"}


def measure_streams(streams: int, folder: Path) -> Figures:
    """Return what idle sessions cost, and such that listen; the program was warmed up first."""
    config = write_config(folder, 1, settings={"http": {"max_sessions": 2 * streams}})
    with running(serve(config), folder) as (port, pid, _):
        load(port, "--sessions", "32", "--seconds", "1", "--params", call("group0"))
        time.sleep(_SETTLES_S)
        before = resident_kib(pid)
        command = [sys.executable, "-m", "tests.benchmarks.http_load", "--port", str(port)]
        with subprocess.Popen(
            [*command, "--streams", "--sessions", str(streams)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            grown = []
            for _ in ("the sessions are there", "they listen"):
                client.stdout.readline()
                time.sleep(_SETTLES_S)
                grown.append((resident_kib(pid) - before) / streams)
                client.stdin.write(b"\n")
                client.stdin.flush()
            open_streams = json.loads(client.stdout.readline())["open"]
    return {"KiB/session": grown[0], "KiB/stream": grown[1], "streams open": open_streams}


def measure_frozen(chosen: argparse.Namespace, folder: Path) -> Figures:
    """Return how calls to a server fare before and while another one is frozen and called."""
    with running(serve(write_config(folder, 2)), folder) as (port, pid, _):
        paced = ("--sessions", str(_FROZEN_SESSIONS), "--seconds", str(chosen.seconds), "--every", str(_EVERY_S))
        own = (*paced, "--params", call("group0"))
        load(port, *own)
        load(port, "--sessions", "2", "--seconds", "0.2", "--params", call("group1"))
        frozen = [each for each in descendants(pid) if is_server(each, "group1")]
        quiet = load(port, *own)
        for each in frozen:
            os.kill(each, signal.SIGSTOP)
        hung = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.benchmarks.http_load",
                "--port",
                str(port),
                *paced,
                "--params",
                call("group1"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(_SETTLES_S)
            disturbed = load(port, *own)
        finally:
            hung.kill()
            hung.wait()
            for each in frozen:
                os.kill(each, signal.SIGCONT)
    return {
        "frozen servers": len(frozen),
        "p99 ms quiet": quiet["p99_ms"],
        "p99 ms beside frozen": disturbed["p99_ms"],
        "p99 ratio": disturbed["p99_ms"] / quiet["p99_ms"],
        "errors": quiet["errors"] + disturbed["errors"],
    }


def show(rows: dict[str, list[Figures]]) -> None:
    """Print the medians of each program, a line for each figure."""
    names = list(rows)
    print(f"{'':22}" + "".join(f"{name:>16}" for name in names))
    for column in dict.fromkeys(column for rounds in rows.values() for each in rounds for column in each):
        medians = (statistics.median(each.get(column, float("nan")) for each in rows[name]) for name in names)
        print(f"{column:22}" + "".join(f"{value:16.2f}" for value in medians))


def main() -> None:
    """Measure and print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--sessions", default="1,32,256")
    options.add_argument("--streams", type=int, default=1000)
    options.add_argument("--only", default="", help="only this program")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peers = {name: peer for name, peer in list_peers(folder).items() if chosen.only in ("", name)}
        rows: dict[str, list[Figures]] = {name: [] for name in peers}
        for turn in range(chosen.rounds):
            order = list(peers)[turn % len(peers) :] + list(peers)[: turn % len(peers)]
            for each in order:
                rows[each].append(measure(peers[each], chosen, folder))
        show(rows)
        if "dynamic-mcp" in peers:
            ours = measure_streams(chosen.streams, folder)
            frozen = [measure_frozen(chosen, folder) for _ in range(chosen.rounds)]
            show({"dynamic-mcp": [ours]})
            show({"one server frozen": frozen})


if __name__ == "__main__":
    main()
