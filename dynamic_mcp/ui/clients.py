"""Who is connected, and the running copies of servers: of all processes that serve this config, for an operator.

A person sees their own sessions, and the copies that these use; pids, memory and the directories of others are an
operator's to see.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, structs

from dynamic_mcp.config.location import config_key
from dynamic_mcp.identity import Principal
from dynamic_mcp.observe.proxies import (
    TRANSPORT_NAMES,
    GroupStatus,
    InstanceStatus,
    ProxyRegistry,
    RunningProxy,
    SessionStatus,
)
from dynamic_mcp.proxy.known_clients import find_title
from dynamic_mcp.proxy.status import iterate_groups, read_group, read_session, read_status
from dynamic_mcp.system.processes import (
    MemoryUse,
    measure_memory,
    measure_servers,
    read_processes,
)
from dynamic_mcp.system.text import one_line
from dynamic_mcp.ui.byte_budget import ByteBudget
from dynamic_mcp.ui.now import STATES_IN_WORDS
from dynamic_mcp.ui.rows import fit_rows, read_start
from dynamic_mcp.ui.section import PageSection, PageView, Reply, UiContext, Visit

_LONGEST_NAME = 60
_LONGEST_DIRECTORY = 120
_LONGEST_REASON = 160
_KINDS = {"stdio": "for one AI tool", "daemon": "daemon", "http": "HTTP server", "ui": "`dynamic-mcp ui`"}


class ProxyRow(Struct, frozen=True):
    """A process that serves this config."""

    kind: str
    pid: int
    version: str
    since: float
    sessions: int
    workers: int
    memory: MemoryUse | None
    silent_s: float
    is_this: bool


class SessionRow(Struct, frozen=True):
    """A connected client. `title` is its readable name, and `name` what it calls itself."""

    title: str
    name: str
    version: str
    person: str
    transport: str
    directory: str
    scope: str
    since: float
    calls: int


class CopyRow(Struct, frozen=True):
    """A running copy of a group's server. The pid and the memory are None where they are not known, or not to be."""

    group: str
    person: str
    shared_by: str
    sessions: int
    state: str
    words: str
    reason: str
    calls: int
    failures: int
    in_flight: int
    p50_ms: float | None
    p95_ms: float | None
    pid: int | None
    memory: int | None
    copies: str


class Measured(Struct, frozen=True):
    """The processes of this config, with the memory of each and of the servers by their pids."""

    proxies: tuple[RunningProxy, ...]
    memory: Mapping[int, MemoryUse | None]
    trees: Mapping[int, int]


