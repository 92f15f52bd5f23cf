"""`pins approve`: a person sees what has changed, and lets exactly that pass."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

import click
from msgspec.structs import replace

from dynamic_mcp.cli.audit_record import os_user, record
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.pinned_servers import Comparison, Difference, Survey, survey, update_lock
from dynamic_mcp.cli.pins import choose, report_errors, require_person, say_unknown
from dynamic_mcp.cli.pins_view import difference_to_json, is_plain, key_to_json, show_difference, show_server, title
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.policy.pins.definition import Key
from dynamic_mcp.policy.pins.judgement import pin_all
from dynamic_mcp.policy.pins.lock_file import Lock, PinnedServer
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import pluralize

_NOTHING = "nothing is to be approved: what is known is as it is pinned; `--live` asks the servers"
_Chosen = Sequence[tuple[Comparison, list[Difference]]]


def approve_definitions(
    this: Invocation, server: str | None, names: tuple[str, ...], *, is_sure: bool, is_live: bool
) -> int:
    """Show what differs of a server, or of all, ask, and pin what was shown; return the exit code."""
    require_person("approve", is_sure=is_sure)
    servers = () if server is None else (server,)
    shown = survey(this, servers, is_live=is_live)
    if server is not None:
        _require_known(shown.servers[0])
    chosen = [(each, found) for each in shown.servers if (found := choose(each, names))]
    say_unknown(this, shown)
    if not chosen:
        return _finish(this, shown, [], _NOTHING)
    if is_sure and not this.out.is_json:
        _show(this.out, chosen, is_whole=bool(names))
    if not is_sure and not _may_approve(this, chosen, is_whole=bool(names)):
        this.out.say("nothing was approved")
        return 1
    if not is_live:
        _require_unchanged(chosen, survey(this, servers, is_live=False))
    _pin(this, shown, chosen)
    return _finish(this, shown, chosen, f"approved: {_count(chosen)}; running proxies follow")


def _may_approve(this: Invocation, chosen: _Chosen, *, is_whole: bool) -> bool:
    """Show a person what is to be approved, all of it if wanted, and return whether it may pass."""
    out = this.out
    if out.is_json:  # stdout is for a program
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


def _pin(this: Invocation, shown: Survey, chosen: _Chosen) -> None:
    by = os_user()

    def change(lock: Lock) -> Lock:
        for server, differences in chosen:
            lock = lock.with_server(server.name, _approve(lock.servers.get(server.name), server, differences, by))
        return lock

    update_lock(shown.file, change)
    for server, differences in chosen:
        members = {
            "version": server.version,
            "approved": [{**key_to_json(each.key), "hash": each.pin.hash} for each in differences],
        }
        record(this, shown.config.file, "definitions.approved", {"group": server.name, **members})


def _approve(
    now: PinnedServer | None, server: Comparison, differences: Sequence[Difference], by: str
) -> PinnedServer:
    """Return the pins of a server with what was approved. Raises DynamicMcpError if its pins are not as shown."""
    source = server.pinning.source
    pinned = now if now is not None and now.source == source else PinnedServer(source)
    for each in differences:
        pin, before = pinned.find(*each.key), each.before
        if pin is not None and pin.hash not in (each.pin.hash, before.hash if before is not None else ""):
            raise _changed(server.name, each)
    pins = {each.key: replace(each.pin, approved_by=by) for each in differences}
    is_all = len(differences) == len(server.differences)
    return replace(pin_all(pinned, pins), version=server.version if is_all else pinned.version)


def _require_unchanged(chosen: _Chosen, now: Survey) -> None:
    """Raise DynamicMcpError if a server has come to offer something else than was shown."""
    offered: Mapping[str, Mapping[Key, str]] = {
        server.name: {each.key: each.pin.hash for each in server.differences} for server in now.servers
    }
    for server, differences in chosen:
        for each in differences:
            # without a difference, a proxy has pinned it meanwhile; the lock file tells
            if offered[server.name].get(each.key, each.pin.hash) != each.pin.hash:
                raise _changed(server.name, each)


def _changed(server: str, difference: Difference) -> DynamicMcpError:
    command = format_command("pins", "diff", server)
    return DynamicMcpError(
        f"{difference.title} of `{server}` has changed since it was shown; nothing was approved",
        hint=f"`{command}` shows what it is now",
    )


def _require_known(server: Comparison) -> None:
    if not server.is_pinned:
        raise InvalidArguments(
            f"`{server.name}` is not pinned", hint="its `definitions` are `trust`; write `warn` or `hold` to pin them"
        )
    if server.catalog is None and server.error is not None:
        raise server.error
    if server.catalog is None:
        raise DynamicMcpError(f"what `{server.name}` offers is not known yet", hint="`--live` asks it")


def _finish(this: Invocation, shown: Survey, chosen: _Chosen, words: str) -> int:
    if this.out.is_json:
        this.out.print_json(
            {
                "lock_file": str(shown.file),
                "approved": [
                    {
                        "server": server.name,
                        "version": server.version,
                        "definitions": [difference_to_json(each) for each in differences],
                    }
                    for server, differences in chosen
                ],
            }
        )
    this.out.say(words)
    return report_errors(this, shown)


def _count(chosen: _Chosen) -> str:
    """Return how much is to be approved, such as `3 definitions of github 1.4 -> 1.5`."""
    if len(chosen) == 1:
        server, differences = chosen[0]
        return f"{pluralize(len(differences), 'definition')} of {title(server)}"
    count = sum(len(differences) for _, differences in chosen)
    return f"{pluralize(count, 'definition')} of {pluralize(len(chosen), 'server')}"
