"""What can be told of servers by connecting to them, each at the same time as the others."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime

from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.doctor.findings import Examined, Finding, Level
from dynamic_mcp.doctor.schemas import bad_schemas
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.groups.catalog_store import StoredCatalog, changed_definitions
from dynamic_mcp.groups.instance import OpenLink
from dynamic_mcp.mcp import wire
from dynamic_mcp.observe import log_output
from dynamic_mcp.proxy.client_group import ClientGroup
from dynamic_mcp.system.clock import Clock, LoopClock
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.upstream.handshake import ClientHello, ServerHello
from dynamic_mcp.upstream.link import Link, Listener
from dynamic_mcp.upstream.open import open_link

SLOW_S = 10.0
STDERR_LINES = 20
_SHOWN_CHANGES = 5


class Doctor:
    """Examines groups of a proxy whose opener goes through `around`, and overhears what servers say."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._opener: OpenLink = open_link
        self._clock = clock or LoopClock()
        self._welcomes: dict[str, ServerHello] = {}
        self._took: dict[str, float] = {}
        self._overheard = _Overheard()

    def around(self, opener: OpenLink) -> OpenLink:
        """Return what opens links as `opener` does, while this doctor looks on."""
        self._opener = opener
        return self._open

    async def _open(self, config: GroupConfig, listener: Listener, hello: ClientHello) -> tuple[Link, ServerHello]:
        """Open a link as ever, and remember how that went."""
        began = self._clock.now()
        try:
            link, welcome = await self._opener(config, listener, hello)
        finally:
            self._took[config.name] = self._clock.now() - began
        self._welcomes[config.name] = welcome
        return link, welcome

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Overhear what servers write outside the protocol."""
        with self._overheard.attached():
            yield

    async def examine(self, group: ClientGroup, kept: StoredCatalog | None) -> Examined:
        """Connect to a group and look at what it offers; `kept` is what was known of it before."""
        kinds = [kind for kind in ListKind if group.offers(kind.capability)]
        try:
            catalog = await group.catalog(kinds)
            ping_s = await self._pinged(group)
        except DynamicMcpError as exc:
            return self._failed(group, exc)
        found = [
            *self._speed(group),
            *_complaints(group, kinds),
            *bad_schemas(group.name, catalog.tools),
            *_changes(group.name, catalog, kept),
            *self._skipped(group.name),
        ]
        return self._examined(group, catalog, ping_s, found)

    async def _pinged(self, group: ClientGroup) -> float:
        began = self._clock.now()
        await group.ping()
        return self._clock.now() - began

    def _examined(self, group: ClientGroup, catalog: Catalog, ping_s: float, found: list[Finding]) -> Examined:
        welcome = self._welcomes[group.name].result
        info = [wire.text(wire.member(welcome.get("serverInfo", wire.EMPTY_OBJECT), part)) for part in _INFO]
        counts = {name: len(catalog.entries(kind)) for name, kind in _COUNTED.items() if group.offers(name)}
        return Examined(
            group=group.name,
            is_up=True,
            connect_s=round(self._took[group.name], 3),
            ping_s=round(ping_s, 4),
            protocol=wire.text(welcome.get("protocolVersion")),
            server=" ".join(filter(None, info)) or None,
            capabilities=list(catalog.capabilities),
            stderr=self._overheard.said(group.name),
            findings=found,
            **counts,
        )

    def _failed(self, group: ClientGroup, error: DynamicMcpError) -> Examined:
        hint = error.hint
        if group.name not in self._welcomes and self._took.get(group.name, 0.0) >= group.config.timeouts.connect_s:
            hint = "is it waiting for a login or a download? `timeout.connect` gives it more time"
        what = getattr(error, "reason", error.message)
        found = [Finding(Level.ERROR, group.name, what, hint, error.exit_code), *self._skipped(group.name)]
        return Examined(group=group.name, is_up=False, stderr=self._overheard.said(group.name), findings=found)

    def _speed(self, group: ClientGroup) -> Iterator[Finding]:
        took_s = self._took[group.name]
        if took_s > SLOW_S:
            hint = "`connect: eager` starts it early, `idle_timeout: never` keeps it running"
            yield Finding(Level.WARNING, group.name, f"takes {took_s:.0f} s to start", hint)

    def _skipped(self, group: str) -> Iterator[Finding]:
        for count, line in self._overheard.skipped(group):
            hint = "stdout is for MCP messages only; its author should log to stderr"
            times = f" ({count} lines)" if count > 1 else ""
            yield Finding(Level.WARNING, group, f"writes non-MCP output to stdout{times}: {line}", hint)


_INFO = ("name", "version")
_COUNTED = {"tools": ListKind.TOOLS, "resources": ListKind.RESOURCES, "prompts": ListKind.PROMPTS}


class _Overheard(logging.Handler):
    """Keeps what servers say on stderr, and what on stdout is no message, by the group that it comes from."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, deque[str]] = {}
        self._skipped: dict[str, tuple[int, str]] = {}

    def said(self, group: str) -> list[str]:
        """Return the last lines of a group's stderr."""
        return list(self._said.get(group, ()))

    def skipped(self, group: str) -> list[tuple[int, str]]:
        """Return how many lines of stdout were no message, and one of them; nothing where there were none."""
        return [self._skipped[group]] if group in self._skipped else []

    @contextlib.contextmanager
    def attached(self) -> Iterator[None]:
        """Listen."""
        logs = {
            logging.getLogger(name): logging.getLogger(name).level for name in (log_output.STDERR, log_output.STDOUT)
        }
        for log in logs:
            log.addHandler(self)
            log.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            for log, level in logs.items():
                log.removeHandler(self)
                log.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        """Take one line."""
        group = log_output.group_of(record)
        if group is None:
            return
        match record.args:
            case (_, str(line)):
                self._said.setdefault(group, deque(maxlen=STDERR_LINES)).append(line)
            case (_, int(count), str(line)):
                self._skipped[group] = (count, line)


def _complaints(group: ClientGroup, kinds: list[ListKind]) -> Iterator[Finding]:
    complaint = group.complaint(kinds)
    if complaint:
        yield Finding(Level.WARNING, group.name, complaint, "the rest of the list was read")


def _changes(group: str, catalog: Catalog, kept: StoredCatalog | None) -> Iterator[Finding]:
    """Say which definitions are others than they were: a model may be told something new under an old name."""
    hint = f"review them with `{format_command('tools', group, '--detail', 'full')}`"
    if kept is None:
        return
    if changed := changed_definitions(kept.catalog, catalog):
        since = datetime.fromtimestamp(kept.read_at, UTC).date()
        yield Finding(Level.WARNING, group, f"tool definitions changed since {since}: {_named(changed)}", hint)
    if kept.changes:
        latest = kept.changes[-1].partition(" ")[0]
        when = datetime.fromtimestamp(float(latest), UTC).date()
        names = list(dict.fromkeys(change.partition(" ")[2] for change in kept.changes))
        yield Finding(Level.NOTE, group, f"tool definitions changed before, last on {when}: {_named(names)}", hint)


def _named(tools: list[str]) -> str:
    shown = ", ".join(f"`{tool}`" for tool in tools[:_SHOWN_CHANGES])
    return f"{shown} and {len(tools) - _SHOWN_CHANGES} more" if len(tools) > _SHOWN_CHANGES else shown