class ClientsSection(PageSection):
    """Clients and servers as they are at the moment."""

    name = "clients"
    title = "Clients"
    icon = "clients"
    rank = 40

    def __init__(self, context: UiContext) -> None:
        super().__init__(context)
        self._folder = context.state_folder / "running"

    async def show(self, visit: Visit, *rest: str) -> Reply | None:
        if rest:
            return None
        turns = self.context.turns
        own = await self._read_own()
        measured = await turns.run_apart(_measure, self._folder, own, measures=visit.is_operator)
        sessions = [each async for each in turns.split(self._list_sessions(visit, measured))]
        copies = [each async for each in turns.split(self._list_copies(visit, measured))]
        figures = {"sessions": len(sessions), **_sum_up(visit, measured, copies)}
        wanted = visit.query.get("q", "").strip().lower()
        if visit.query.get("show") == "servers":
            return _show_copies(visit, [row for row in copies if wanted in row.group.lower()], figures)
        rows = [_session_row(session) for session in sorted(sessions, key=lambda each: each.since)]
        rows = [row for row in rows if wanted in f"{row.title} {row.name} {row.person} {row.directory}".lower()]
        return _show_sessions(visit, rows, figures)

    def stamp(self, visit: Visit) -> Hashable:
        """Change with the clients here; an operator also sees what other processes write, every few seconds."""
        proxy = self.context.proxy
        clients = tuple(
            (client.id, client.calls)
            for client in proxy.clients
            if visit.is_operator or _owns(visit, client.principal)
        )
        groups = tuple((group.name, group.state, group.calls) for group in proxy.groups)
        written = 0
        if visit.is_operator:
            with contextlib.suppress(OSError):
                written = self._folder.stat().st_mtime_ns
        return clients, groups, written

    # --- sessions --------------------------------------------------------------------------------------

    def _list_sessions(self, visit: Visit, measured: Measured) -> Iterator[SessionStatus]:
        """Yield the sessions that a person may see."""
        if visit.is_operator:
            yield from (session for each in measured.proxies for session in each.status.sessions)
            return
        is_served_alone = not any(_is_this(each) and each.status.workers for each in measured.proxies)
        if is_served_alone:
            yield from (read_session(each) for each in self.context.proxy.clients if _owns(visit, each.principal))
        for proxy in measured.proxies:
            if not (is_served_alone and _is_this(proxy)):
                yield from (
                    each for each in proxy.status.sessions if each.subject and visit.owns(each.issuer, each.subject)
                )

    # --- servers ---------------------------------------------------------------------------------------

    def _list_copies(self, visit: Visit, measured: Measured) -> Iterator[CopyRow]:
        """Yield the copies that a person may see."""
        if visit.is_operator:
            for proxy in measured.proxies:
                for group in proxy.status.groups:
                    for instance in group.instances:
                        yield _copy_row(group, instance, measured.trees)
            return
        for group in self._list_used_groups(visit):
            for instance in group.instances:
                yield _copy_row(group, structs.replace(instance, pid=None), {})

    def _list_used_groups(self, visit: Visit) -> Iterator[GroupStatus]:
        """Yield the groups of this process, with the copies that sessions of this person use and no others."""
        visible = {group.name for group in visit.client.groups}
        for group in [*self.context.proxy.groups]:
            person = group.config.person
            if group.name not in visible or not (person is None or visit.owns(person.issuer, person.subject)):
                continue
            status = read_group(group)  # now, with the instances that are compared here
            used = [any(_owns(visit, user.principal) for user in each.users) for each in group.instances.values()]
            instances = [each for each, is_used in zip(status.instances, used, strict=True) if is_used]
            yield structs.replace(status, instances=instances)

    async def _read_own(self) -> RunningProxy:
        """Return this process as it is now, and not as it has last written."""
        proxy = self.context.proxy
        groups = [each async for each in self.context.turns.split(iterate_groups(proxy))]
        status = read_status(proxy, self.context.config.file, kind="http", groups=groups)
        return RunningProxy(pid=os.getpid(), status=status)


def _show_sessions(visit: Visit, rows: list[SessionRow], figures: Mapping[str, object]) -> PageView:
    shown, steps = fit_rows(rows, read_start(visit.query), _cut_session)
    values = {
        **figures,
        "rows": shown,
        "steps": steps,
        "q": visit.query.get("q", ""),
        "has_persons": any(row.person for row in rows),
        "has_directories": any(row.directory for row in rows),
        "has_scopes": any(row.scope for row in rows),
    }
    return PageView("clients.html", "Clients", values)


def _show_copies(visit: Visit, rows: list[CopyRow], figures: Mapping[str, object]) -> PageView:
    shown, steps = fit_rows(rows, read_start(visit.query), _cut_copy)
    values = {**figures, "rows": shown, "steps": steps, "q": visit.query.get("q", "")}
    return PageView("clients_servers.html", "Running servers", values)


def _sum_up(visit: Visit, measured: Measured, copies: list[CopyRow]) -> Mapping[str, object]:
    """Return what both pages show first."""
    memory = [each for each in measured.memory.values() if each is not None]
    return {
        "copies": len(copies),
        "running": sum(row.state == "connected" for row in copies),
        "own_memory": sum(each.proxy for each in memory) if memory and visit.is_operator else None,
        "servers_memory": sum(each.servers for each in memory) if memory and visit.is_operator else None,
        "proxies": [_proxy_row(each, measured) for each in measured.proxies] if visit.is_operator else [],
    }


