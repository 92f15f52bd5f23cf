"""Implements `approve`: lists waiting calls, shows them and decides them."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import click

from dynamic_mcp.cli.agreement import require_person
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.config import jsonc
from dynamic_mcp.config.location import config_key
from dynamic_mcp.config.old_names import Renaming
from dynamic_mcp.errors import ConfigError, DynamicMcpError, InvalidArguments, NotFound, closest
from dynamic_mcp.features.approvals.client import ApprovalClient
from dynamic_mcp.features.approvals.commands import view
from dynamic_mcp.features.approvals.edit import MOST_BYTES, parse_arguments
from dynamic_mcp.features.approvals.store import (
    LONGEST_REASON,
    SCRIPT,
    ApprovalAnswer,
    ApprovalDecision,
    QueuedApproval,
    Scope,
    read_arguments,
    to_json,
)
from dynamic_mcp.policy.globs import Globs
from dynamic_mcp.system.blank import format_json
from dynamic_mcp.system.file_reader import decode, encoding_of, read_bytes
from dynamic_mcp.system.os_user import os_user
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import escape
from dynamic_mcp.tools import typed_json


def list_pending(context: Invocation) -> None:
    """Print the waiting calls."""
    waiting = of_config(context, ApprovalClient().list_pending())
    now = time.time()
    rows = [view.to_row(each, now) for each in waiting]
    facts = [to_json(each, now) for each in waiting]
    context.out.print_rows(facts, view.COLUMNS, rows, if_none="nothing waits for approval")
    if waiting and not context.out.is_json:
        context.out.say("hint: `dynamic-mcp approve show ID` shows all of a call, `allow ID` and `deny ID` decide")


def show_pending(context: Invocation, id: str, *, reveals: bool) -> None:
    """Print one waiting call. Raises NotFound and InvalidArguments."""
    pending = find(id)
    if context.out.is_json:
        context.out.print_json(to_json(pending, time.time(), reveals=reveals))
    else:
        view.show_details(context.out, pending, time.time(), reveals=reveals)


def allow_call(context: Invocation, id: str, scope: Scope, *, prints_rule: bool, is_sure: bool) -> None:
    """Allow a call after a user has seen it. Raises DynamicMcpError."""
    require_person("approve allow", seen="the call", is_sure=is_sure)
    pending = find(id)
    if scope not in pending.offered:
        offered = " or ".join(f"`{each}`" for each in pending.offered)
        raise InvalidArguments(f"{pending.id} can be approved for {offered}, and not for `{scope}`")
    if not is_sure and not _may_allow(context, pending, scope):
        context.out.say(f"{pending.id} still waits; `{format_command('approve', 'deny', pending.id)}` denies it")
        return
    send(context, pending, ApprovalDecision(id=pending.id, verdict="allow", scope=scope, by=os_user()))
    if prints_rule:
        print_rule(context.out, pending)


def _may_allow(context: Invocation, pending: QueuedApproval, scope: Scope) -> bool:
    """Show a call, in full on request, and return whether the user allows it."""
    question = f"Allow it {_HOW_LONG[scope]}?"
    if not view.show_details(context.out, pending, time.time(), is_short=True):
        if click.confirm("Show all of the arguments?", default=True, err=True):
            view.show_details(context.out, pending, time.time())
        else:
            question = f"Allow it {_HOW_LONG[scope]}, though not all of the arguments were shown?"
    return click.confirm(question, default=False, err=True)


def deny_call(context: Invocation, id: str, reason: str) -> None:
    """Deny a call. Raises DynamicMcpError."""
    if len(reason) > LONGEST_REASON:
        raise InvalidArguments(f"a reason has {LONGEST_REASON} characters at most")
    pending = find(id)
    send(context, pending, ApprovalDecision(id=pending.id, verdict="deny", reason=reason, by=os_user()))


def find(typed: str) -> QueuedApproval:
    """Return the waiting call with this id, or its beginning. Raises NotFound and InvalidArguments."""
    found = ApprovalClient().find(typed)
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(each.id for each in found)
        raise InvalidArguments(f"several waiting calls begin with `{escape(typed)}`: {several}")
    ids = [each.id for each in ApprovalClient().list_pending()]
    named = f"waiting: {', '.join(ids)}" if ids else "nothing waits; it was decided, or has expired"
    raise NotFound("call that waits", typed, closest(typed.upper(), ids), hint=named)


def of_config(context: Invocation, waiting: list[QueuedApproval]) -> list[QueuedApproval]:
    """Return the calls of proxies that serve the config of the command line, if it names one."""
    config = context.explicit_path()
    return [each for each in waiting if config is None or config_key(each.config) == config_key(config)]


def send(context: Invocation, pending: QueuedApproval, decision: ApprovalDecision) -> None:
    """Send a decision and print the result. Raises InvalidArguments and DynamicMcpError."""
    with context.out.progress("waiting for dynamic-mcp"):
        answer = ApprovalClient().decide(decision)
    if answer.outcome != "taken":
        raise _failure(pending, answer)
    if context.out.is_json_requested:
        scope = decision.scope if decision.verdict == "allow" else None
        edited = bool(decision.arguments)
        context.out.print_json({"id": pending.id, "verdict": decision.verdict, "scope": scope, "edited": edited})
    context.out.say(f"{pending.id} is {_describe(decision)}: `{pending.name}` of group `{pending.group}`")


def _failure(pending: QueuedApproval, answer: ApprovalAnswer) -> DynamicMcpError:
    match answer.outcome:
        case "refused":
            return InvalidArguments(f"{pending.id} still waits: {answer.reason}")
        case "gone":
            return DynamicMcpError(f"{pending.id} is no longer waiting: {answer.reason}")
        case _:
            hint = f"it waits in process {pending.pid}; `dynamic-mcp status` shows it"
            return DynamicMcpError(f"{pending.id} still waits: {answer.reason}", hint=hint)


_HOW_LONG: dict[Scope, str] = {
    "once": "once",
    "hour": "for an hour, with any arguments",
    "session": "for the session, with any arguments",
}


def _describe(decision: ApprovalDecision) -> str:
    if decision.verdict == "deny":
        return "denied"
    edited = " with the new arguments" if decision.arguments else ""
    return f"allowed {_HOW_LONG[decision.scope]}{edited}"


# --- edit: the user changes the arguments ---------------------------------------------------------------


def edit_call(context: Invocation, id: str, typed: str | None, *, is_sure: bool) -> None:
    """Allow a call once with other arguments. Raises DynamicMcpError."""
    if typed is None or not is_sure:
        require_person("approve edit", seen="the call", is_sure=False)
    pending = find(id)
    if typed is not None:
        arguments = parse_arguments(sys.stdin.read(MOST_BYTES + 1) if typed == "-" else typed)
        _confirm_and_send(context, pending, arguments, is_sure=is_sure or typed == "-")
        return
    edit_in_editor(context, pending)


def edit_in_editor(context: Invocation, pending: QueuedApproval) -> None:
    """Open the arguments in an editor until they are valid, then allow the call. Raises DynamicMcpError."""
    text = "\n".join(format_json(read_arguments(pending.arguments))) + "\n"
    while True:
        text = _run_editor(text)
        try:
            _confirm_and_send(context, pending, parse_arguments(text), is_sure=False)
            return
        except InvalidArguments as exc:
            context.out.print_error(str(exc))
            if not click.confirm("Edit them again?", default=True, err=True):
                raise DynamicMcpError(f"nothing was sent; {pending.id} still waits") from None


def _confirm_and_send(context: Invocation, pending: QueuedApproval, arguments: object, *, is_sure: bool) -> None:
    old = read_arguments(pending.arguments)
    if not is_sure:
        if not view.show_difference(context.out, old, arguments):
            context.out.say(f"the arguments are the same; {pending.id} still waits")
            return
        if not click.confirm("Allow it once with these arguments?", default=False, err=True):
            context.out.say(f"{pending.id} still waits")
            return
    encoded = typed_json.dumps(arguments)
    send(context, pending, ApprovalDecision(id=pending.id, verdict="allow", by=os_user(), arguments=encoded))


def _run_editor(text: str) -> str:
    """Return the edited text. Raises DynamicMcpError."""
    with tempfile.TemporaryDirectory(prefix="dynamic-mcp-edit-") as folder:  # other users cannot read it
        file = Path(folder) / "arguments.json"
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
        try:
            click.edit(filename=str(file))
        except click.ClickException as exc:
            raise DynamicMcpError(
                f"the editor failed: {exc.message}; nothing was sent",
                hint="set `$EDITOR`, or give the arguments with `--args`",
            ) from exc
        data = read_bytes(file, most=MOST_BYTES)
        return data.decode(encoding_of(data), "replace").removeprefix("\ufeff")


# --- allow --always: how to change the config so that it does not ask -----------------------------------

# The path of the value to change, the new value, and a note about it.
_Change = tuple[str, object, list[str]]


def print_rule(out: Output, pending: QueuedApproval) -> None:
    """Print the rule that asks, changed so that it leaves this tool out. Writes nothing.

    A rule that asks wins over one that allows, so it is the one to change.
    """
    if pending.kind == SCRIPT:
        out.say(f"a script is no tool; to stop asking about those that it runs, change `{pending.rule}`")
        return
    document = _read_document(pending.config)
    found = _without_approve(document, pending) or _without_rule(document, pending)
    if found is None:
        out.say(f"the rule `{pending.rule}` asks; it is not in `{pending.config}` as it is now")
        return
    where, changed, notes = found
    out.say(f"nothing was written; to stop asking, change `{where}` in `{pending.config}` to:")
    out.print_text(json.dumps(changed, indent=2, ensure_ascii=False))
    for note in notes:
        out.say(f"note: {note}")


def _read_document(config: str) -> Mapping[str, object]:
    """Return the config with the present names of its fields."""
    try:
        document = jsonc.loads(decode(read_bytes(Path(config))))
    except (OSError, ValueError, ConfigError):  # the config has changed since
        return {}
    return Renaming(document).tree if isinstance(document, dict) else {}


def _without_approve(document: Mapping[str, object], pending: QueuedApproval) -> _Change | None:
    """Return the globs of the tools to approve that do not match this one."""
    if pending.rule != f"mcpServers.{pending.group}.approve":
        return None
    globs = _at(document, "mcpServers", pending.group, "approve")
    if not isinstance(globs, list):
        globs = _at(document, "settings", "defaults", "approve")
    if not isinstance(globs, list):
        return None
    matching = [glob for glob in globs if Globs((str(glob),)).matches_variant(pending.name)]
    wide = [glob for glob in matching if any(sign in str(glob) for sign in "*?")]
    notes = [f"`{glob}` also asks for other tools; name those that should still be approved" for glob in wide]
    return pending.rule, [glob for glob in globs if glob not in matching], notes


def _without_rule(document: Mapping[str, object], pending: QueuedApproval) -> _Change | None:
    """Return the rule that asks, with a condition that leaves this tool out."""
    roles = _at(document, "settings", "access", "roles")
    for role, rules in roles.items() if isinstance(roles, dict) else ():
        for number, rule in enumerate(rules if isinstance(rules, list) else ()):
            if isinstance(rule, dict) and rule.get("id", f"roles.{role}[{number}]") == pending.rule:
                notes = [
                    "`when` needs the package `cel-expr-python`; naming the other tools in `tools` does without",
                    "another rule must allow the tool, unless `settings.access.default` does",
                ]
                return f"settings.access.roles.{role}[{number}]", _with_exception(rule, pending), notes
    return None


def _with_exception(rule: Mapping[str, object], pending: QueuedApproval) -> dict[str, object]:
    exception = f"!(server == {json.dumps(pending.group)} && name == {json.dumps(pending.name)})"
    when = rule.get("when")
    return {**rule, "when": f"({when}) && {exception}" if when else exception}


def _at(document: object, *path: str) -> object:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document
