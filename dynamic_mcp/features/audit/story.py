"""Lines of the audit log as people read them: a row of a table, one call with all that is known, and its story."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec import Raw, Struct

from dynamic_mcp.features.audit.chain import AuditLine
from dynamic_mcp.features.audit.days import StoredLine
from dynamic_mcp.identity import LOCAL
from dynamic_mcp.system.blank import format_json
from dynamic_mcp.system.text import cut_values, one_line

# Characters of recorded JSON on a page.
_LONGEST_JSON = 9000
_LONGEST_VALUES = (1000, 200, 50)
_RESULTS = {
    "success": ("good", "ok"),
    "failure": ("bad", "failed"),
    "denied": ("wait", "refused"),
    "pending": ("busy", "waits"),
    "cancelled": ("idle", "cancelled"),
    "unknown": ("bad", "unknown"),
}
_EVENTS = {
    "call": "tool called",
    "read": "resource read",
    "prompt": "prompt used",
    "list": "search or list",
    "approval.requested": "a person was asked",
    "approval.decided": "decided",
    "approval.consumed": "the approval was used",
    "approval.expired": "nobody decided",
    "approval.revoked": "the approval was ended",
    "session.opened": "connected",
    "session.closed": "disconnected",
    "auth.accepted": "logged in",
    "auth.denied": "login refused",
}


class CallRow(Struct, frozen=True):
    """A line in a table. `at` is in seconds since 1970, and `what` is what was used, or what has changed."""

    id: str
    at: float
    who: str
    client: str
    event: str
    group: str
    what: str
    kind: str
    result: str
    ms: float
    bytes: int
    is_inner: bool


class StoryRow(Struct, frozen=True):
    """A line of a story: `offset_ms` is the time since the first one."""

    row: CallRow
    words: str
    offset_ms: float
    is_this: bool


class CallStory(Struct, frozen=True):
    """One line: facts by their names, recorded JSON by its title, and the lines that belong together."""

    row: CallRow
    facts: tuple[tuple[str, str], ...]
    texts: tuple[tuple[str, str, bool], ...]
    story: tuple[StoryRow, ...]
    parent: str
    began: float
    ended: float


def time_of(line: AuditLine) -> float:
    """Return when a line was written, in seconds since 1970; 0 if that cannot be read."""
    try:
        return datetime.fromisoformat(line.at).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def describe_row(stored: StoredLine) -> CallRow:
    """Return a line as a row."""
    line = stored.record
    kind, result = _RESULTS.get(line.outcome, ("idle", line.outcome))
    if line.outcome == "failure" and line.error:
        result = f"failed: {line.error}"
    what = line.name or (line.config if line.event.startswith("config.") else "")
    return CallRow(
        line.id,
        time_of(line),
        describe_person(line),
        line.client,
        _EVENTS.get(line.event, line.event),
        line.group,
        what,
        kind,
        result,
        line.ms,
        line.result_bytes,
        is_inner=bool(line.parent),
    )


def describe_person(line: AuditLine) -> str:
    """Return who has caused a line; empty if it was nobody."""
    return "local user" if (line.issuer, line.subject) == (LOCAL.issuer, LOCAL.subject) else line.subject


def describe_call(stored: StoredLine, related: Sequence[StoredLine], *, is_operator: bool) -> CallStory:
    """Return all that is known of a line; what is of the server alone only for an operator."""
    line, row = stored.record, describe_row(stored)
    facts = tuple((name, value) for name, value in _facts(line, is_operator=is_operator) if value)
    texts = tuple(
        (title, *_format(value))
        for title, value in (
            ("Arguments", line.arguments),
            ("Arguments of the client, before a person has changed them", line.original_arguments),
            ("Details", line.detail),
        )
        if len(value)
    )
    return CallStory(row, facts, texts, _tell(stored, related), line.parent, row.at - line.ms / 1000, row.at)


def _facts(line: AuditLine, *, is_operator: bool) -> Iterator[tuple[str, str]]:
    yield "Person", describe_person(line)
    if line.issuer != LOCAL.issuer:
        yield "Identified by", line.issuer
    yield "Roles", ", ".join(line.roles)
    yield "Login by", line.auth
    yield "Client", f"{line.client} {line.client_version}".strip()
    yield "Address", line.address
    yield "Group", line.group
    yield line.kind.capitalize() or "Name", line.name
    yield "As the client wrote it", line.shown
    yield "Counts as", {"read": "only reads", "write": "may change something"}.get(line.access, line.access)
    rule = f", by {line.rule}" if line.rule and is_operator else ""
    yield (
        "Rules",
        f"{ {'allow': 'allowed', 'ask': 'a person is asked', 'deny': 'refused'}[line.decision] }{rule}"
        if (line.decision in ("allow", "ask", "deny"))
        else "",
    )
    yield "Approval", line.approval
    yield "Decided by", line.approved_by
    yield "Waited for a person", _seconds(line.wait_ms)
    yield "Result", "from the cache" if line.cached else ""
    yield "Error", line.error
    yield "Server", f"{line.upstream} {line.upstream_version}".strip()
    yield "Definition", line.definition
    yield "Session", line.session
    yield "Request", line.request
    yield "Trace", line.trace
    if is_operator:
        yield "Config", line.config
        yield "Process", str(line.pid or "")
        yield "Line", f"{line.n} of {line.at[:10]}" if line.n else ""


def _tell(stored: StoredLine, related: Sequence[StoredLine]) -> tuple[StoryRow, ...]:
    """Return the story of a line, in the order of time; nothing if it is alone."""
    if not related:
        return ()
    lines = sorted([stored, *related], key=lambda each: (each.record.at, each.record.n))
    begin = time_of(lines[0].record)
    return tuple(
        StoryRow(
            describe_row(each), _words(each.record), (time_of(each.record) - begin) * 1000, is_this=each is stored
        )
        for each in lines
    )


def _words(line: AuditLine) -> str:
    match line.event:
        case "approval.decided":
            verdict = _detail_of(line).get("verdict", "decided")
            return f"{verdict}{f' by {line.approved_by}' if line.approved_by else ''}"
        case "approval.expired":
            return f"no decision: {_detail_of(line).get('reason', 'it has expired')}"
        case _:
            return _EVENTS.get(line.event, line.event)


def _detail_of(line: AuditLine) -> dict[str, object]:
    try:
        found = msgspec.json.decode(line.detail) if len(line.detail) else {}
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _format(value: Raw) -> tuple[str, bool]:
    """Return recorded JSON in lines, and whether it is all of it."""
    try:
        decoded: object = msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        decoded = bytes(value).decode(errors="replace")
    for longest in (None, *_LONGEST_VALUES):
        text = "\n".join(format_json(decoded if longest is None else cut_values(decoded, longest)))
        if len(text) <= _LONGEST_JSON:
            return text, longest is None
    return one_line(text, _LONGEST_JSON), False


def _seconds(ms: float) -> str:
    return f"{ms / 1000:.1f} s" if ms else ""
