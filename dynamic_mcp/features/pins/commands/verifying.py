"""`pins verify`: whether servers offer what the lock file has, for CI. Nothing is pinned by that."""

from __future__ import annotations

from collections.abc import Sequence

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.text_diff import reveal
from dynamic_mcp.config.read import list_disabled
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.features.pins.commands.comparison import Comparison, Difference, Survey, survey
from dynamic_mcp.features.pins.commands.review import comparison_to_json, report_errors
from dynamic_mcp.features.pins.commands.view import MOVED, describe, show_server, title
from dynamic_mcp.features.pins.lock_file import find_lock_file
from dynamic_mcp.system.text import pluralize

_MAKE = "`dynamic-mcp pins approve --all --live` makes it, after showing what is in it"
_BESIDE = '; `"settings": { "lock_file": "dynamic-mcp.lock.json" }` keeps it beside the config'


def verify_definitions(this: Invocation, names: tuple[str, ...], *, is_frozen: bool) -> int:
    """Ask the servers and print what differs; return the exit code, 1 if anything does."""
    _require_lock_file(this)
    found = survey(this, names, is_live=True)
    drifts = {each.name: _drift(each, is_frozen=is_frozen) for each in found.servers}
    stale = _stale(found) if is_frozen and not names else []
    is_equal = not any(drifts.values()) and not stale
    if this.out.is_json:
        servers = [
            {
                **comparison_to_json(each, list(each.differences)),
                "equal": not drifts[each.name] and each.error is None,
            }
            for each in found.servers
        ]
        this.out.print_json(
            {
                "equal": is_equal and not any(each.error for each in found.servers),
                "frozen": is_frozen,
                "lock_file": str(found.file),
                "servers": servers,
                "not_in_config": stale,
            }
        )
    _say(this, found, drifts, stale)
    code = report_errors(this, found)
    return code if is_equal else 1


def _drift(server: Comparison, *, is_frozen: bool) -> list[str]:
    """Return in words what must not differ; with `is_frozen`, that is everything."""
    if not server.is_pinned or server.catalog is None:
        return []
    if server.is_moved:
        return [MOVED]
    words = [describe(each) for each in server.differences if is_frozen or _matters(each)]
    if is_frozen:
        words += [reveal(f"{kind.noun} {name}".rstrip()) + ": gone" for kind, name in server.gone]
    return words


def _matters(difference: Difference) -> bool:
    return difference.change is not None or bool(difference.held)


def _say(this: Invocation, found: Survey, drifts: dict[str, list[str]], stale: Sequence[str]) -> None:
    """Say what differs: on a terminal in full, else a line for each definition on stderr."""
    for each in found.servers:
        drift = drifts[each.name]
        if each.error is not None and not drift:
            continue
        if not each.is_pinned:
            this.out.say(f"{each.name}: not compared, as its `definitions` are `trust`")
        elif not drift:
            count = pluralize(len(each.differences), "definition")
            new = f"; {count} not in the lock file, which `--frozen` does not allow" if each.differences else ""
            this.out.say(f"{title(each)}: equal{new}")
        else:
            lines = "".join(f"\n  {line}" for line in drift) if this.out.is_json else ""
            this.out.print_error(f"{title(each)} differs from the lock file{lines}")
            if not this.out.is_json:
                show_server(this.out, each, each.differences, is_whole=False)
    for name in stale:
        this.out.print_error(
            f"`{name}` is in the lock file and not in the config; `dynamic-mcp pins reset` forgets it"
        )


def _stale(found: Survey) -> list[str]:
    known = {group.name for group in found.config.groups} | {*list_disabled(found.config.file)}
    return [name for name in found.lock.servers if name not in known]


def _require_lock_file(this: Invocation) -> None:
    """Raise InvalidArguments if there is nothing to compare with."""
    config = this.read_config()
    file = find_lock_file(config)
    if file.exists():
        return
    raise InvalidArguments(f"there is no lock file `{file}`", hint=_MAKE + ("" if config.lock_file else _BESIDE))
