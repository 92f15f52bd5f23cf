"""The running proxies: what each of them records about itself, and the memory that the system reports."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.process_table import Memory, measure_memory, read_processes
from dynamic_mcp.observe.proxies import GroupStatus, ProxyRegistry, RunningProxy
from dynamic_mcp.system import paths

_EVERY_S = 1.0
_MIB = 1 << 20


def show_status(this: Invocation, *, is_watching: bool) -> int:
    """Print the running proxies, every second while watching; return the exit code."""
    registry = ProxyRegistry(paths.state_dir() / "running")
    config = this.explicit_path()
    while True:
        running = [each for each in registry.list_proxies() if config is None or Path(each.status.config) == config]
        table = read_processes()
        if is_watching:
            this.out.clear()
        _show(this.out, [(each, measure_memory(each.pid, table)) for each in running], config)
        if not is_watching:
            return 0
        time.sleep(_EVERY_S)


def _show(out: Output, proxies: list[tuple[RunningProxy, Memory | None]], config: Path | None) -> None:
    if out.is_json:
        out.print_json([_to_json(running, memory) for running, memory in proxies])
        return
    if not proxies:
        what = "running" if config is None else f"serving `{config}`"
        out.say(f"no proxy is {what}; your AI tool starts one (`dynamic-mcp install TOOL` sets that up)")
    for running, memory in proxies:
        entry = running.status
        clients = ", ".join(filter(None, entry.clients)) or "no client yet"
        out.print_line(f"{entry.config}", "bold")
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(running.started_at))
        parts = [f"process {running.pid}", f"since {since}", f"for {clients}", f"version {running.version}"]
        if memory is not None:
            parts.append(f"{memory.proxy // _MIB} MiB, its servers {memory.servers // _MIB} MiB")
        out.print_line(", ".join(parts), indent=2)
        if running.silent_s:
            out.print_line(
                f"no sign of life for {running.silent_s:.0f} s: it is stopped or hangs", "yellow", indent=2
            )
        rows = [_row(group) for group in entry.groups]
        if rows:
            out.print_table(["GROUP", "TOOLS", "IN FLIGHT", "CALLS", "ERRORS", "STATE"], rows)
        else:
            out.print_line("no groups yet; `dynamic-mcp add NAME -- COMMAND` adds one", indent=2)
        out.print_line("")


def _row(group: GroupStatus) -> list[str]:
    tools = "?" if group.tools is None else str(group.tools)
    state = f"{group.state}: {group.reason}" if group.reason else group.state
    return [group.name, tools, str(group.in_flight), str(group.calls), str(group.failures), state]


def _to_json(running: RunningProxy, memory: Memory | None) -> dict[str, object]:
    fields = msgspec.to_builtins(running)
    entry = fields.pop("entry")
    return {**fields, **entry, "memory": memory}
