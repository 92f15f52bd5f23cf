"""Checks servers by connecting to them, all concurrently."""

from __future__ import annotations

import contextlib
import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.doctor.findings import Finding, Level, ServerReport
from dynamic_mcp.errors import DynamicMcpError, TokenNeeded, UpstreamError
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.observe import log_output
from dynamic_mcp.proxy.client_group import ClientGroup
from dynamic_mcp.system.clock import Clock, LoopClock
from dynamic_mcp.tools.schema import find_schema_error
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.handshake import Era, ServerInfo
from dynamic_mcp.upstream.link import LinkOwner
from dynamic_mcp.upstream.open import OpenLink, open_link

SLOW_S = 10.0
STDERR_LINES = 20

# Yields further findings about a group's catalog, besides incomplete lists.
CheckCatalog = Callable[[str, Catalog], Iterable[Finding]]
_LONGEST = 200


class Doctor:
    """Examines the groups of a proxy that opens its links through `wrap_opener`, and records what servers print."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._opener: OpenLink = open_link
        self._clock = clock or LoopClock()
        self._server_hellos: dict[str, ServerInfo] = {}
        self._connect_s: dict[str, float] = {}
        self._output = _OutputRecorder()

    def wrap_opener(self, opener: OpenLink) -> OpenLink:
        """Wrap an opener, to record the handshakes of its links."""
        self._opener = opener
        return self._open

    async def _open(
        self, config: GroupConfig, listener: LinkOwner, hello: ClientInfo, *, lacks: Era | None = None
    ) -> tuple[AnyLink, ServerInfo]:
        """Open a link, and record its duration and the handshake of the server."""
        began = self._clock.now()
        try:
            link, server_hello = await self._opener(config, listener, hello, lacks=lacks)
        finally:
            self._connect_s[config.name] = self._clock.now() - began
        self._server_hellos[config.name] = server_hello
        return link, server_hello

    @contextlib.contextmanager
    def record_output(self) -> Iterator[None]:
        """Record what servers print outside the protocol."""
        with self._output.attach():
            yield

    async def examine(self, group: ClientGroup, check_catalog: CheckCatalog) -> ServerReport:
        """Connect to a group and check its catalog."""
        report = await self._try(group, check_catalog)
        if not report.is_up:
            return report
        server_hello = self._server_hellos[group.name].result
        info = [wire.text(wire.member(server_hello.get("serverInfo", wire.EMPTY_OBJECT), part)) for part in _INFO]
        return replace(
            report,
            connect_s=round(self._connect_s[group.name], 3),
            protocol=wire.text(server_hello.get("protocolVersion")),
            server=" ".join(filter(None, info)) or None,
            stderr=self._output.stderr_lines(group.name),
            findings=[*self._check_speed(group), *report.findings, *self._check_stdout(group.name)],
        )

    async def examine_running(self, group: ClientGroup, check_catalog: CheckCatalog) -> ServerReport:
        """Check the catalog of a group whose server runs in the daemon."""
        report = await self._try(group, check_catalog)
        return replace(report, runs_in_daemon=report.is_up)

    async def _try(self, group: ClientGroup, check_catalog: CheckCatalog) -> ServerReport:
        """Read the catalog of a group and ping it; return the report."""
        kinds = [kind for kind in ListKind if group.offers(kind.capability)]
        try:
            catalog = await group.read_catalog(kinds)
            began = self._clock.now()
            await group.ping()
            ping_s = self._clock.now() - began
        except DynamicMcpError as exc:
            return self._report_failure(group, exc)
        report = ServerReport(
            group=group.name,
            is_up=True,
            ping_s=round(ping_s, 4),
            capabilities=list(catalog.capabilities),
            findings=[*_check_offers(group, kinds, catalog, check_catalog)],
        )
        counts = {name: len(catalog.entries(kind)) for name, kind in _COUNTED.items() if group.offers(name)}
        return replace(report, **counts)

    def _report_failure(self, group: ClientGroup, error: DynamicMcpError) -> ServerReport:
        hint = error.hint
        if isinstance(error, TokenNeeded):  # a person who calls has what we do not have here
            note = Finding(Level.NOTE, group.name, f"is not tried: {error.reason}")
            return ServerReport(group=group.name, is_up=False, findings=[note])
        if (
            group.name not in self._server_hellos
            and self._connect_s.get(group.name, 0.0) >= group.config.timeouts.connect_s
        ):
            hint = "is it waiting for a login or a download? `timeout.connect` gives it more time"
        what = getattr(error, "reason", error.message)
        findings = [Finding(Level.ERROR, group.name, what, hint, error.exit_code), *self._check_stdout(group.name)]
        return ServerReport(
            group=group.name, is_up=False, stderr=self._output.stderr_lines(group.name), findings=findings
        )

    def _check_speed(self, group: ClientGroup) -> Iterator[Finding]:
        connect_s = self._connect_s[group.name]
        if connect_s > SLOW_S:
            hint = "`connect: eager` starts it early, `idle_timeout: never` keeps it running"
            yield Finding(Level.WARNING, group.name, f"takes {connect_s:.0f} s to start", hint)

    def _check_stdout(self, group: str) -> Iterator[Finding]:
        for count, line in self._output.skipped_lines(group):
            hint = "stdout is for MCP messages only; its author should log to stderr"
            times = f" ({count} lines)" if count > 1 else ""
            yield Finding(Level.WARNING, group, f"writes non-MCP output to stdout{times}: {line}", hint)


_INFO = ("name", "version")
_STILL_WORKS = "everything else of the server works; the list is read again from time to time"
_COUNTED = {"tools": ListKind.TOOLS, "resources": ListKind.RESOURCES, "prompts": ListKind.PROMPTS}


class _OutputRecorder(logging.Handler):
    """Keeps the stderr of servers and the non-MCP output on their stdout, by group."""

    def __init__(self) -> None:
        super().__init__()
        self._stderr: dict[str, deque[str]] = {}
        self._skipped: dict[str, tuple[int, str]] = {}

    def stderr_lines(self, group: str) -> list[str]:
        return list(self._stderr.get(group, ()))

    def skipped_lines(self, group: str) -> list[tuple[int, str]]:
        """Return the number of non-MCP lines on stdout and one example; an empty list if there are none."""
        return [self._skipped[group]] if group in self._skipped else []

    @contextlib.contextmanager
    def attach(self) -> Iterator[None]:
        """Record within this context."""
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
        args = record.args if isinstance(record.args, tuple) else ()
        match args:
            case (str(group), str(line)):
                self._stderr.setdefault(group, deque(maxlen=STDERR_LINES)).append(line)
            case (str(group), int(count), str(line)):
                self._skipped[group] = (count, line)


def _check_offers(
    group: ClientGroup, kinds: list[ListKind], catalog: Catalog, check_catalog: CheckCatalog
) -> Iterator[Finding]:
    yield from _check_lists(group, kinds, catalog)
    yield from _check_schemas(group.name, catalog.tools)
    yield from check_catalog(group.name, catalog)


def _check_lists(group: ClientGroup, kinds: list[ListKind], catalog: Catalog) -> Iterator[Finding]:
    for kind in kinds:
        complaint, listing = group.complaint([kind]), catalog.lists.get(kind)
        if not complaint:
            continue
        if listing is None or not listing.has_failed:
            yield Finding(Level.WARNING, group.name, complaint, "the rest of the list was read")
        elif kind is ListKind.TOOLS:
            yield Finding(Level.ERROR, group.name, complaint, _STILL_WORKS, UpstreamError.exit_code)
        else:
            yield Finding(Level.WARNING, group.name, complaint, _STILL_WORKS)


def _check_schemas(group: str, tools: Mapping[str, Raw]) -> Iterator[Finding]:
    """Yield a finding for each invalid schema of a group's tools."""
    for name, tool in tools.items():
        for member in ("inputSchema", "outputSchema"):
            flaw = _find_flaw(wire.members(tool).get(member), is_required=member == "inputSchema")
            if flaw:
                hint = "models may call the tool wrongly; report it to the server's author"
                yield Finding(Level.WARNING, f"{group}.{name}.{member}", flaw, hint)


def _find_flaw(data: Raw | None, *, is_required: bool) -> str:
    if data is None:
        return "is missing; MCP requires one" if is_required else ""
    try:
        schema = json.loads(bytes(data))
    except (ValueError, RecursionError):
        return "cannot be read"
    if not isinstance(schema, dict):
        return "is not an object"
    if schema.get("type") != "object":
        return f"has type `{schema.get('type')}`; MCP requires `object`"
    error = find_schema_error(schema)
    return f"is not valid JSON Schema: {error[:_LONGEST]}" if error else ""
