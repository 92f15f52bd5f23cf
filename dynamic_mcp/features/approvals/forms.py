"""The forms that clients show a user: their content, and the answers that count.

Texts from servers and models are masked and cut, with invisible characters escaped. In arguments,
only long values are cut, with a mark: arguments that cannot be shown with all names get no form.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Final, Literal
from weakref import WeakSet

import msgspec
from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.config.secrets import count_hidden, mask_text, mask_values
from dynamic_mcp.errors import INTERNAL_ERROR
from dynamic_mcp.features.approvals.pending import PendingApproval
from dynamic_mcp.features.approvals.plans import PlanSubject
from dynamic_mcp.features.approvals.questions import Verdict
from dynamic_mcp.features.approvals.store import Scope
from dynamic_mcp.features.approvals.subject import Subject
from dynamic_mcp.identity import LOCAL
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.elicitation import NO_PERSON_WITHIN_S
from dynamic_mcp.mcp.revisions import Revision
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import OwnQuestion
from dynamic_mcp.system.clock import Clock
from dynamic_mcp.system.text import cut_values, escape

MAX_SHOWN_BYTES = 2048
# The lengths that values are cut to; the first at which all arguments fit is used.
_LONGEST_VALUES = (MAX_SHOWN_BYTES, 800, 400, 200, 100, 50)
_LONGEST_NAME = 1000
_LONGEST_LINE = 200
_LONGEST_DESCRIPTION = 300
_MOST_READ = 3000
_MOST_NOTES = 5
_DENY: Final = "deny"
_TITLES = {
    "once": "Allow once",
    "hour": "Allow for an hour, with any arguments",
    "session": "Allow for this session, with any arguments",
    _DENY: "Deny",
}
_PLAN_TITLES = {**_TITLES, "once": "Allow for this run"}
# Of a script, which is shown as it is or not at all.
_MOST_SCRIPT_BYTES, _MOST_SCRIPT_LINES = 4096, 100
_CLASSES = {"read": "only reads", "write": "may change something"}

Decide = Callable[[Verdict, Client | None], object]


class ElicitationForms:
    """The forms that clients show now, at most one per question, and the clients that cannot show any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unable: WeakSet[Client] = WeakSet()
        self._shown: dict[str, asyncio.Event] = {}

    def can_show(self, client: Client) -> bool:
        """Return whether a client shows forms and has never answered one without asking a user."""
        return can_show(client) and client not in self._unable

    async def show(self, pending: PendingApproval, offered: Sequence[Scope], decide: Decide) -> None:
        """Show a form and take its answer, unless the client cannot, or the question is answered elsewhere."""
        question = pending.question
        while question.verdict is None and pending.form is not None and self.can_show(pending.client):
            other = self._shown.get(question.id)
            if other is None:
                await self._show(pending, pending.form, offered, decide)
                return
            await pending.until_closed(other)
            if pending.is_over:
                return

    async def _show(self, pending: PendingApproval, form: Frame, offered: Sequence[Scope], decide: Decide) -> None:
        question, client = pending.question, pending.client
        closed = self._shown[question.id] = asyncio.Event()
        asked_at = self._clock.now()
        try:
            answer = await pending.ask_client(form)
        finally:
            del self._shown[question.id]
            closed.set()
        if answer is None or question.verdict is not None:
            return
        is_quick = self._clock.now() - asked_at < NO_PERSON_WITHIN_S
        by = pending.subject.key.principal.subject
        choice = read_answer(answer, offered)
        if choice is None and wire.value(wire.member(answer.error, "code")) == INTERNAL_ERROR:
            return  # it may ask next time
        if choice is None or is_quick:
            self._unable.add(client)
        elif choice == _DENY:
            decide(Verdict("denied", by=by, channel="client"), client)
        else:
            decide(Verdict("allowed", scope=choice, by=by, channel="client"), client)


def can_show(client: Client) -> bool:
    """Return whether a client declares forms; the elicitation capability without modes means forms."""
    declared = wire.member(client.hello.capabilities, "elicitation")
    if bytes(declared)[:1] != b"{":
        return False
    modes = wire.members(declared)
    return not modes or "form" in modes


