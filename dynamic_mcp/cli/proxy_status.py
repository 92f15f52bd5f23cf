"""How the running proxies are, from what each writes down of itself and from what the system says of their memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.observe.instances import GroupEntry, InstanceRegistry, Running
from dynamic_mcp.system import paths

_EVERY_S = 1.0
_MIB = 1 << 20
_WAIT_FOR_PS_S = 5.0


class Process(msgspec.Struct, frozen=True):
    """A process of the system: its parent, and how much memory it holds, in bytes."""

    parent: int
    resident: int


class Memory(msgspec.Struct, frozen=True):
    """What a proxy holds itself, and what all that it has started hold, in bytes."""

    proxy: int
    servers: int


def status(this: Invocation, *, is_watching: bool) -> int:
    """Print the running proxies, again and again if asked to; returns the exit code."""
    registry = InstanceRegistry(paths.state_dir() / "running")
    config = this.named_file()
    while True:
        running = [each for each in registry.running() if config is None or Path(each.entry.config) == config]
        table = processes()
        if is_watching:
            this.out.clear()
        _show(this.out, [(each, memory(each.pid, table)) for each in running], config)
        if not is_watching:
            return 0
        time.sleep(_EVERY_S)


def memory(pid: int, table: Mapping[int, Process]) -> Memory | None:
    """Return what a process holds and what its descendants hold; None where the system does not say."""
    if pid not in table:
        return None
    family, grown = {pid}, True
    while grown:
        children = {each for each, process in table.items() if process.parent in family} - family
        family |= children
        grown = bool(children)
    return Memory(table[pid].resident, sum(table[each].resident for each in family - {pid}))


def processes() -> dict[int, Process]:
    """Return the processes of this machine that can be seen, by their number; none on Windows."""
    if sys.platform == "win32":
        return {}
    if Path("/proc/self/stat").exists():
        return {int(entry.name): made for entry in Path("/proc").iterdir() if (made := _from_proc(entry))}
    listed = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,rss="], capture_output=True, text=True, timeout=_WAIT_FOR_PS_S, check=False
    )
    return from_ps(listed.stdout)


def from_ps(listed: str) -> dict[int, Process]:
    """Read what `ps -axo pid=,ppid=,rss=` says, as macOS and the BSDs have it."""
    rows = (line.split() for line in listed.splitlines())
    return {int(pid): Process(int(parent), int(kilobytes) << 10) for pid, parent, kilobytes in rows}


def _from_proc(entry: Path) -> Process | None:
    if not entry.name.isdigit():
        return None
    try:
        # the name before it may hold anything, spaces and brackets too
        fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # just gone
        return None
    return Process(int(fields[1]), int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))


def _show(out: Output, found: list[tuple[Running, Memory | None]], config: Path | None) -> None:
    if out.is_json:
        out.json([_as_json(running, held) for running, held in found])
        return
    if not found:
        what = "running" if config is None else f"serving `{config}`"
        out.words(f"no proxy is {what}; your AI tool starts one (`dynamic-mcp install TOOL` sets that up)")
    for running, held in found:
        entry = running.entry
        clients = ", ".join(filter(None, entry.clients)) or "no client yet"
        out.line(f"{entry.config}", "bold")
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(running.started_at))
        parts = [f"process {running.pid}", f"since {since}", f"for {clients}", f"version {running.version}"]
        if held is not None:
            parts.append(f"{held.proxy // _MIB} MiB, its servers {held.servers // _MIB} MiB")
        out.line(", ".join(parts), indent=2)
        if running.silent_s:
            out.line(f"no sign of life for {running.silent_s:.0f} s: it is stopped or hangs", "yellow", indent=2)
        rows = [_row(group) for group in entry.groups]
        if rows:
            out.table(["GROUP", "TOOLS", "IN FLIGHT", "CALLS", "ERRORS", "STATE"], rows)
        else:
            out.line("no groups yet; `dynamic-mcp add NAME -- COMMAND` adds one", indent=2)
        out.line("")


def _row(group: GroupEntry) -> list[str]:
    tools = "?" if group.tools is None else str(group.tools)
    state = f"{group.state}: {group.reason}" if group.reason else group.state
    return [group.name, tools, str(group.in_flight), str(group.calls), str(group.failures), state]


def _as_json(running: Running, held: Memory | None) -> dict[str, object]:
    found = msgspec.to_builtins(running)
    entry = found.pop("entry")
    return {**found, **entry, "memory": held}