def _owns(visit: Visit, principal: Principal) -> bool:
    return visit.owns(principal.issuer, principal.subject)


def _measure(folder: Path, own: RunningProxy, *, measures: bool) -> Measured:
    """Return the processes that serve the config of this one, measured if that is wanted. In a thread."""
    registry = ProxyRegistry(folder)
    config = config_key(own.status.config)
    listed = [each for each in registry.list_proxies() if config_key(each.status.config) == config]
    this = next((each for each in listed if _is_this(each)), None)
    if this is None:
        listed.insert(0, own)
    elif not this.status.workers:
        fresh = structs.replace(
            this.status, sessions=own.status.sessions, groups=own.status.groups, clients=own.status.clients
        )
        listed[listed.index(this)] = structs.replace(this, status=fresh)
    table = read_processes() if measures else {}
    trees: dict[int, int] = {}
    memory: dict[int, MemoryUse | None] = {}
    for each in listed:
        servers = (instance.pid for group in each.status.groups for instance in group.instances)
        trees |= measure_servers(each.pid, servers, table)
        memory[each.pid] = measure_memory(each.pid, table, [worker.pid for worker in each.status.workers])
    return Measured(tuple(listed), memory, trees)


def _is_this(proxy: RunningProxy) -> bool:
    own = os.getpid()
    return proxy.pid == own or any(worker.pid == own for worker in proxy.status.workers)


def _proxy_row(proxy: RunningProxy, measured: Measured) -> ProxyRow:
    status = proxy.status
    return ProxyRow(
        _KINDS.get(status.kind, status.kind),
        proxy.pid,
        proxy.version,
        proxy.started_at,
        len(status.sessions),
        len(status.workers),
        measured.memory.get(proxy.pid),
        proxy.silent_s,
        _is_this(proxy),
    )


def _session_row(session: SessionStatus) -> SessionRow:
    title = find_title(session.client) or session.title or session.client or "a client without a name"
    scope = ", ".join(
        filter(None, [session.profile and f"profile {session.profile}", session.only and f"only {session.only}"])
    )
    return SessionRow(
        title,
        session.client if session.client != title else "",
        session.version,
        session.subject,
        TRANSPORT_NAMES.get(session.transport, session.transport),
        session.directory,
        scope,
        session.since,
        session.calls,
    )


def _copy_row(group: GroupStatus, instance: InstanceStatus, trees: Mapping[int, int]) -> CopyRow:
    name, _, version = instance.shared_by.rpartition(" ")
    title = find_title(name)
    shared_by = f"{title} {version}" if title else instance.shared_by
    shared_by = "one session alone" if instance.is_exclusive else shared_by
    return CopyRow(
        group.name,
        group.person,
        shared_by,
        len(instance.clients),
        instance.state,
        STATES_IN_WORDS.get(instance.state, instance.state),
        instance.reason,
        instance.calls,
        instance.failures,
        instance.in_flight,
        instance.p50_ms,
        instance.p95_ms,
        instance.pid,
        None if instance.pid is None else trees.get(instance.pid),
        group.copies if len(group.instances) > 1 else "",
    )


def _cut_session(row: SessionRow, space: ByteBudget) -> SessionRow:
    return structs.replace(
        row,
        title=_cut(row.title, space),
        name=_cut(row.name, space),
        version=_cut(row.version, space),
        person=_cut(row.person, space),
        directory=_cut(row.directory, space, _LONGEST_DIRECTORY),
        scope=_cut(row.scope, space),
    )


def _cut_copy(row: CopyRow, space: ByteBudget) -> CopyRow:
    return structs.replace(
        row,
        person=_cut(row.person, space),
        shared_by=_cut(row.shared_by, space),
        reason=_cut(row.reason, space, _LONGEST_REASON),
        copies=_cut(row.copies, space, _LONGEST_REASON),
    )


def _cut(text: str, space: ByteBudget, longest: int = _LONGEST_NAME) -> str:
    return space.take(one_line(text, longest), longest)[0]
