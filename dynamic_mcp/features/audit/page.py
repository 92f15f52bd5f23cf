"""The section of the page with the calls: the audit log as a table and over time, one call's story, and the log of
the program beside it.

Operators see all lines. Anyone else sees their own, without what rules have refused: it must look like what does not
exist, and the log would tell the two apart.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from urllib.parse import urlencode

from msgspec import Struct, structs

from dynamic_mcp import __version__
from dynamic_mcp.config.location import config_key
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.features.audit import chain
from dynamic_mcp.features.audit.chain import AuditLine
from dynamic_mcp.features.audit.config import Audit
from dynamic_mcp.features.audit.days import StoredLine
from dynamic_mcp.features.audit.export import export
from dynamic_mcp.features.audit.index import AuditIndex
from dynamic_mcp.features.audit.query import CALLS, LineCursor, LineFilter
from dynamic_mcp.features.audit.reader import IndexReader, NotIndexed
from dynamic_mcp.features.audit.story import CallStory, describe_call, describe_row
from dynamic_mcp.features.audit.times import parse_duration, parse_time
from dynamic_mcp.mcp.wire import ABSENT
from dynamic_mcp.observe import log_output
from dynamic_mcp.observe.log_records import Record, find_last
from dynamic_mcp.system import paths
from dynamic_mcp.system.text import one_line
from dynamic_mcp.ui.rendering import draw_bars
from dynamic_mcp.ui.section import PageSection, PageView, Reply, UiContext, Usage, UsageCount, UsagePoint, Visit

T = TypeVar("T")

_ON_A_PAGE = 40
_STEPS = 60
_MOST_EXPORTED = 10_000
_MOST_EXPORTED_BYTES = 16 << 20
_MOST_IN_STORY = 40
_MOST_USED = 8
_MOST_RECORDS, _MOST_AROUND = 100, 20
_LONGEST_TEXTS = 24_000  # of the records on a page, as they are in HTML
_AROUND_S = 2.0
# The first page waits no longer for lines that are new; they are counted the next time.
_USAGE_WITHIN_S = 0.02
_SPANS = {"hour": 3600.0, "day": 86_400.0, "week": 7 * 86_400.0, "month": 30 * 86_400.0}
_SPAN = "day"
# What a person may choose among: the value in the URL, and the words.
EVENTS = {
    "": "calls",
    "*": "everything",
    "approval.*": "approvals",
    "list": "searches and lists",
    "session.*": "connections",
    "auth.*": "logins and refusals",
    "config.*": "config",
}
OUTCOMES = {
    "": "any result",
    "errors": "all errors",
    "denied": "refused",
    "pending": "waits for a person",
    "cancelled": "cancelled",
    "unknown": "unknown",
}
DECISIONS = {"": "any decision", "allow": "allowed", "ask": "asked", "deny": "denied"}
_PATTERNS = ("who", "client", "group", "tool")


def list_sections() -> list[type[PageSection]]:
    """Return the sections of this feature."""
    return [CallsSection]


class Choice(Struct, frozen=True):
    """What of the log a person wants to see: the filters as they are in the URL, and what they mean."""

    texts: Mapping[str, str]
    wanted: LineFilter
    span: str
    is_filtered: bool


class CallsSection(PageSection):
    """The calls of all, or of one person."""

    name = "calls"
    title = "Calls"
    icon = "calls"
    rank = 20

    def __init__(self, context: UiContext) -> None:
        super().__init__(context)
        self._reader: IndexReader | None = None
        self._closing: list[asyncio.Task[None]] = []
        self._log_stamp: object = None
        self._log_looked_at = -math.inf

    def is_for(self, visit: Visit) -> bool:
        return visit.is_operator or self._settings is not None

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()
        if self._closing:
            await asyncio.wait(self._closing)

    # --- what there is ---------------------------------------------------------------------------------

    def stamp(self, visit: Visit) -> Hashable:
        if visit.query.get("path", "").endswith("/calls/log"):
            return self._look_at_log() if visit.is_operator else None
        reader = self._find_reader()
        return None if reader is None else reader.newest(self._visible_to(visit))

    async def find_usage(self, visit: Visit, span_s: float, steps: int) -> Usage | None:
        reader = self._find_reader()
        if reader is None:
            return None
        await reader.refresh(_USAGE_WITHIN_S)
        end = int(visit.now * 1000)
        begin = int((visit.now - span_s) * 1000)
        wanted = structs.replace(self._visible_to(visit), only_calls=True, since=begin)

        def count(index: AuditIndex) -> Usage:
            points = index.count_steps(wanted, begin, end, steps)
            step_s = span_s / steps
            return Usage(
                tuple(
                    UsagePoint(visit.now - span_s + number * step_s, each.calls, each.errors)
                    for number, each in enumerate(points)
                ),
                tuple(
                    UsageCount(" of ".join(filter(None, reversed(each.key))), each.calls, each.errors, each.bytes)
                    for each in index.count_uses(wanted, "tool", _MOST_USED)
                ),
                tuple(
                    UsageCount(each.key[0] or "unknown", each.calls, each.errors, each.bytes)
                    for each in index.count_uses(wanted, "client", _MOST_USED)
                ),
            )

        try:
            return await reader.ask(count)
        except NotIndexed:
            return Usage((), (), ())
        except (OSError, sqlite3.Error):
            return None

    @property
    def _settings(self) -> Audit | None:
        return self.context.config.settings_of("audit", Audit)

    def _find_reader(self) -> IndexReader | None:
        """Return the index of the log of this config; None if it has no log."""
        settings = self._settings
        if settings is None:
            return None
        directory = settings.path or self.context.state_folder / "audit"
        if self._reader is not None and self._reader.directory != directory:
            self._closing.append(asyncio.create_task(self._reader.close(), name="end of an index"))
            self._reader = None
        if self._reader is None:
            self._reader = IndexReader(directory)
        return self._reader

    def _visible_to(self, visit: Visit) -> LineFilter:
        """Return the filter of all lines that a person may see."""
        config = str(self.context.config.file)
        if visit.is_operator:
            return LineFilter(config=config)
        has_rules = self.context.config.access is not None
        return LineFilter(config=config, owner=visit.authentication.principal, only_allowed=has_rules)

    def _may_see(self, line: AuditLine, visit: Visit) -> bool:
        if visit.authentication.is_local:
            return True
        if line.config != str(self.context.config.file):
            return False
        if visit.is_operator:
            return True
        is_refused = line.decision == "deny" or line.event == "list"
        is_allowed = line.event not in CALLS or line.decision in ("allow", "ask")
        return (
            visit.owns(line.issuer, line.subject)
            and not is_refused
            and (is_allowed or self.context.config.access is None)
        )

    async def _ask(self, reader: IndexReader, work: Callable[[AuditIndex], T]) -> T:
        try:
            return await reader.ask(work)
        except (OSError, sqlite3.Error) as exc:
            raise DynamicMcpError(f"the audit log cannot be read: {exc}") from exc

    # --- pages -----------------------------------------------------------------------------------------

    async def show(self, visit: Visit, *rest: str) -> Reply | None:
        if rest == ("log",):
            return await self._show_log(visit) if visit.is_operator else None
        reader = self._find_reader()
        if reader is None:
            return PageView("calls_off.html", self.title, {}) if not rest and visit.is_operator else None
        is_current = await reader.refresh()
        await reader.note_newest(self._visible_to(visit))
        match rest:
            case ():
                return await self._show_list(visit, reader, is_current=is_current)
            case ("export",):
                return await self._export(visit, reader)
            case (id,):
                return await self._show_call(visit, reader, id)
        return None

    async def _show_list(self, visit: Visit, reader: IndexReader, *, is_current: bool) -> PageView:
        error = ""
        try:
            choice = self._read_choice(visit)
        except InvalidArguments as exc:
            error = f"{exc.message}; {exc.hint}" if exc.hint else exc.message
            choice = self._read_choice(structs.replace(visit, query={}))
        before = _read_cursor(visit.query.get("before", ""))

        def find(index: AuditIndex) -> tuple[list[tuple[LineCursor, StoredLine]], list[tuple[int, int]]]:
            since, until = choice.wanted.since, choice.wanted.until
            begin = since if since is not None else index.find_begin() or 0
            end = max(until if until is not None else int(visit.now * 1000), begin + _STEPS)
            counts = [] if before else index.count_steps(choice.wanted, begin, end, _STEPS)
            return index.find_page(choice.wanted, _ON_A_PAGE + 1, before), [
                (each.calls, each.errors) for each in counts
            ]

        try:
            lines, counts = await self._ask(reader, find)
            is_indexed = True
        except NotIndexed:
            lines, counts, is_indexed = [], [], False
        shown = lines[:_ON_A_PAGE]
        has_more = len(lines) > _ON_A_PAGE
        values = {
            "rows": [describe_row(each) for _, each in shown],
            "texts": choice.texts,
            "query": urlencode({name: text for name, text in choice.texts.items() if text}),
            "older": f"{shown[-1][0].at}-{shown[-1][0].row}" if has_more else "",
            "before": before is not None,
            "chart": draw_bars(counts, width=960, height=64) if any(calls for calls, _ in counts) else None,
            "calls": sum(calls for calls, _ in counts),
            "errors": sum(errors for _, errors in counts),
            "span": choice.span,
            "spans": [*_SPANS, "all"],
            "is_filtered": choice.is_filtered,
            "is_current": is_current,
            "is_indexed": is_indexed,
            "error": error,
            "events": EVENTS,
            "outcomes": OUTCOMES,
            "decisions": DECISIONS,
            "most_exported": _MOST_EXPORTED,
        }
        return PageView("calls.html", self.title, values, 400 if error else 200)

    def _read_choice(self, visit: Visit) -> Choice:
        """Return what the query of a visit chooses. Raises InvalidArguments."""
        query = visit.query
        names = [*_PATTERNS, "event", "outcome", "decision", "since", "until", "slow", "span", "configs"]
        texts = {name: query.get(name, "").strip()[:200] for name in names}
        if not visit.is_operator:
            texts |= {"who": "", "configs": "", "decision": ""}
        span = texts["span"] if texts["span"] in (*_SPANS, "all") else _SPAN
        texts["span"] = "" if span == _SPAN else span
        since = visit.now - _SPANS[span] if span in _SPANS else None
        if texts["since"]:
            since, span = parse_time("since", texts["since"], visit.now), ""
        until = parse_time("until", texts["until"], visit.now, is_end=True) if texts["until"] else None
        wanted = structs.replace(
            self._visible_to(visit),
            since=None if since is None else int(since * 1000),
            until=None if until is None else int(until * 1000),
            **{name: texts[name] for name in _PATTERNS},
            event=texts["event"] if texts["event"] != "*" else "",
            only_calls=not texts["event"],
            decision=texts["decision"] if texts["decision"] in DECISIONS else "",
            only_errors=texts["outcome"] == "errors",
            outcome=texts["outcome"] if texts["outcome"] in OUTCOMES and texts["outcome"] != "errors" else "",
            slow_ms=parse_duration("slow", texts["slow"]) * 1000 if texts["slow"] else None,
        )
        if texts["configs"] == "all" and visit.authentication.is_local:
            wanted = structs.replace(wanted, config="")
        is_filtered = any(texts[each] for each in texts if each not in ("span", "configs"))
        return Choice(texts, wanted, span, is_filtered)

    async def _show_call(self, visit: Visit, reader: IndexReader, id: str) -> PageView | None:
        def find(index: AuditIndex) -> CallStory | None:
            found = index.find_by_id(id)
            if found is None or not self._may_see(found.record, visit):
                return None
            related = [
                each for each in index.find_story(found.record, _MOST_IN_STORY) if self._may_see(each.record, visit)
            ]
            return describe_call(found, related, is_operator=visit.is_operator)

        try:
            call = await self._ask(reader, find)
        except NotIndexed:
            raise DynamicMcpError("the audit log is being indexed", hint="try again in some seconds") from None
        if call is None:
            return None
        records: list[Record] = []
        if visit.is_operator and call.row.at:
            records = await self.context.turns.run_apart(self._find_around, call, visit)
        title = one_line(call.row.what or call.row.event, 60)
        return PageView("calls_one.html", title, {"call": call, "records": _describe_records(records)})

    async def _export(self, visit: Visit, reader: IndexReader) -> Response:
        """Send the last lines of a choice as a file, the oldest first."""
        form = "jsonl" if visit.query.get("format") == "jsonl" else "csv"
        wanted = self._read_choice(visit).wanted

        def write(index: AuditIndex) -> bytes:
            lines = list(index.find(wanted, _MOST_EXPORTED))
            if not visit.is_operator:
                lines = [_for_owner(each) for each in lines]
            data = bytearray()
            for text in export(lines, form, version=__version__):
                data += text.encode("utf-8", "backslashreplace") + b"\n"
                if len(data) > _MOST_EXPORTED_BYTES:
                    raise InvalidArguments("these are too many lines for a download", hint="choose a shorter time")
            return bytes(data)

        try:
            data = await self._ask(reader, write)
        except NotIndexed:
            raise DynamicMcpError("the audit log is being indexed", hint="try again in some seconds") from None
        kind = b"text/csv; charset=utf-8" if form == "csv" else b"application/jsonl"
        name = f'attachment; filename="calls.{form}"'.encode()
        return Response(200, ((b"content-type", kind), (b"content-disposition", name)), data)

    # --- the log of the program --------------------------------------------------------------------------

    async def _show_log(self, visit: Visit) -> PageView:
        level = visit.query.get("level", "")
        level = level if level in log_output.LEVELS else "info"
        levels = frozenset(log_output.LEVELS[log_output.LEVELS.index(level) :])
        text, group = visit.query.get("q", "")[:200], visit.query.get("group", "")[:200]
        is_ours = self._config_filter(visit)

        def matches(record: Record) -> bool:
            return (
                record.get("level") in levels
                and (not group or record.get("group") == group)
                and is_ours(record)
                and text.lower() in f"{record.get('message', '')}{record.get('traceback', '')}".lower()
            )

        records = await self.context.turns.run_apart(_find_records, matches, _MOST_RECORDS)
        values = {
            "records": _describe_records(records),
            "level": level,
            "levels": log_output.LEVELS,
            "q": text,
            "group": group,
            "most": _MOST_RECORDS,
        }
        return PageView("calls_log.html", "Log", values)

    def _find_around(self, call: CallStory, visit: Visit) -> list[Record]:
        """Return records of the time of a call about its group, or about none, the oldest first."""
        begin, end = _log_time(call.began - _AROUND_S), _log_time(call.ended + _AROUND_S)
        is_ours = self._config_filter(visit)

        def matches(record: Record) -> bool:
            is_about = record.get("group") in (None, call.row.group)
            return begin <= str(record.get("time", "")) <= end and is_about and is_ours(record)

        return _find_records(matches, _MOST_AROUND, since=begin)[::-1]

    def _config_filter(self, visit: Visit) -> Callable[[Record], bool]:
        key, is_local = config_key(self.context.config.file), visit.authentication.is_local

        def is_ours(record: Record) -> bool:
            config = record.get("config")
            return is_local or (isinstance(config, str) and config_key(config) == key)

        return is_ours

    def _look_at_log(self) -> object:
        """Return a value that changes with the log file, which is looked at once a second."""
        now = time.monotonic()
        if now - self._log_looked_at >= 1.0:
            self._log_looked_at = now
            try:
                status = (paths.log_dir() / log_output.FILE_NAME).stat()
                self._log_stamp = status.st_ino, status.st_size
            except OSError:
                self._log_stamp = None
        return self._log_stamp


class LogRow(Struct, frozen=True):
    """A record of the log of the program."""

    at: float
    level: str
    group: str
    message: str
    traceback: str


def _find_records(matches: Callable[[Record], bool], most: int, *, since: str = "") -> list[Record]:
    try:
        return find_last(paths.log_dir(), matches, most, since=since)
    except OSError:
        return []


def _describe_records(records: Sequence[Record]) -> list[LogRow]:
    """Return records as rows, as many as a page has room for."""
    rows: list[LogRow] = []
    left = _LONGEST_TEXTS
    for each in records:
        try:
            at = datetime.fromisoformat(str(each.get("time"))).timestamp()
        except (ValueError, OverflowError, OSError):
            at = 0.0
        message, traceback = str(each.get("message", ""))[:500], str(each.get("traceback", ""))[-1500:]
        left -= 3 * (len(message) + len(traceback)) // 2
        if left < 0:
            break
        rows.append(LogRow(at, str(each.get("level", "")), str(each.get("group") or ""), message, traceback))
    return rows


def _log_time(at: float) -> str:
    """Return a time as the log file writes it."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at)).isoformat(timespec="milliseconds")


def _for_owner(stored: StoredLine) -> StoredLine:
    """Return a line without what is of the server alone."""
    line = structs.replace(stored.record, rule="", config="", pid=0, n=0, prev="", hash="", detail=ABSENT)
    return StoredLine(chain.encode(line), line)


def _read_cursor(text: str) -> LineCursor | None:
    at, _, row = text.partition("-")
    is_cursor = all(each.isascii() and each.isdigit() and len(each) < 18 for each in (at, row))
    return LineCursor(int(at), int(row)) if is_cursor else None
