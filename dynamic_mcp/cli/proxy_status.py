"""The `status` command: the running proxies, their published status, and their memory use."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import NARROW, Output
from dynamic_mcp.config.location import config_key
from dynamic_mcp.features.table import FEATURES
from dynamic_mcp.observe.proxies import (
    NO_SESSION,
    TRANSPORT_NAMES,
    GroupStatus,
    InstanceStatus,
    ProxyRegistry,
    RunningProxy,
    SessionStatus,
    StatusPart,
)
from dynamic_mcp.system import paths
from dynamic_mcp.system.processes import (
    MemoryUse,
    ProcessInfo,
    measure_memory,
    measure_servers,
    read_processes,
)
from dynamic_mcp.system.text import one_line, pluralize

_EVERY_S = 1.0
# Proxies publish every two seconds, so a rate since the last look would be 0 every other time.
WINDOW_S = 10.0
# A group of one process of a proxy: its pid, its start time, and the name of the group.
_GroupKey = tuple[int, float, str]
_MIB = 1 << 20
_COLUMNS = ("GROUP", "TOOLS", "CALLS", "CALLS/S", "ERRORS", "P50", "P95", "SESSIONS", "MEMORY", "PID", "STATE")
# The columns to drop first on a narrow terminal.
_DISPENSABLE = ("PID", "TOOLS", "P50", "SESSIONS", "CALLS/S")
_GAP = 2
# Over HTTP there may be a thousand; `--json` has them all.
_MOST_SESSIONS = 50
_MOST_OF_PERSONS = 50
_LONGEST_PERSON = 40
_KINDS = {"daemon": "daemon", "ui": "page"}
_Row = Mapping[str, str]


def show_status(context: Invocation, *, is_watching: bool) -> int:
    """Print the running proxies, every second while watching; return the exit code."""
    registry = ProxyRegistry(paths.state_dir() / "running")
    config = context.explicit_path()
    rates = CallRates() if is_watching else None
    while True:
        wanted = None if config is None else config_key(config)
        running = [each for each in registry.list_proxies() if wanted in (None, config_key(each.status.config))]
        table = read_processes()
        proxies = [_measure(each, table) for each in running]
        if rates is None:
            _show(context.out, proxies, config)
            return 0
        rates.note(running, time.monotonic())
        with context.out.repaint():
            _show(context.out, proxies, config, rates)
        time.sleep(_EVERY_S)


def _measure(running: RunningProxy, table: Mapping[int, ProcessInfo]) -> _MeasuredProxy:
    servers = (each.pid for group in running.status.groups for each in group.instances)
    workers = [each.pid for each in running.status.workers]
    return _MeasuredProxy(
        running, measure_memory(running.pid, table, workers), measure_servers(running.pid, servers, table)
    )


def _show(out: Output, proxies: list[_MeasuredProxy], config: Path | None, rates: CallRates | None = None) -> None:
    services = {proxy.running.pid: [each.pid for each in proxy.running.status.workers] for proxy in proxies}
    parts: list[StatusPart] = [each.load(each.status).read_status(services) for each in FEATURES if each.status]
    if out.is_json:
        out.print_json([_to_json(proxy, parts) for proxy in proxies])
        return
    if not proxies:
        what = "is not running" if config is None else f"is not serving `{config}`"
        hint = "restart the tool, then look again; `dynamic-mcp install TOOL` connects one"
        out.say(f"dynamic-mcp {what}; it starts with your AI tool\nhint: {hint}")
    for proxy in proxies:
        _show_proxy(out, proxy, partial(_format_rate, rates, proxy.running))
    for note in (part.note for part in parts if part.note):
        out.say(note, "yellow")


def _format_rate(rates: CallRates | None, running: RunningProxy, group: str) -> str:
    if rates is None:
        return ""
    rate = rates.rate(running, group)
    return "?" if rate is None else f"{rate:.1f}"


def _to_json(proxy: _MeasuredProxy, parts: Iterable[StatusPart]) -> dict[str, object]:
    status = proxy.running.status
    fields = msgspec.to_builtins(proxy.running)
    del fields["entry"]
    groups = [
        {
            **msgspec.to_builtins(group),
            "instances": [
                {
                    **msgspec.to_builtins(each),
                    "audience": _describe_audience(each),
                    "memory": proxy.memory_of(each),
                }
                for each in group.instances
            ],
        }
        for group in status.groups
    ]
    more = {name: value for part in parts for name, value in part.members[proxy.running.pid].items()}
    return {**fields, **msgspec.to_builtins(status), "groups": groups, "memory": proxy.memory, **more}


class CallRates:
    """The call counters within the window, by group."""

    def __init__(self) -> None:
        self._samples: dict[_GroupKey, deque[tuple[float, int]]] = {}

    def note(self, proxies: Sequence[RunningProxy], now: float) -> None:
        """Record the counters at a time in monotonic seconds; drop groups that no longer exist."""
        before, self._samples = self._samples, {}
        for running in proxies:
            for group in running.status.groups:
                key = (running.pid, running.started_at, group.name)
                samples = before.get(key, deque())
                if samples and samples[-1][1] > group.calls:  # the group has restarted
                    samples.clear()
                samples.append((now, group.calls))
                while len(samples) > 1 and samples[1][0] <= now - WINDOW_S:
                    samples.popleft()
                self._samples[key] = samples

    def rate(self, running: RunningProxy, group: str) -> float | None:
        """Return the calls per second of a group; None before the second observation."""
        samples = self._samples.get((running.pid, running.started_at, group), deque())
        if len(samples) < 2:
            return None
        (began, first), (ended, last) = samples[0], samples[-1]
        return (last - first) / (ended - began) if ended > began else None


class _MeasuredProxy(Struct, frozen=True):
    """A running proxy with its memory, and that of each server process and its children by pid, in bytes."""

    running: RunningProxy
    memory: MemoryUse | None
    trees: Mapping[int, int]

    def memory_of(self, *instances: InstanceStatus) -> int | None:
        """Return the memory of the processes of these instances; None if none of them has one."""
        sizes = [self.trees[each.pid] for each in instances if each.pid is not None and each.pid in self.trees]
        return sum(sizes) if sizes else None


def _show_proxy(out: Output, proxy: _MeasuredProxy, rate_of: Callable[[str], str]) -> None:
    """Print a proxy as text; `rate_of` returns the formatted calls per second of a group, or an empty string."""
    running, status = proxy.running, proxy.running.status
    out.print_line(status.config, "bold")
    out.print_line(", ".join(_headline(proxy)), indent=2)
    if status.url:
        out.print_line(f"HTTP at {status.url}", indent=2)
    if status.metrics:
        out.print_line(f"metrics at {status.metrics}", indent=2)
    if status.socket:
        out.print_line(f"socket {status.socket}", indent=2)
    if status.config_error:
        since, of = _format_time(status.config_error_since), _format_time(status.config_since)
        out.print_line(f"the file on disk has been refused since {since}: {status.config_error}", "red", indent=2)
        out.print_line(f"its version of {of} goes on running", "red", indent=2)
    if running.silent_s:
        out.print_line(f"no sign of life for {running.silent_s:.0f} s: it is stopped or hangs", "yellow", indent=2)
    if _is_shared(running):
        _show_sessions(out, status.sessions)
    if status.groups:
        _show_groups(out, proxy, rate_of)
    else:
        out.print_line("no groups yet; `dynamic-mcp add NAME -- COMMAND` adds one", indent=2)
    out.print_line("")


def _describe_audience(instance: InstanceStatus) -> str:
    """Return the clients of an instance: `claude-code 2.1, 3 sessions`, or `cursor 1.0, 1 session, not shared`."""
    parts = [instance.shared_by, pluralize(len(instance.clients), "session")]
    return ", ".join(filter(None, [*parts, "not shared" if instance.is_exclusive else ""]))


def _is_shared(running: RunningProxy) -> bool:
    return running.status.kind in ("daemon", "http") or len(running.status.sessions) > 1


def _headline(proxy: _MeasuredProxy) -> list[str]:
    running, status, memory = proxy.running, proxy.running.status, proxy.memory
    parts = [f"process {running.pid}", f"since {_format_time(running.started_at)}"]
    if status.kind != "stdio":
        parts.insert(0, _KINDS.get(status.kind, "HTTP server"))
    if not _is_shared(running):
        clients = [f"{_name(each)} ({pluralize(each.calls, 'call')})" for each in status.sessions] or status.clients
        parts.append(f"for {', '.join(filter(None, clients)) or 'no client yet'}")
        parts += [f"profile {each.profile}" for each in status.sessions if each.profile]
    if status.workers:
        parts.append(pluralize(len(status.workers), "worker"))
    parts.append(f"version {running.version}")
    if memory is not None:
        parts.append(f"{_format_size(memory.proxy)}, its servers {_format_size(memory.servers)}")
    return parts


def _show_sessions(out: Output, sessions: Sequence[SessionStatus]) -> None:
    if not sessions:
        out.print_line("no open sessions", indent=2)
        return
    has_several = len({each.transport for each in sessions}) > 1
    rows = [
        {
            "SESSION": _name(each),
            "WHO": each.subject,
            "OVER": TRANSPORT_NAMES.get(each.transport, each.transport) if has_several else "",
            "SINCE": _format_time(each.since),
            "CALLS": str(each.calls),
            "ONLY": each.only,
            "PROFILE": each.profile,
            "DIRECTORY": each.directory,
        }
        for each in sessions[:_MOST_SESSIONS]
    ]
    _print_rows(out, ("SESSION", "WHO", "OVER", "SINCE", "CALLS", "ONLY", "PROFILE", "DIRECTORY"), rows)
    if len(sessions) > _MOST_SESSIONS:
        out.print_line(f"and {len(sessions) - _MOST_SESSIONS} more", indent=2)
    out.print_line("")


def _show_groups(out: Output, proxy: _MeasuredProxy, rate_of: Callable[[str], str]) -> None:
    is_shared = _is_shared(proxy.running)
    rows: list[_Row] = []
    reasons: list[str] = []
    copies: list[str] = []
    confined: list[str] = []
    groups = proxy.running.status.groups
    personal = [group for group in groups if group.person]
    for group in [*(each for each in groups if not each.person), *personal[:_MOST_OF_PERSONS]]:
        row = _group_row(proxy, group, is_shared=is_shared)
        rows.append({**row, "CALLS/S": rate_of(group.name)})
        several = sorted(group.instances, key=_order) if len(group.instances) > 1 else []
        rows += [_instance_row(proxy, each) for each in several]
        label = _label(group)
        reasons += [f"{label}, {each.shared_by}: {each.reason}" for each in several if each.reason]
        if group.copies:
            count = f"{len(several)} copies" if several else "another copy"
            copies.append(f"{label}: {count}: {group.copies}")
        if group.reason and not several:
            reasons.append(f"{label}: {group.reason}")
        if group.confined:
            confined.append(f"{group.name}: confined: {group.confined}")
        if group.missing:
            reasons.append(f"{label}: {group.missing}")
    _print_rows(out, _COLUMNS, rows, _DISPENSABLE)
    if len(personal) > _MOST_OF_PERSONS:
        out.print_line(f"and {len(personal) - _MOST_OF_PERSONS} more with personal logins", indent=2)
    for reason in dict.fromkeys(reasons):  # copies of one server often fail alike
        out.print_line(reason, "yellow", indent=2)
    for line in dict.fromkeys((*copies, *confined)):
        out.print_line(line, indent=2)


def _order(instance: InstanceStatus) -> tuple[str, int]:
    return instance.shared_by, instance.pid or 0


def _label(group: GroupStatus) -> str:
    """Return the name of a group, with the user of a personal login."""
    return f"{group.name} ({one_line(group.person, _LONGEST_PERSON)})" if group.person else group.name


def _group_row(proxy: _MeasuredProxy, group: GroupStatus, *, is_shared: bool) -> _Row:
    """Return the row of a group, with the details of its instance if it has just one, else with sums."""
    instances = group.instances
    row = {
        "GROUP": _label(group),
        "TOOLS": _format_tools(group),
        "CALLS": str(group.calls),
        "ERRORS": str(group.failures),
        "SESSIONS": str(sum(len(each.clients) for each in instances)) if is_shared else "",
        "MEMORY": _format_size(proxy.memory_of(*instances)),
    }
    if len(instances) == 1:
        is_exclusive = is_shared and instances[0].is_exclusive
        row |= _measurements(instances[0])
    else:
        is_exclusive = False
    return {**row, "STATE": _format_state(group.state, group.in_flight, is_exclusive=is_exclusive)}


def _format_tools(group: GroupStatus) -> str:
    if group.tools is None:
        return "" if group.state == NO_SESSION else "?"
    return str(group.tools)


def _instance_row(proxy: _MeasuredProxy, instance: InstanceStatus) -> _Row:
    return {
        "GROUP": f"  {instance.shared_by}",
        "CALLS": str(instance.calls),
        "ERRORS": str(instance.failures),
        "SESSIONS": str(len(instance.clients)),
        "MEMORY": _format_size(proxy.memory_of(instance)),
        "STATE": _format_state(instance.state, instance.in_flight, is_exclusive=instance.is_exclusive),
        **_measurements(instance),
    }


def _measurements(instance: InstanceStatus) -> _Row:
    return {
        "P50": _format_duration(instance.p50_ms),
        "P95": _format_duration(instance.p95_ms),
        "PID": "" if instance.pid is None else str(instance.pid),
    }


def _print_rows(out: Output, columns: Sequence[str], rows: Sequence[_Row], dispensable: Sequence[str] = ()) -> None:
    """Print a table without empty columns, and without dispensable ones if it is too wide."""
    shown = [column for column in columns if any(row.get(column) for row in rows)]
    width = out.console().width
    for column in dispensable:
        if NARROW <= width < _width(shown, rows) and column in shown:
            shown.remove(column)
    out.print_table(shown, [[row.get(column, "") for column in shown] for row in rows])


def _width(columns: Sequence[str], rows: Sequence[_Row]) -> int:
    widths = [max(len(column), *(len(row.get(column, "")) for row in rows)) for column in columns]
    return sum(widths) + _GAP * (len(columns) - 1)


def _name(session: SessionStatus) -> str:
    return f"{session.client} {session.version}".strip()


def _format_state(state: str, in_flight: int, *, is_exclusive: bool) -> str:
    notes = [f"{in_flight} in flight" if in_flight else "", "not shared" if is_exclusive else ""]
    return ", ".join(filter(None, [state, *notes]))


def _format_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _format_size(size: int | None) -> str:
    return "" if size is None else f"{size // _MIB} MiB"


def _format_duration(milliseconds: float | None) -> str:
    match milliseconds:
        case None:
            return ""
        case _ if milliseconds < 9.95:
            return f"{milliseconds:.1f} ms"
        case _ if milliseconds < 999.5:
            return f"{milliseconds:.0f} ms"
        case _:
            return f"{milliseconds / 1000:.1f} s"
