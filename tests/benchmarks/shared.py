"""Measure the daemon: what a window costs, what the way through it adds, and what many windows have in all.

    python -m tests.benchmarks.shared [--rounds 7] [--calls 4000] [--windows 10] [--servers 5] [--config FILE]

Rows: dynamic-mcp alone, a window of a running daemon, and the reference (`dmcp`) where its command is on the PATH.
A start is from the start of the process to the answer to `initialize`, beside an empty `python -c pass`. Memory is
PSS, which divides what processes share among them. Rounds are interleaved; each figure is the median over the
rounds. With a config, the windows use its servers instead of five cheap ones. It judges nothing: quote ratios of one
run. Linux only, because of `/proc`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.core import SERVER, through_group
from tests.benchmarks.driver import Peer

PROGRAM = str(Path(sys.executable).with_name("dynamic-mcp"))
ECHO = through_group("echo", {"text": "hello"})
_STARTED_WITHIN_S = 30.0
BLOB = through_group("blob", {"bytes": 100_000})


def write_config(folder: Path, servers: int, *, daemon: bool) -> Path:
    """Write a config of so many servers."""
    entry = {"description": "echo", "command": SERVER[0], "args": SERVER[1:]}
    root: dict[str, object] = {"mcpServers": {f"group{number}": entry for number in range(servers)}}
    if daemon:
        root["settings"] = {"daemon": {"linger": "never"}}
    file = folder / f"{'daemon' if daemon else 'alone'}-{servers}.json"
    file.write_text(json.dumps(root))
    return file


@contextmanager
def running_daemon(config: Path) -> Iterator[None]:
    """Run the daemon of a config."""
    control = [PROGRAM, "daemon"]
    subprocess.run([*control, "start", "-c", str(config)], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run([*control, "stop", "-c", str(config)], check=True, capture_output=True)


def list_windows(folder: Path, config: Path) -> dict[str, list[str]]:
    """Return how to start windows that share the servers of a config, and such that do not."""
    root = json.loads(config.read_text())
    peers = {}
    for name, daemon in (("alone", False), ("daemon", {"linger": "never"})):
        file = folder / f"{name}-own.json"
        file.write_text(json.dumps({**root, "settings": {"defaults": {"connect": "eager"}, "daemon": daemon}}))
        peers[name] = [PROGRAM, str(file)]
    return peers


def list_peers(folder: Path, servers: int) -> dict[str, list[str]]:
    """Return how to start each peer."""
    alone = str(write_config(folder, servers, daemon=False))
    peers = {"alone": [PROGRAM, alone], "daemon": [PROGRAM, str(write_config(folder, servers, daemon=True))]}
    if dmcp := shutil.which("dmcp"):
        peers["reference"] = [dmcp, alone]
    return peers


def measure_empty_python() -> float:
    """Return how long `python -c pass` takes, in milliseconds."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return (time.perf_counter() - began) * 1e3


def measure_window(argv: list[str], calls: int) -> dict[str, float]:
    """Start a peer and return its figures."""
    peer = Peer(argv)
    try:
        figures = {"start ms": peer.start() * 1e3}
        peer.until_works(ECHO)
        peer.burst(500, 1, ECHO)
        one, many = peer.burst(calls, 1, ECHO), peer.burst(calls * 4, 32, ECHO)
        figures |= {"p50 us": one.at(0.5) * 1e6, "p99 us": one.at(0.99) * 1e6}
        figures |= {"calls/s": one.calls_per_s, "calls/s @32": many.calls_per_s}
        figures["100 kB us"] = peer.burst(100, 1, BLOB).at(0.5) * 1e6
        figures["PSS MiB"] = measure_pss([peer.pid])
        return figures
    finally:
        peer.close()


def measure_windows(argv: list[str], windows: int, servers: int) -> dict[str, float]:
    """Open many windows that use every server, and return what they have in all.

    Without `servers`, those of the config start with the first client, and this waits until all have.
    """
    peers: list[Peer] = []
    before = set(list_processes())
    try:
        for _ in range(windows):
            peers.append(Peer(argv))
            peers[-1].start()
        if not servers:
            time.sleep(_STARTED_WITHIN_S)
        for number in range(servers):
            call = {
                "name": "call_dynamic_tool",
                "arguments": {"group": f"group{number}", "name": "echo", "args": {"text": "x"}},
            }
            for peer in peers:
                peer.until_works(call)
        started = [pid for pid in list_processes() if pid not in before]
        ours = [pid for pid in started if "dynamic" in read_command(pid) or "dmcp" in read_command(pid)]
        return {"processes": len(started), "of them ours": len(ours), "PSS MiB": measure_pss(started)}
    finally:
        for peer in peers:
            peer.close()


def list_processes() -> list[int]:
    """Return the ids of all processes."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def read_command(pid: int) -> str:
    """Return the command line of a process; nothing for one that has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def measure_pss(pids: list[int]) -> float:
    """Return the proportional memory of processes, in MiB."""
    kilobytes = 0
    for pid in pids:
        try:
            rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has just ended
            continue
        kilobytes += next(int(row.split()[1]) for row in rows if row.startswith("Pss:"))
    return kilobytes / 1024


def show(title: str, rows: dict[str, list[dict[str, float]]]) -> None:
    """Print a table of medians."""
    columns = list(next(iter(rows.values()))[0])
    print(f"\n{title}\n{'':12}" + "".join(f"{column:>13}" for column in columns))
    for name, rounds in rows.items():
        medians = (statistics.median(each[column] for each in rounds) for column in columns)
        print(f"{name:12}" + "".join(f"{value:13.1f}" for value in medians))


def main() -> None:
    """Measure and print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--calls", type=int, default=4000)
    options.add_argument("--windows", type=int, default=10)
    options.add_argument("--servers", type=int, default=5)
    options.add_argument("--config", type=Path)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= dict.fromkeys(("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME"), name)
        peers, empty = list_peers(folder, 1), list[float]()
        rows: dict[str, list[dict[str, float]]] = {}
        with running_daemon(Path(peers["daemon"][1])):
            for _ in range(chosen.rounds):
                empty.append(measure_empty_python())
                for peer, argv in peers.items():
                    rows.setdefault(peer, []).append(measure_window(argv, chosen.calls))
        show(f"one window; an empty python takes {statistics.median(empty):.1f} ms", rows)
        rows = {}
        peers = list_windows(folder, chosen.config) if chosen.config else list_peers(folder, chosen.servers)
        servers = 0 if chosen.config else chosen.servers
        for peer, argv in peers.items():
            if peer != "daemon":
                rows[peer] = [measure_windows(argv, chosen.windows, servers)]
        rows["daemon"] = [measure_daemon(peers["daemon"], chosen.windows, servers)]
        show(f"{chosen.windows} windows with {chosen.config or f'{chosen.servers} servers'} each", rows)


def measure_daemon(argv: list[str], windows: int, servers: int) -> dict[str, float]:
    """Open many windows, the first of which starts the daemon, and count the daemon too."""
    try:
        return measure_windows(argv, windows, servers)
    finally:
        subprocess.run([PROGRAM, "daemon", "stop", "-c", argv[1]], check=True, capture_output=True)


if __name__ == "__main__":
    main()
