"""How a running proxy looks on a terminal: what it is, its sessions, and its groups with their instances.

Most groups have one instance, which is part of the group's row; only when there are several is each a row of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from dynamic_mcp.cli.output import NARROW, Output
from dynamic_mcp.cli.process_table import Memory
from dynamic_mcp.observe.proxies import NO_SESSION, GroupStatus, InstanceStatus, RunningProxy, SessionStatus
from dynamic_mcp.system.text import one_line, pluralize

_MIB = 1 << 20
_COLUMNS = ("GROUP", "TOOLS", "CALLS", "CALLS/S", "ERRORS", "P50", "P95", "SESSIONS", "MEMORY", "PID", "STATE")
# The columns that go first when the terminal is too narrow for all of them.
_DISPENSABLE = ("PID", "TOOLS", "P50", "SESSIONS", "CALLS/S")
_GAP = 2
# Over HTTP there may be a thousand; `--json` has them all.
_MOST_SESSIONS = 50
_MOST_OF_PERSONS = 50
_LONGEST_PERSON = 40
_TRANSPORTS = {"stdio": "stdio", "socket": "window", "http": "HTTP", "sse": "HTTP+SSE"}

Row = Mapping[str, str]


class MeasuredProxy(Struct, frozen=True):
    """A running proxy with its memory, and that of each server process and its children by pid, in bytes."""

    running: RunningProxy
    memory: Memory | None
    trees: Mapping[int, int]

    def memory_of(self, *instances: InstanceStatus) -> int | None:
        """Return the memory of the processes of these instances; None if none of them has one."""
        sizes = [self.trees[each.pid] for each in instances if each.pid is not None and each.pid in self.trees]
        return sum(sizes) if sizes else None


def show_proxy(out: Output, proxy: MeasuredProxy, rate_of: Callable[[str], str]) -> None:
    """Print a proxy for a person; `rate_of` returns how many calls a second a group has had, or nothing."""
    running, status = proxy.running, proxy.running.status
    out.print_line(status.config, "bold")
    out.print_line(", ".join(_headline(proxy)), indent=2)
    if status.url:
        out.print_line(f"HTTP at {status.url}", indent=2)
    if status.metrics:
        out.print_line(f"metrics at {status.metrics}", indent=2)
    if status.socket:
        out.print_line(f"socket {status.socket}", indent=2)
    if running.silent_s:
        out.print_line(f"no sign of life for {running.silent_s:.0f} s: it is stopped or hangs", "yellow", indent=2)
    if _is_shared(running):
        _show_sessions(out, status.sessions)
    if status.groups:
        _show_groups(out, proxy, rate_of)
    else:
        out.print_line("no groups yet; `dynamic-mcp add NAME -- COMMAND` adds one", indent=2)
    out.print_line("")


def describe_audience(instance: InstanceStatus) -> str:
    """Say who shares an instance, such as `claude-code 2.1, 3 sessions` or `cursor 1.0, 1 session, not shared`."""
    parts = [instance.shared_by, pluralize(len(instance.clients), "session")]
    return ", ".join(filter(None, [*parts, "not shared" if instance.is_exclusive else ""]))


def _is_shared(running: RunningProxy) -> bool:
    return running.status.kind in ("daemon", "http") or len(running.status.sessions) > 1


def _headline(proxy: MeasuredProxy) -> list[str]:
    running, status, memory = proxy.running, proxy.running.status, proxy.memory
    parts = [f"process {running.pid}", f"since {_format_time(running.started_at)}"]
    if status.kind != "stdio":
        parts.insert(0, "daemon" if status.kind == "daemon" else "HTTP server")
    if not _is_shared(running):
        clients = [f"{_name(each)} ({pluralize(each.calls, 'call')})" for each in status.sessions] or status.clients
        parts.append(f"for {', '.join(filter(None, clients)) or 'no client yet'}")
        parts += [f"profile {each.profile}" for each in status.sessions if each.profile]
    parts.append(f"version {running.version}")
    if memory is not None:
        parts.append(f"{_format_size(memory.proxy)}, its servers {_format_size(memory.servers)}")
    return parts


def _show_sessions(out: Output, sessions: Sequence[SessionStatus]) -> None:
    if not sessions:
        out.print_line("no sessions yet", indent=2)
        return
    has_several = len({each.transport for each in sessions}) > 1
    rows = [
        {
            "SESSION": _name(each),
            "WHO": each.subject,
            "OVER": _TRANSPORTS.get(each.transport, each.transport) if has_several else "",
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


def _show_groups(out: Output, proxy: MeasuredProxy, rate_of: Callable[[str], str]) -> None:
    is_shared = _is_shared(proxy.running)
    rows: list[Row] = []
    reasons: list[str] = []
    copies: list[str] = []
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
        if group.missing:
            reasons.append(f"{label}: {group.missing}")
    _print_rows(out, _COLUMNS, rows, _DISPENSABLE)
    if len(personal) > _MOST_OF_PERSONS:
        out.print_line(f"and {len(personal) - _MOST_OF_PERSONS} more of persons", indent=2)
    for reason in dict.fromkeys(reasons):  # copies of one server often fail alike
        out.print_line(reason, "yellow", indent=2)
    for line in dict.fromkeys(copies):
        out.print_line(line, indent=2)


def _order(instance: InstanceStatus) -> tuple[str, int]:
    return instance.shared_by, instance.pid or 0


def _label(group: GroupStatus) -> str:
    """Return the name of a group, and of the person whose login it has."""
    return f"{group.name} ({one_line(group.person, _LONGEST_PERSON)})" if group.person else group.name


def _group_row(proxy: MeasuredProxy, group: GroupStatus, *, is_shared: bool) -> Row:
    """Return the row of a group: with what its instance is, if it has just one, else with the sums."""
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


def _instance_row(proxy: MeasuredProxy, instance: InstanceStatus) -> Row:
    return {
        "GROUP": f"  {instance.shared_by}",
        "CALLS": str(instance.calls),
        "ERRORS": str(instance.failures),
        "SESSIONS": str(len(instance.clients)),
        "MEMORY": _format_size(proxy.memory_of(instance)),
        "STATE": _format_state(instance.state, instance.in_flight, is_exclusive=instance.is_exclusive),
        **_measurements(instance),
    }


def _measurements(instance: InstanceStatus) -> Row:
    return {
        "P50": _format_duration(instance.p50_ms),
        "P95": _format_duration(instance.p95_ms),
        "PID": "" if instance.pid is None else str(instance.pid),
    }


def _print_rows(out: Output, columns: Sequence[str], rows: Sequence[Row], dispensable: Sequence[str] = ()) -> None:
    """Print a table without the columns that are empty, and without dispensable ones if it is too wide."""
    shown = [column for column in columns if any(row.get(column) for row in rows)]
    width = out.console().width
    for column in dispensable:
        if NARROW <= width < _width(shown, rows) and column in shown:
            shown.remove(column)
    out.print_table(shown, [[row.get(column, "") for column in shown] for row in rows])


def _width(columns: Sequence[str], rows: Sequence[Row]) -> int:
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
