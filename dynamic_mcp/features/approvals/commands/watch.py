"""`approve watch`: shows each call as it begins to wait, and asks for a decision."""

from __future__ import annotations

import time

from dynamic_mcp.cli.agreement import require_person
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.keys import discard, open_keyboard
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.approvals.client import ApprovalClient
from dynamic_mcp.features.approvals.commands import view
from dynamic_mcp.features.approvals.commands.calls import edit_in_editor, of_config, send
from dynamic_mcp.features.approvals.store import ApprovalDecision, QueuedApproval, Scope
from dynamic_mcp.system.os_user import os_user

_EVERY_S = 0.5
# How long keys are ignored after a question is shown.
_TOO_SOON_S = 0.5
_SCOPES: dict[str, Scope] = {"y": "once", "h": "hour", "s": "session"}


def watch_pending(context: Invocation) -> None:
    """Ask about each waiting call, until Ctrl-C. Raises InvalidArguments without a terminal."""
    require_person("approve watch", seen="the call", is_sure=False)
    context.out.say("waiting for calls to approve; Ctrl-C ends this")
    left: set[str] = set()
    while True:
        waiting = of_config(context, ApprovalClient().list_pending())
        left &= {each.id for each in waiting}
        pending = next((each for each in waiting if each.id not in left), None)
        if pending is None:
            with open_keyboard() as read:
                discard(read, _EVERY_S)
        elif not _ask(context, pending):
            left.add(pending.id)


def _ask(context: Invocation, pending: QueuedApproval) -> bool:
    """Ask about one call until it is decided; return False if the user leaves it for later."""
    context.out.say("")
    shows_all = view.show_details(context.out, pending, time.time(), is_short=True)
    while True:
        context.out.say(_question(pending, shows_all=shows_all), "bold")
        key = _read_key(pending)
        if not key:
            context.out.say(f"{pending.id} is no longer waiting")
            return True
        if key in ("a", "d"):
            shows_all = view.show_details(context.out, pending, time.time(), reveals=key == "d")
            continue
        if key in (" ", "\n", "\r"):
            return False
        try:
            if _decide(context, pending, key):
                return True
        except DynamicMcpError as exc:
            context.out.print_error(str(exc))
            return not ApprovalClient().waits(pending.id)


def _question(pending: QueuedApproval, *, shows_all: bool) -> str:
    words = {"once": "y allow once", "hour": "h allow for an hour", "session": "s allow for the session"}
    offered = [words[scope] for scope in ("once", "hour", "session") if scope in pending.offered]
    if not shows_all:
        offered.insert(0, "a SHOW ALL ARGUMENTS")
    return f"{pending.id}? [{', '.join([*offered, 'n deny', 'e edit', 'd show secrets', 'space decide later'])}]"


def _decide(context: Invocation, pending: QueuedApproval, key: str) -> bool:
    """Carry out the action of a key; return whether it was a decision."""
    scope = _SCOPES.get(key)
    if scope in pending.offered:
        send(context, pending, ApprovalDecision(id=pending.id, verdict="allow", scope=scope, by=os_user()))
    elif key == "n":
        send(context, pending, ApprovalDecision(id=pending.id, verdict="deny", by=os_user()))
    elif key == "e":
        edit_in_editor(context, pending)
        return not ApprovalClient().waits(pending.id)
    else:
        return False
    return True


def _read_key(pending: QueuedApproval) -> str:
    """Return the key that the user presses; empty if the call is decided elsewhere meanwhile."""
    with open_keyboard() as read:
        discard(read, _TOO_SOON_S)
        while True:
            if key := read(_EVERY_S):
                return key.lower()
            if not ApprovalClient().waits(pending.id):
                return ""
