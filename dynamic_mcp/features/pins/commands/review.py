"""Shows, verifies and resets the pins of servers."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dynamic_mcp.cli.agreement import require_person
from dynamic_mcp.cli.change_events import record
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.config.read import list_disabled
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments, NotFound
from dynamic_mcp.features.pins.commands.survey import Survey, survey
from dynamic_mcp.features.pins.commands.view import difference_to_json, show_server
from dynamic_mcp.features.pins.comparison import ServerComparison, read_lock, update_lock
from dynamic_mcp.features.pins.definition import PinKind, definitions
from dynamic_mcp.features.pins.differences import MOVED, describe, describe_counts, key_to_json, title
from dynamic_mcp.features.pins.judgement import Difference, title_of
from dynamic_mcp.features.pins.lock_file import PinnedServer, PinSet, find_lock_file
from dynamic_mcp.system.blank import reveal
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import pluralize

_MAKE = "`dynamic-mcp pins approve --all --live` makes it, after showing what is in it"
_BESIDE = '; `"settings": { "lock_file": "dynamic-mcp.lock.json" }` keeps it beside the config'


def show_status(context: Invocation, servers: tuple[str, ...], *, is_live: bool) -> int:
    """Print one line per server; return the exit code."""
    found = survey(context, servers, is_live=is_live)
    facts = {"lock_file": str(found.file), "servers": [_status_to_json(each) for each in found.servers]}
    rows = [
        [each.name, each.pinning.policy, reveal(each.version), str(_count_pins(each.pinned)), _state(each)]
        for each in found.servers
    ]
    context.out.print_rows(facts, ["SERVER", "DEFINITIONS", "VERSION", "PINNED", "STATE"], rows)
    if rows and not context.out.is_json:
        seen = "" if is_live else "; STATE is about what servers said when they last ran, `--live` asks them now"
        context.out.say(f"pins are in `{found.file}`{seen}")
    if any(each.held for each in found.servers):
        context.out.say("`dynamic-mcp pins diff` shows what is held, `dynamic-mcp pins approve SERVER` lets it pass")
    return report_errors(context, found)


def show_differences(context: Invocation, server: str | None, names: tuple[str, ...], *, is_live: bool) -> int:
    """Print the differences between definitions and pins; return the exit code.

    A named server is contacted if no difference is known.
    """
    servers = () if server is None else (server,)
    found = survey(context, servers, is_live=is_live, asks_unchanged=server is not None)
    chosen = {each.name: choose(each, names) for each in found.servers}
    say_unknown(context, found)
    if not any(chosen.values()):
        say_unchanged(context, found)
    if context.out.is_json:
        context.out.print_json([_comparison_to_json(each, chosen[each.name]) for each in found.servers])
        return report_errors(context, found)
    for each in found.servers:
        if chosen[each.name] or (each.gone and not names) or each.is_moved:
            show_server(context.out, each, chosen[each.name], is_whole=bool(names))
    return report_errors(context, found)


def verify_definitions(context: Invocation, names: tuple[str, ...], *, is_frozen: bool) -> int:
    """Contact the servers and print the differences; return the exit code, 1 if there are any."""
    _require_lock_file(context)
    found = survey(context, names, is_live=True)
    drifts = {each.name: _drift(each, is_frozen=is_frozen) for each in found.servers}
    stale = _find_stale(found) if is_frozen and not names else []
    is_equal = not any(drifts.values()) and not stale
    if context.out.is_json:
        servers = [
            {
                **_comparison_to_json(each, each.differences),
                "equal": not drifts[each.name] and each.error is None,
            }
            for each in found.servers
        ]
        context.out.print_json(
            {
                "equal": is_equal and not any(each.error for each in found.servers),
                "frozen": is_frozen,
                "lock_file": str(found.file),
                "servers": servers,
                "not_in_config": stale,
            }
        )
    _say_drifts(context, found, drifts, stale)
    code = report_errors(context, found)
    return code if is_equal else 1


def reset_server(context: Invocation, server: str, *, is_sure: bool) -> int:
    """Forget the pins of a server, which may no longer be in the config; return the exit code."""
    config = context.read_config()
    file = find_lock_file(config)
    servers = read_lock(file).servers
    pinned = servers.get(server)
    if pinned is None:
        raise NotFound("server with pins", server, servers, hint=f"pins are in `{file}`")
    require_person("pins reset", seen="what it is about", is_sure=is_sure)
    count = _count_pins(pinned)
    question = f"Forget {pluralize(count, 'pin')} of {server}? What it offers next counts as approved."
    if not is_sure and not click.confirm(question, default=False, err=True):
        context.out.say("nothing was forgotten")
        return 1
    update_lock(file, lambda lock: _without(lock, server, pinned))
    record(context, config.file, "definitions.reset", {"group": server, "pins": count})
    if context.out.is_json_requested:
        context.out.print_json({"server": server, "forgotten": count})
    context.out.say(f"the pins of `{server}` are forgotten; what it offers next is pinned")
    return 0


def choose(server: ServerComparison, names: tuple[str, ...]) -> list[Difference]:
    """Return the differences of a server, or those with these names. Raises NotFound."""
    if not names:
        return list(server.differences)
    offered = [] if server.catalog is None else [(kind, name) for kind, name, _ in definitions(server.catalog)]
    all_names = {name or kind.noun for kind, name in (*offered, *server.gone)}
    for name in names:
        if server.catalog is not None and name not in all_names:
            raise NotFound(f"tool, prompt or resource template of `{server.name}`", name, all_names)
    return [each for each in server.differences if each.name in names]


def report_errors(context: Invocation, found: Survey) -> int:
    """Print why servers could not be asked; return the exit code of the first, or 0."""
    failed = [each.error for each in found.servers if each.error is not None]
    for error in failed:
        context.out.print_error(str(error))
    return failed[0].exit_code if failed else 0


def say_unknown(context: Invocation, found: Survey) -> None:
    """Print the servers without a known catalog."""
    for each in found.servers:
        if each.is_pinned and each.catalog is None and each.error is None:
            context.out.say(f"what `{each.name}` offers is not known yet; `--live` asks it")
        elif not each.is_pinned:
            context.out.say(f"`{each.name}` is not pinned: its `definitions` are `trust`")


def say_unchanged(context: Invocation, found: Survey, verdict: str = "nothing differs") -> None:
    """Print that there are no differences, and whether the servers were contacted."""
    pinned = [each for each in found.servers if each.is_pinned]
    if any(each.name not in found.contacted for each in pinned):
        context.out.say(f"{verdict}: no change was seen since the last approval; `--live` asks the servers now")
    elif any(each.catalog is not None for each in pinned):
        names = ", ".join(f"`{each.name}`" for each in pinned if each.catalog is not None)
        context.out.say(f"{verdict}: {names} was asked now, and nothing has changed since the last approval")


def _comparison_to_json(server: ServerComparison, chosen: Sequence[Difference]) -> dict[str, object]:
    return {
        **_server_to_json(server),
        "differences": [difference_to_json(each) for each in chosen],
        "gone": [key_to_json(key) for key in server.gone],
        "error": None if server.error is None else str(server.error),
    }


def _count_pins(pinned: PinnedServer | None) -> int:
    return 0 if pinned is None else sum(len(pinned.pins(kind)) for kind in PinKind)


def _without(lock: PinSet, server: str, shown: PinnedServer) -> PinSet:
    """Return the pins without a server. Raises DynamicMcpError if they have changed since they were shown."""
    if lock.servers.get(server) != shown:
        command = format_command("pins", "diff", server)
        raise DynamicMcpError(
            f"the pins of `{server}` have changed meanwhile; nothing was forgotten", hint=f"see `{command}`"
        )
    return lock.with_server(server, None)


def _state(server: ServerComparison) -> str:
    if not server.is_pinned:
        return "not pinned"
    if server.error is not None:
        return "failed, see below"
    if server.catalog is None:
        return "not known yet"
    return (f"{MOVED}; " if server.is_moved else "") + describe_counts(server)


def _server_to_json(server: ServerComparison) -> dict[str, object]:
    return {
        "server": server.name,
        "policy": server.pinning.policy,
        "known": server.catalog is not None,
        "moved": server.is_moved,
        "pinned_version": server.pinned.version if server.pinned is not None else "",
        "version": server.version,
    }


def _status_to_json(server: ServerComparison) -> dict[str, object]:
    return {
        **_server_to_json(server),
        "pinned": _count_pins(server.pinned),
        "held": [{**key_to_json(each.key), "reason": each.held} for each in server.held],
        "changed": [key_to_json(each.key) for each in server.differences if each.before is not None],
        "new": [key_to_json(each.key) for each in server.differences if each.before is None],
        "gone": [key_to_json(key) for key in server.gone],
        "error": None if server.error is None else str(server.error),
    }


# --- verifying ----------------------------------------------------------------------------------------------


def _drift(server: ServerComparison, *, is_frozen: bool) -> list[str]:
    """Describe the forbidden differences; with `is_frozen`, all differences are."""
    if not server.is_pinned or server.catalog is None:
        return []
    if server.is_moved:
        return [MOVED]
    lines = [describe(each) for each in server.differences if is_frozen or each.before is not None or each.held]
    if is_frozen:
        lines += [f"{reveal(title_of(key))}: gone" for key in server.gone]
    return lines


def _say_drifts(context: Invocation, found: Survey, drifts: dict[str, list[str]], stale: Sequence[str]) -> None:
    """Print the differences: in full on a terminal, else one line per definition on stderr."""
    for each in found.servers:
        drift = drifts[each.name]
        if each.error is not None and not drift:
            continue
        if not each.is_pinned:
            context.out.say(f"{each.name}: not compared, as its `definitions` are `trust`")
        elif not drift:
            count = pluralize(len(each.differences), "definition")
            new = f"; {count} not in the lock file, which `--frozen` does not allow" if each.differences else ""
            context.out.say(f"{title(each)}: equal{new}")
        else:
            lines = "".join(f"\n  {line}" for line in drift) if context.out.is_json else ""
            context.out.print_error(f"{title(each)} differs from the lock file{lines}")
            if not context.out.is_json:
                show_server(context.out, each, each.differences, is_whole=False)
    for name in stale:
        context.out.print_error(
            f"`{name}` is in the lock file and not in the config; `dynamic-mcp pins reset` forgets it"
        )


def _find_stale(found: Survey) -> list[str]:
    configured = {group.name for group in found.config.groups} | {*list_disabled(found.config.file)}
    return [name for name in found.lock.servers if name not in configured]


def _require_lock_file(context: Invocation) -> None:
    """Raise InvalidArguments if there is no lock file."""
    config = context.read_config()
    file = find_lock_file(config)
    if file.exists():
        return
    raise InvalidArguments(f"there is no lock file `{file}`", hint=_MAKE + ("" if config.lock_file else _BESIDE))
