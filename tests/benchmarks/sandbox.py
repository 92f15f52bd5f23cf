"""Measure how much longer a program takes to start in the sandbox.

    python -m tests.benchmarks.sandbox [--rounds 40]

In turns, it starts a program in each way, and takes the time from the start to its first line. It judges nothing.
Linux only, with bubblewrap; the means that are not here are left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.features.sandbox import bubblewrap, landlock
from dynamic_mcp.features.sandbox.launching import launch
from dynamic_mcp.features.sandbox.words import Restrictions

_PROGRAM = Program(command="/bin/echo", args=("here",), env={}, cwd="")
_ENVIRONMENT = {"PATH": os.environ["PATH"]}

Start = Callable[[int], "subprocess.Popen[bytes]"]


def start_plain(stdout: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [_PROGRAM.command, *_PROGRAM.args],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def confined(words: Restrictions) -> Start:
    def start(stdout: int) -> subprocess.Popen[bytes]:
        quiet = os.open(os.devnull, os.O_RDWR)
        try:
            return launch(words, _PROGRAM, _ENVIRONMENT, (quiet, stdout, quiet)).process
        finally:
            os.close(quiet)

    return start


def list_ways(folder: Path) -> Mapping[str, Start]:
    if why_not := bubblewrap.explain_missing():
        raise SystemExit(why_not)
    home = str(folder)
    ways = {"plain": start_plain, "write": confined(Restrictions("a", home))}
    ways["strict"] = confined(Restrictions("b", home, read=(), hosts=()))
    ways["strict, with a host"] = confined(Restrictions("c", home, read=(), hosts=("example.com",)))
    return ways


def measure(start: Start) -> float:
    """Return the milliseconds until the first line."""
    reading, writing = os.pipe()
    began = time.perf_counter()
    child = start(writing)
    os.close(writing)
    text = os.read(reading, 100)
    took = 1e3 * (time.perf_counter() - began)
    os.close(reading)
    child.wait()
    assert text == b"here\n", text
    return took


def main() -> None:
    """Read the options, measure, and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=40)
    rounds = options.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        os.environ |= dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), name)
        ways = list_ways(Path(name))
        times: dict[str, list[float]] = {each: [] for each in ways}
        for _ in range(rounds):
            for each, start in ways.items():
                times[each].append(measure(start))
        plain = statistics.median(times["plain"])
        print(f"{'start':<24}{'median ms':>11}{'min ms':>9}{'more ms':>9}")
        for each, taken in times.items():
            median = statistics.median(taken)
            print(f"{each:<24}{median:>11.1f}{min(taken):>9.1f}{median - plain:>9.1f}")
        print(f"Landlock: version {landlock.read_version() or 'none'}")


if __name__ == "__main__":
    main()
