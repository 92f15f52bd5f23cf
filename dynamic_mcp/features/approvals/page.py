"""The section of the page with the calls that wait. Like `approve`, it works on the folder, so it has those of all
workers and replicas.

Operators decide about all calls, and approvers about those of others. Anyone else sees their own calls, and decides
about none: their AI tool has the same token as they, and could decide here for itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Hashable, Sequence
from pathlib import Path
from urllib.parse import quote_plus

from msgspec import Struct

from dynamic_mcp.config.access import DEFAULT, DEFAULT_TEXT
from dynamic_mcp.config.location import config_key
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.features.approvals.client import ApprovalClient
from dynamic_mcp.features.approvals.edit import Sign, compare, parse_arguments
from dynamic_mcp.features.approvals.store import (
    FOLDER,
    LONGEST_REASON,
    SCRIPT,
    ApprovalAnswer,
    ApprovalDecision,
    QueuedApproval,
    Scope,
    arguments_of,
    parse_id,
    read_arguments,
)
from dynamic_mcp.identity import LOCAL
from dynamic_mcp.system.blank import format_json
from dynamic_mcp.system.os_user import os_user
from dynamic_mcp.system.text import cut_values, one_line
from dynamic_mcp.tools import typed_json
from dynamic_mcp.ui.section import Need, PageRedirect, PageSection, PageView, Reply, UiContext, Visit, find_page

log = logging.getLogger(__name__)

# The folder is looked at this often while pages are open, and read again this often even if nothing has changed
# there, since a proxy may have died.
_LOOK_EVERY_S, _READ_EVERY_S = 0.5, 10.0
# A decision holds a thread until its proxy has answered, which needs threads too.
_MOST_DECIDING = 2
_ON_A_PAGE = 8
_MOST_NEEDS = 5
# Characters of arguments, as they are in HTML: in the first page, in the list, and in a page of their own.
_MOST_IN_NEED, _MOST_IN_LIST, _MOST_ALONE = 600, 1500, 18_000
_LONGEST_VALUES = (2000, 400, 100)
# What is longer is changed with `dynamic-mcp approve edit`: a form has 64 KiB at most.
_MOST_EDITED = 12_000
_MOST_CHANGES = 300
_TOO_LONG = "they are too long for this page; change them with `dynamic-mcp approve edit`"
# A page shows no more of one text.
_PIECE = 10_000
_WIDER_IN_HTML = str.maketrans(dict.fromkeys("<>&'\"", "xxxxx"))
_HOW_LONG: dict[Scope, str] = {"once": "once", "session": "for the session", "hour": "for an hour"}


def list_sections() -> list[type[PageSection]]:
    """Return the sections of this feature."""
    return [ApprovalsSection]


class WaitingCall(Struct, frozen=True):
    """A call as the page shows it. `arguments` are all of them, if `is_whole`, and else with long values cut.

    `scopes` are those that this person may allow, with their words; none for a person who may not decide.
    """

    pending: QueuedApproval
    who: str
    arguments: str
    is_whole: bool
    has_hidden: bool
    may_decide: bool
    may_edit: bool
    scopes: tuple[tuple[Scope, str], ...]
    config: str

    @property
    def issuer(self) -> str:
        """Who says who made the call; empty for the local user."""
        return "" if self.pending.issuer == LOCAL.issuer else self.pending.issuer

    @property
    def allowed_by(self) -> str:
        """Why the client may make the call at all."""
        return DEFAULT_TEXT if self.pending.allowed_by == DEFAULT else self.pending.allowed_by


class _Found(Struct, frozen=True):
    """A call in the folder, and whether it is of the config that is served here."""

    pending: QueuedApproval
    is_ours: bool


class ApprovalsSection(PageSection):
    """What waits, with buttons."""

    name = "approvals"
    title = "Approvals"
    icon = "approvals"
    rank = 30

    def __init__(self, context: UiContext) -> None:
        super().__init__(context)
        self._folder = context.state_folder / FOLDER
        self._client = ApprovalClient(self._folder)
        self._deciding = asyncio.Semaphore(_MOST_DECIDING)
        self._found: tuple[_Found, ...] = ()
        self._stamp: object = None
        self._looked_at = self._read_at = -math.inf
        self._reading: asyncio.Task[None] | None = None

    def is_for(self, visit: Visit) -> bool:
        return visit.is_operator or visit.is_approver or self.context.config.asks

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    # --- what waits ------------------------------------------------------------------------------------

    def count(self, visit: Visit) -> int:
        self._look()
        return sum(_may_decide(each.pending, visit) for each in self._list_for(visit))

    def stamp(self, visit: Visit) -> Hashable:
        self._look()
        return tuple(each.pending.id for each in self._list_for(visit))

    async def find_needs(self, visit: Visit) -> Sequence[Need]:
        await self._read()
        waiting = [each for each in self._list_for(visit) if _may_decide(each.pending, visit)]
        if not waiting:
            return ()
        calls = await self.context.turns.run_apart(self._describe_all, waiting[:_MOST_NEEDS], visit, _MOST_IN_NEED)
        values = {"calls": calls, "total": len(waiting), "more": len(waiting) - len(calls)}
        return [Need(100, "need_approvals.html", values)]

    def _list_for(self, visit: Visit) -> list[_Found]:
        """Return the calls that this person may see, as they were read last, the oldest first."""
        return [each for each in self._found if each.pending.expires > visit.now and _may_see(each, visit)]

    def _look(self) -> None:
        """Have the folder read again if something may have changed; until then, what was read last counts."""
        now = time.monotonic()
        if self._reading is not None or now - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at = now
        if _stamp_of(self._folder) != self._stamp or now - self._read_at > _READ_EVERY_S:
            self._reading = asyncio.create_task(self._read(), name="calls that wait, for the page")
            self._reading.add_done_callback(self._end_reading)

    def _end_reading(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        if not task.cancelled() and task.exception() is not None:
            log.warning("the calls that wait cannot be read: %s", task.exception())

    async def _read(self) -> None:
        self._stamp, self._found = await self.context.turns.run_apart(self._find_all)
        self._read_at = time.monotonic()

    def _find_all(self) -> tuple[object, tuple[_Found, ...]]:
        stamp, key = _stamp_of(self._folder), config_key(self.context.config.file)
        found = tuple(_Found(each, config_key(each.config) == key) for each in self._client.list_pending())
        return stamp, found

    async def _find(self, typed: str, visit: Visit) -> _Found | None:
        await self._read()
        id = parse_id(typed)
        return next((each for each in self._list_for(visit) if each.pending.id == id), None)

    # --- pages -----------------------------------------------------------------------------------------

    async def show(self, visit: Visit, *rest: str) -> Reply | None:
        match rest:
            case ():
                return await self._show_list(visit)
            case (id,):
                return await self._show_call(visit, id)
            case (id, "arguments.json"):
                return await self._send_arguments(visit, id)
            case (id, "edit"):
                return await self._show_edit(visit, id)
        return None

    async def _show_list(self, visit: Visit) -> PageView:
        await self._read()
        waiting = self._list_for(visit)
        pages = max(-(-len(waiting) // _ON_A_PAGE), 1)
        page = find_page(visit, pages)
        shown = waiting[(page - 1) * _ON_A_PAGE : page * _ON_A_PAGE]
        calls = await self.context.turns.run_apart(self._describe_all, shown, visit, _MOST_IN_LIST)
        values = {
            "calls": calls,
            "total": len(waiting),
            "page": page,
            "pages": pages,
            "asks": self.context.config.asks,
            "decides": visit.is_approver or visit.is_operator,
            "longest_reason": LONGEST_REASON,
        }
        return PageView("approvals.html", self.title, values)

    async def _show_call(self, visit: Visit, id: str) -> PageView:
        found = await self._find(id, visit)
        if found is None:
            return _gone(id)
        reveals = visit.query.get("reveal") == "1" and _may_decide(found.pending, visit)
        call = await self.context.turns.run_apart(self._describe, found, visit, most=_MOST_ALONE, reveals=reveals)
        values = {"call": call, "id": call.pending.id, "reveals": reveals, "longest_reason": LONGEST_REASON}
        return PageView("approvals_call.html", f"{call.pending.id}: {one_line(call.pending.name, 60)}", values)

    async def _send_arguments(self, visit: Visit, id: str) -> Reply | None:
        """Send all arguments as a file, secrets masked."""
        found = await self._find(id, visit)
        if found is None:
            return _gone(id)
        lines = await self.context.turns.run_apart(lambda: format_json(arguments_of(found.pending)))
        name = f'attachment; filename="{found.pending.id}.json"'.encode()
        headers = ((b"content-type", b"application/json"), (b"content-disposition", name))
        return Response(200, headers, "\n".join([*lines, ""]).encode("utf-8", "backslashreplace"))

    async def _show_edit(self, visit: Visit, id: str) -> PageView:
        found = await self._find(id, visit)
        if found is None:
            return _gone(id)
        self._require(found, visit)
        text = await self.context.turns.run_apart(_editable_text, found.pending)
        if text is None:
            command = f"dynamic-mcp approve edit {found.pending.id}"
            raise DynamicMcpError("these arguments cannot be changed here", hint=f"`{command}` may, in a terminal")
        return _edit_view(found.pending, text)

    def _describe_all(self, found: Sequence[_Found], visit: Visit, most: int) -> list[WaitingCall]:
        return [self._describe(each, visit, most=most) for each in found]

    def _describe(self, found: _Found, visit: Visit, *, most: int, reveals: bool = False) -> WaitingCall:
        pending = found.pending
        value = arguments_of(pending, reveals=reveals)
        arguments, is_whole = _fit(value, most)
        may_decide = _may_decide(pending, visit)
        scopes = tuple((scope, words) for scope, words in _HOW_LONG.items() if scope in pending.offered)
        return WaitingCall(
            pending,
            who="you" if visit.owns(pending.issuer, pending.subject) else _name_of(pending),
            arguments=arguments,
            is_whole=is_whole,
            has_hidden=not reveals and value != arguments_of(pending, reveals=True),
            may_decide=may_decide,
            may_edit=may_decide and _editable_text(pending) is not None,
            scopes=scopes if may_decide else (),
            config="" if found.is_ours else pending.config,
        )

    # --- decisions -------------------------------------------------------------------------------------

    async def act(self, visit: Visit, *rest: str) -> Reply | None:
        if len(rest) != 2 or rest[1] not in ("allow", "deny", "edit"):
            return None
        id, verb = rest
        found = await self._find(id, visit)
        if found is None:
            return PageRedirect(_back(visit), f"{one_line(id)} no longer waits", is_error=True)
        self._require(found, visit)
        if verb == "edit":
            return await self._edit(visit, found.pending)
        if verb == "deny":
            reason = visit.form.get("reason", "").strip()
            if len(reason) > LONGEST_REASON:
                raise InvalidArguments(f"a reason has {LONGEST_REASON} characters at most")
            decision = ApprovalDecision(id=found.pending.id, verdict="deny", reason=reason, by=_by(visit))
        else:
            scope = _scope_of(visit, found.pending)
            decision = ApprovalDecision(id=found.pending.id, verdict="allow", scope=scope, by=_by(visit))
        answer = await self._decide(decision)
        text, is_error = _describe_outcome(found.pending, decision, answer)
        return PageRedirect(_back(visit), text, is_error)

    async def _edit(self, visit: Visit, pending: QueuedApproval) -> Reply:
        """Show how typed arguments differ, or send those that were shown."""
        text = visit.form.get("arguments", "").replace("\r\n", "\n")
        is_sent = visit.form.get("sends") == "1"
        try:
            if _width(text) > _MOST_ALONE:
                raise InvalidArguments(_TOO_LONG)
            arguments = await asyncio.to_thread(parse_arguments, text)
            encoded = typed_json.dumps(arguments)
            if len(encoded) > _MOST_ALONE:
                raise InvalidArguments(_TOO_LONG)
        except InvalidArguments as exc:
            return _edit_view(pending, text, error=f"{exc.message}{exc.hint and f'; {exc.hint}'}")
        changes = await self.context.turns.run_apart(compare, read_arguments(pending.arguments), arguments)
        if not is_sent or not changes:
            return _edit_view(pending, text, changes=changes, sent=encoded.decode())
        decision = ApprovalDecision(id=pending.id, verdict="allow", by=_by(visit), arguments=encoded)
        answer = await self._decide(decision)
        outcome, is_error = _describe_outcome(pending, decision, answer)
        if answer.outcome == "refused":
            return _edit_view(pending, text, error=outcome)
        return PageRedirect(self.name, outcome, is_error)

    async def _decide(self, decision: ApprovalDecision) -> ApprovalAnswer:
        async with self._deciding:
            try:
                return await asyncio.to_thread(self._client.decide, decision)
            except OSError as exc:
                raise DynamicMcpError(f"the decision cannot be written: {exc}") from exc

    def _require(self, found: _Found, visit: Visit) -> None:
        if not _may_decide(found.pending, visit):
            whose = "your own calls" if visit.owns(found.pending.issuer, found.pending.subject) else "calls"
            raise DynamicMcpError(f"you cannot decide about {whose} here", hint="ask an approver or an operator")


# --- who may see and decide ------------------------------------------------------------------------------


def _may_see(found: _Found, visit: Visit) -> bool:
    if visit.authentication.is_local:  # all that waits is in proxies of this user
        return True
    has_role = visit.is_operator or visit.is_approver
    return found.is_ours and (has_role or visit.owns(found.pending.issuer, found.pending.subject))


def _may_decide(pending: QueuedApproval, visit: Visit) -> bool:
    return visit.is_operator or (visit.is_approver and not visit.owns(pending.issuer, pending.subject))


def _by(visit: Visit) -> str:
    """Return the name of a person in records: for the local user, as `approve` writes it."""
    return os_user() if visit.authentication.is_local else visit.authentication.principal.subject


def _name_of(pending: QueuedApproval) -> str:
    is_local = pending.issuer == LOCAL.issuer or not pending.subject
    return "the local user" if is_local else pending.subject


# --- arguments -------------------------------------------------------------------------------------------


def _fit(value: object, most: int) -> tuple[str, bool]:
    """Return arguments as indented JSON with at most so many characters in HTML, and whether that is all of them."""
    for longest in (None, *_LONGEST_VALUES):
        text = "\n".join(format_json(value if longest is None else cut_values(value, longest)))
        if _width(text) <= most:
            return text, longest is None
    return "", False


def _width(text: str) -> int:
    """Return the length of a text in HTML."""
    return len(text.translate(_WIDER_IN_HTML))


def _editable_text(pending: QueuedApproval) -> str | None:
    """Return arguments as a person edits them; None if they cannot be changed, or not in a form."""
    if pending.kind in ("resource", SCRIPT) or len(pending.arguments) > _MOST_EDITED:
        return None
    value = read_arguments(pending.arguments)
    if not isinstance(value, dict):
        return None
    text = "\n".join(format_json(value))
    is_small = _width(text) <= _MOST_ALONE and len(quote_plus(text)) <= 40_000
    return text if is_small and len(json.dumps(value)) <= _MOST_EDITED else None


def _edit_view(
    pending: QueuedApproval,
    text: str,
    *,
    error: str = "",
    changes: Sequence[tuple[Sign, str]] | None = None,
    sent: str = "",
) -> PageView:
    """Return the form with a typed text, all of it; `sent` are the arguments in it, in ASCII."""
    text = "".join(each if each.isprintable() or each in "\n\t" else json.dumps(each)[1:-1] for each in text)
    values = {
        "pending": pending,
        "pieces": [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)],
        "error": error,
        "changes": None if changes is None else changes[:_MOST_CHANGES],
        "left_out": 0 if changes is None else max(len(changes) - _MOST_CHANGES, 0),
        "sent": sent,
    }
    return PageView("approvals_edit.html", f"Change {pending.id}", values, 400 if error else 200)


# --- what came of it -------------------------------------------------------------------------------------


def _gone(typed: str) -> PageView:
    return PageView("approvals_call.html", "It no longer waits", {"call": None, "id": one_line(typed, 20)}, 404)


def _scope_of(visit: Visit, pending: QueuedApproval) -> Scope:
    wanted = visit.form.get("scope", "once")
    for scope in pending.offered:
        if scope == wanted:
            return scope
    raise InvalidArguments(f"it cannot be allowed for `{one_line(wanted, 20)}`")


def _describe_outcome(
    pending: QueuedApproval, decision: ApprovalDecision, answer: ApprovalAnswer
) -> tuple[str, bool]:
    """Return what came of a decision, and whether that is not what was wanted."""
    what = f"{one_line(pending.name, 100)} of {one_line(pending.group, 60)}"
    match answer.outcome:
        case "taken":
            edited = " with the new arguments" if decision.arguments else ""
            verdict = "denied" if decision.verdict == "deny" else f"allowed {_HOW_LONG[decision.scope]}{edited}"
            return f"{pending.id} is {verdict}: {what}", False
        case "refused":
            return f"{pending.id} still waits: {answer.reason}", True
        case "gone":
            return f"{pending.id} no longer waits: {answer.reason}", True
        case "silent":
            return f"{pending.id} still waits, and your decision does not count: {answer.reason}", True


def _back(visit: Visit) -> str:
    """Return the page that the form was on: the list, or the first page."""
    return "" if visit.form.get("back") == "" else ApprovalsSection.name


def _stamp_of(folder: Path) -> object:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return None