def build_form(subject: Subject, offered: Sequence[Scope], revision: Revision) -> Frame | None:
    """Return the request that shows the form; None if a form cannot show the whole call.

    The decision is required and has no default. `deny` comes first, as clients that answer by themselves take the
    first choice.
    """
    message = write_message(subject)
    if message is None:
        return None
    values = [_DENY, *offered]
    titles = [(_PLAN_TITLES if isinstance(subject, PlanSubject) else _TITLES)[value] for value in values]
    decision: dict[str, object] = {"type": "string", "title": "Decision"}
    if revision.has_titled_choices:
        decision["oneOf"] = [{"const": value, "title": title} for value, title in zip(values, titles, strict=True)]
    else:
        decision |= {"enum": values, "enumNames": titles}
    params: dict[str, object] = {
        "message": message,
        "requestedSchema": {"type": "object", "properties": {"decision": decision}, "required": ["decision"]},
    }
    if revision.has_url_elicitation:
        params = {"mode": "form", **params}
    return OwnQuestion(method="elicitation/create", params=Raw(wire.encode(params)))


def read_answer(answer: Frame, offered: Sequence[Scope]) -> Scope | Literal["deny"] | None:
    """Return the user's decision; None if the client did not ask. Accepting without a decision approves nothing."""
    action = wire.text(wire.member(answer.result, "action"))
    decision = wire.text(wire.member(answer.result, "content", "decision"))
    if action in ("decline", "cancel") or (action == "accept" and decision == _DENY):
        return _DENY
    return next((scope for scope in offered if scope == decision), None) if action == "accept" else None


def write_message(subject: Subject) -> str | None:
    """Return the text for the user: the caller, the request and its arguments. None if it is too long."""
    if isinstance(subject, PlanSubject):
        return _write_plan(subject)
    key = subject.key
    name, arguments = escape(mask_text(key.name, count_hidden)), show_arguments(subject.arguments)
    if arguments is None or len(name) > _LONGEST_NAME:
        return None
    lines = [
        f"Allow {key.kind} `{name}` of `{_line(subject.group.name)}`? It {_CLASSES[subject.access]}.",
        _write_asker(subject),
    ]
    if subject.description:
        lines.append(
            f"It says of itself: {_line(' '.join(subject.description[:_MOST_READ].split()), _LONGEST_DESCRIPTION)}"
        )
    if key.kind != "resource":
        lines.append(f"Arguments: {arguments}")
    if subject.notes:
        lines.append(f"Repaired: {'; '.join(_line(note) for note in subject.notes[:_MOST_NOTES])}")
    lines.append(f"Rule: {_line(key.rule)}")
    return "\n".join(lines)


def _write_plan(subject: PlanSubject) -> str | None:
    """Return the text about a script, with all of it. None if it is too long."""
    lines_shown = escape(mask_text(subject.script, count_hidden), keep="\n").split("\n")
    script, data = "\n".join(f"| {line}" for line in lines_shown), show_arguments(subject.data)
    runs = "\n".join(f"- {each}" for each in subject.runs)
    is_long = len(lines_shown) > _MOST_SCRIPT_LINES or len(f"{script}{runs}".encode()) > _MOST_SCRIPT_BYTES
    if data is None or is_long:
        return None
    lines = [  # the script is behind a bar, as it could look like the rest of the text
        f"Allow a script? It {_CLASSES[subject.access]}. It runs, without asking again:\n{runs}",
        "The arguments are not fixed: the script chooses them while it runs.",
        _write_asker(subject),
        f"Script:\n{script}",
        *([] if data == "null" else [f"Input: {data}"]),
        f"Rule: {_line(subject.key.rule)}",
    ]
    return "\n".join(lines)


def _write_asker(subject: Subject) -> str:
    principal = subject.key.principal
    who = "the local user" if principal == LOCAL else f"`{_line(principal.subject)}`"
    through = f", through `{_line(subject.client_name)}`" if subject.client_name else ""
    return f"Asked for by: {who}{through}"


def show_arguments(arguments: Raw) -> str | None:
    """Return arguments as text, with all names; None if that is more than 2 kB."""
    read = json.loads(bytes(arguments), parse_float=_number, parse_int=_number)
    value = mask_values(read, mask=count_hidden)
    for longest in _LONGEST_VALUES:
        shown = escape(_indent(cut_values(value, longest)), keep="\n")
        if len(shown.encode("utf-8", "replace")) <= MAX_SHOWN_BYTES:
            return shown
    return None


def _indent(value: object) -> str:
    """Return JSON over several lines, with its numbers unchanged."""
    try:
        return msgspec.json.format(wire.encode(value), indent=2).decode()
    except (ValueError, RecursionError):  # a lone surrogate, which only an escape can show
        return json.dumps(value, indent=2, default=lambda number: bytes(number).decode())


def _number(text: str) -> Raw:
    return Raw(text.encode())


def _line(text: str, longest: int = _LONGEST_LINE) -> str:
    """Return an untrusted text on one line: masked, with invisible characters escaped, and cut."""
    line = escape(mask_text(text[: longest * 10]))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
