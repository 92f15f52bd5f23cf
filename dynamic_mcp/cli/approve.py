"""The `approve` command: lists calls that wait for a person, shows them and decides about them."""

from __future__ import annotations

import sys
import time

import click
from msgspec import Raw

from dynamic_mcp.cli import approve_view
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments, NotFound, closest
from dynamic_mcp.host.pending_json import to_json
from dynamic_mcp.observe.approval_desk import ApprovalClient
from dynamic_mcp.observe.approvals import ApprovalAnswer, ApprovalDecision, QueuedApproval, Scope, approvals_dir
from dynamic_mcp.system.os_user import os_user
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import escape

_LONGEST_REASON = 1000


def list_pending(this: Invocation) -> None:
    """Print what waits."""
    waiting = of_config(this, open_client().list_pending())
    if this.out.is_json:
        this.out.print_json([to_json(each, time.time()) for each in waiting])
    elif waiting:
        approve_view.show_table(this.out, waiting, time.time())
        this.out.say("`dynamic-mcp approve show ID` shows all of a call, `allow ID` and `deny ID` decide")
    else:
        this.out.say("nothing waits for approval")


def show_pending(this: Invocation, id: str, *, reveals: bool) -> None:
    """Print one call that waits. Raises NotFound and InvalidArguments."""
    pending = find(id)
    if this.out.is_json:
        this.out.print_json(to_json(pending, time.time(), reveals=reveals))
    else:
        approve_view.show_details(this.out, pending, time.time(), reveals=reveals)


def allow_call(this: Invocation, id: str, scope: Scope, *, prints_rule: bool, is_sure: bool) -> None:
    """Allow a call, once a person has seen it. Raises DynamicMcpError."""
    require_person("allow", is_sure=is_sure)
    pending = find(id)
    if scope not in pending.offered:
        offered = " or ".join(f"`{each}`" for each in pending.offered)
        raise InvalidArguments(f"{pending.id} can be approved for {offered}, and not for `{scope}`")
    if not is_sure and not _may_allow(this, pending, scope):
        this.out.say(f"{pending.id} still waits; `{format_command('approve', 'deny', pending.id)}` denies it")
        return
    send(this, pending, ApprovalDecision(id=pending.id, verdict="allow", scope=scope, by=os_user()))
    if prints_rule:
        from dynamic_mcp.cli.approve_always import print_rule

        print_rule(this.out, pending)


def _may_allow(this: Invocation, pending: QueuedApproval, scope: Scope) -> bool:
    """Show a call, all of it if the person wants to see that, and return whether it may be made."""
    question = f"Allow it {_HOW_LONG[scope]}?"
    if not approve_view.show_details(this.out, pending, time.time(), is_short=True):
        if click.confirm("Show all of the arguments?", default=True, err=True):
            approve_view.show_details(this.out, pending, time.time())
        else:
            question = f"Allow it {_HOW_LONG[scope]}, though not all of the arguments were shown?"
    return click.confirm(question, default=False, err=True)


def deny_call(this: Invocation, id: str, reason: str) -> None:
    """Deny a call. Raises DynamicMcpError."""
    if len(reason) > _LONGEST_REASON:
        raise InvalidArguments(f"a reason has {_LONGEST_REASON} characters at most")
    pending = find(id)
    send(this, pending, ApprovalDecision(id=pending.id, verdict="deny", reason=reason, by=os_user()))


def open_client() -> ApprovalClient:
    """Return what waits for this user."""
    return ApprovalClient(approvals_dir())


def find(typed: str) -> QueuedApproval:
    """Return what waits with this id, or one that begins so. Raises NotFound and InvalidArguments."""
    found = open_client().find(typed)
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(each.id for each in found)
        raise InvalidArguments(f"more than one call that waits begins with `{escape(typed)}`: {several}")
    ids = [each.id for each in open_client().list_pending()]
    named = f"waiting: {', '.join(ids)}" if ids else "nothing waits; it was decided, or has expired"
    raise NotFound("call that waits", typed, closest(typed.upper(), ids), hint=named)


def of_config(this: Invocation, waiting: list[QueuedApproval]) -> list[QueuedApproval]:
    """Return what waits in proxies that serve the config of the command line, if it names one."""
    config = this.explicit_path()
    return [each for each in waiting if config is None or each.config == str(config)]


def require_person(verb: str, *, is_sure: bool) -> None:
    """Refuse where nobody can be asked, unless somebody is sure. Raises InvalidArguments."""
    if not is_sure and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidArguments(
            f"`approve {verb}` needs a terminal, so that a person decides",
            hint="run it in a terminal, or add `--yes` if a person has seen the call",
        )


def send(this: Invocation, pending: QueuedApproval, decision: ApprovalDecision) -> None:
    """Send a decision and say what became of it. Raises InvalidArguments and DynamicMcpError."""
    with this.out.progress("waiting for the proxy"):
        answer = open_client().decide(decision)
    if answer.outcome != "taken":
        raise _failure(pending, answer)
    if this.out.is_json_requested:
        scope = decision.scope if decision.verdict == "allow" else None
        edited = len(decision.arguments) > 0
        this.out.print_json({"id": pending.id, "verdict": decision.verdict, "scope": scope, "edited": edited})
    this.out.say(f"{pending.id} is {_describe(decision)}: `{pending.name}` of group `{pending.group}`")


def _failure(pending: QueuedApproval, answer: ApprovalAnswer) -> DynamicMcpError:
    match answer.outcome:
        case "refused":
            return InvalidArguments(f"{pending.id} still waits: {answer.reason}")
        case "gone":
            return DynamicMcpError(f"{pending.id} waits no more: {answer.reason}")
        case _:
            hint = f"the proxy is process {pending.pid}; `dynamic-mcp status` shows it"
            return DynamicMcpError(f"{pending.id} still waits: {answer.reason}", hint=hint)


_HOW_LONG: dict[Scope, str] = {
    "once": "once",
    "hour": "for an hour, with any arguments",
    "session": "for the session, with any arguments",
}


def _describe(decision: ApprovalDecision) -> str:
    if decision.verdict == "deny":
        return "denied"
    edited = " with the new arguments" if decision.arguments != Raw() else ""
    return f"allowed {_HOW_LONG[decision.scope]}{edited}"
