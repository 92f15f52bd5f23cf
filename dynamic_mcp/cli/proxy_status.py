"""The running proxies: what each of them records about itself, and the memory that the system reports."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from dynamic_mcp.cli.call_rates import CallRates
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.process_table import Process, list_family, measure_memory, measure_tree, read_processes
from dynamic_mcp.cli.status_view import MeasuredProxy, describe_audience, show_proxy
from dynamic_mcp.features.table import FEATURES
from dynamic_mcp.observe.proxies import ProxyRegistry, RunningProxy, StatusPart
from dynamic_mcp.system import paths

_EVERY_S = 1.0


def show_status(this: Invocation, *, is_watching: bool) -> int:
    """Print the running proxies, every second while watching; return the exit code."""
    registry = ProxyRegistry(paths.state_dir() / "running")
    config = this.explicit_path()
    rates = CallRates() if is_watching else None
    while True:
        running = [each for each in registry.list_proxies() if config is None or Path(each.status.config) == config]
        table = read_processes()
        proxies = [_measure(each, table) for each in running]
        if rates is None:
            _show(this.out, proxies, config)
            return 0
        rates.note(running, time.monotonic())
        with this.out.repaint():
            _show(this.out, proxies, config, rates)
        time.sleep(_EVERY_S)


def _measure(running: RunningProxy, table: Mapping[int, Process]) -> MeasuredProxy:
    """Measure a proxy and its servers. A pid that is no longer a descendant of the proxy is another's by now."""
    family = list_family(running.pid, table)
    pids = [each.pid for group in running.status.groups for each in group.instances if each.pid in family]
    trees = {pid: measure_tree(pid, table) for pid in pids if pid is not None}
    return MeasuredProxy(running, measure_memory(running.pid, table), trees)


def _show(out: Output, proxies: list[MeasuredProxy], config: Path | None, rates: CallRates | None = None) -> None:
    pids = [proxy.running.pid for proxy in proxies]
    parts: list[StatusPart] = [each.load(each.status).read_status(pids) for each in FEATURES if each.status]
    if out.is_json:
        out.print_json([_to_json(proxy, parts) for proxy in proxies])
        return
    if not proxies:
        what = "is not running" if config is None else f"is not serving `{config}`"
        hint = "restart the tool, then look again; `dynamic-mcp install TOOL` connects one"
        out.say(f"dynamic-mcp {what}; it starts with your AI tool\nhint: {hint}")
    for proxy in proxies:
        show_proxy(out, proxy, partial(_format_rate, rates, proxy.running))
    for note in (part.note for part in parts if part.note):
        out.say(note, "yellow")


def _format_rate(rates: CallRates | None, running: RunningProxy, group: str) -> str:
    if rates is None:
        return ""
    rate = rates.rate(running, group)
    return "?" if rate is None else f"{rate:.1f}"


def _to_json(proxy: MeasuredProxy, parts: Iterable[StatusPart]) -> dict[str, object]:
    status = proxy.running.status
    fields = msgspec.to_builtins(proxy.running)
    del fields["entry"]
    groups = [
        {
            **msgspec.to_builtins(group),
            "instances": [
                {
                    **msgspec.to_builtins(each),
                    "audience": describe_audience(each),
                    "memory": proxy.memory_of(each),
                }
                for each in group.instances
            ],
        }
        for group in status.groups
    ]
    more = {name: value for part in parts for name, value in part.members[proxy.running.pid].items()}
    return {**fields, **msgspec.to_builtins(status), "groups": groups, "memory": proxy.memory, **more}
