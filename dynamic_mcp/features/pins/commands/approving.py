"""Implements `pins approve`: shows the user what has changed, and approves exactly that."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence

import click

from dynamic_mcp.cli.agreement import require_person
from dynamic_mcp.cli.change_events import record
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.features.pins.approval import CHANGED, ApprovalOutcome, approve, event_of_approval
from dynamic_mcp.features.pins.commands.review import choose, report_errors, say_unchanged, say_unknown
from dynamic_mcp.features.pins.commands.survey import Survey, survey
from dynamic_mcp.features.pins.commands.view import difference_to_json, show_difference, show_server
from dynamic_mcp.features.pins.comparison import ServerComparison
from dynamic_mcp.features.pins.definition import Key
from dynamic_mcp.features.pins.differences import is_plain, key_to_json, title
from dynamic_mcp.features.pins.judgement import Difference
from dynamic_mcp.system.blank import reveal
from dynamic_mcp.system.os_user import os_user
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import pluralize

_MOST_NAMED = 10
_Chosen = Sequence[tuple[ServerComparison, list[Difference]]]


def approve_definitions(
    context: Invocation, server: str | None, names: tuple[str, ...], *, is_sure: bool, is_live: bool
) -> int:
    """Show the differences of one server, or of all, ask, and pin what was shown; return the exit code."""
    require_person("pins approve", seen="what it is about", is_sure=is_sure)
    servers = () if server is None else (server,)
    shown = survey(context, servers, is_live=is_live, asks_unchanged=server is not None)
    if server is not None:
        _require_known(shown.servers[0])
    chosen = [(each, found) for each in shown.servers if (found := choose(each, names))]
    say_unknown(context, shown)
    if not chosen:
        say_unchanged(context, shown, "nothing to approve")
        return _finish(context, shown, ApprovalOutcome())
    if is_sure and not context.out.is_json:
        _show(context.out, chosen, is_whole=bool(names))
    if not is_sure and not _may_approve(context, chosen, is_whole=bool(names)):
        context.out.say("nothing was approved")
        return 1
    just_asked = shown.contacted if is_sure else frozenset[str]()  # a server may change while the user decides
    outcome = _approve(context, shown, chosen, _ask_again(context, chosen, just_asked))
    _say(context, outcome)
    return _finish(context, shown, outcome) or (1 if outcome.refused else 0)


def _may_approve(context: Invocation, chosen: _Chosen, *, is_whole: bool) -> bool:
    """Show the definitions to approve, in full on request, and return whether the user approves them."""
    out = context.out
    if out.is_json:  # a program reads stdout
        out = Output(sys.stderr, sys.stderr, os.environ, as_json=False, is_quiet=False)
    _show(out, chosen, is_whole=is_whole)
    question = f"Approve {_count(chosen)}?"
    if new := 0 if is_whole else sum(is_plain(each) for _, differences in chosen for each in differences):
        if click.confirm(f"Show {pluralize(new, 'new definition')} whole?", default=True, err=True):
            _show_new(out, chosen)
        else:
            question = f"Approve {_count(chosen)}, though new ones were not shown whole?"
    return click.confirm(question, default=False, err=True)


def _show(out: Output, chosen: _Chosen, *, is_whole: bool) -> None:
    for server, differences in chosen:
        show_server(out, server, differences, is_whole=is_whole)


def _show_new(out: Output, chosen: _Chosen) -> None:
    for server, differences in chosen:
        new = [each for each in differences if is_plain(each)]
        if new and len(chosen) > 1:
            out.print_line(title(server), "bold")
        for each in new:
            show_difference(out, each)


def _ask_again(context: Invocation, chosen: _Chosen, just_asked: Collection[str]) -> Mapping[str, Mapping[Key, str]]:
    """Return the fingerprints of the unpinned definitions that servers offer now, by their names."""
    names = tuple(server.name for server, _ in chosen if server.name not in just_asked)
    if not names:
        return {}
    now = survey(context, names, is_live=True)
    for server in now.servers:
        if server.error is not None:
            context.out.say(f"whether `{server.name}` still says what was shown is not known: {server.error.message}")
    return {server.name: {each.key: each.pin.hash for each in server.differences} for server in now.servers}


def _approve(
    context: Invocation, shown: Survey, chosen: _Chosen, offered: Mapping[str, Mapping[Key, str]]
) -> ApprovalOutcome:
    outcome = approve(shown.file, chosen, by=os_user(), offered=offered)
    for server, differences in outcome.approved:
        record(context, shown.config.file, "definitions.approved", event_of_approval(server, differences))
    return outcome


def _say(context: Invocation, outcome: ApprovalOutcome) -> None:
    if outcome.approved:
        context.out.say(f"approved: {_count(outcome.approved)}")
    servers = dict.fromkeys(server.name for server, _, _ in outcome.refused)
    for server, each, reason in outcome.refused[:_MOST_NAMED]:
        what = f"{reveal(each.title)} of `{server.name}` {reason}"
        context.out.print_error(f"not approved: {what}" if outcome.approved else f"{what}; nothing was approved")
    if (more := len(outcome.refused) - _MOST_NAMED) > 0:
        context.out.print_error(f"not approved: {more} more")
    for name in servers:
        reasons = {reason for server, _, reason in outcome.refused if server.name == name}
        verb, does = ("diff", "shows what it is now") if CHANGED in reasons else ("reset", "makes room")
        context.out.say(f"hint: `{format_command('pins', verb, name)}` {does}")


def _require_known(server: ServerComparison) -> None:
    if not server.is_pinned:
        raise InvalidArguments(
            f"`{server.name}` is not pinned", hint="its `definitions` are `trust`; write `warn` or `hold` to pin them"
        )
    if server.catalog is None and server.error is not None:
        raise server.error
    if server.catalog is None:
        raise DynamicMcpError(f"what `{server.name}` offers is not known yet", hint="`--live` asks it")


def _finish(context: Invocation, shown: Survey, outcome: ApprovalOutcome) -> int:
    if context.out.is_json:
        context.out.print_json(
            {
                "lock_file": str(shown.file),
                "approved": [
                    {
                        "server": server.name,
                        "version": server.version,
                        "definitions": [difference_to_json(each) for each in differences],
                    }
                    for server, differences in outcome.approved
                ],
                "not_approved": [
                    {"server": server.name, **key_to_json(each.key), "reason": reason}
                    for server, each, reason in outcome.refused
                ],
            }
        )
    return report_errors(context, shown)


def _count(chosen: _Chosen) -> str:
    """Return the number of definitions to approve, such as `3 definitions of github 1.4 -> 1.5`."""
    if len(chosen) == 1:
        server, differences = chosen[0]
        return f"{pluralize(len(differences), 'definition')} of {title(server)}"
    count = sum(len(differences) for _, differences in chosen)
    return f"{pluralize(count, 'definition')} of {pluralize(len(chosen), 'server')}"
