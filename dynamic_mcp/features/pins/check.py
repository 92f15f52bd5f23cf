"""Checks whether the definitions of servers match their pins, and which are held back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynamic_mcp.config.resolved import Config, Pinning
from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.doctor.servers import CheckCatalog
from dynamic_mcp.features.pins.definition import PinKind
from dynamic_mcp.features.pins.judgement import Difference, judge
from dynamic_mcp.features.pins.lock_file import PinSet, find_lock_file, pins_of_source, read_lock
from dynamic_mcp.groups.catalog import Catalog
from dynamic_mcp.system.file_store import StoreError
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import one_line, os_reason

_MAX_NAMED = 5


def make_check(config: Config) -> CheckCatalog:
    """Return a check that compares catalogs with the pins of a config."""
    lock, problem, path = PinSet(), "", find_lock_file(config)
    try:
        lock = read_lock(path)
    except (OSError, StoreError) as exc:
        problem = f"its definitions are not compared: `{path}` cannot be read: {os_reason(exc)}"

    def check(group: str, catalog: Catalog) -> Iterator[Finding]:
        presentation = config.presentations.get(group)
        pinning = Pinning() if presentation is None else presentation.pinning
        if pinning.policy == "trust":
            return
        if problem:
            yield Finding(Level.WARNING, group, problem, "repair or remove it")
            return
        stored = lock.servers.get(group)
        pinned = pins_of_source(stored, pinning.source)
        if stored is not None and pinned is None:
            yield Finding(
                Level.NOTE, group, "something else is run than what is pinned", "its definitions will be pinned anew"
            )
        differences = judge(pinned, catalog, pinning.policy).differences
        hint = f"review them with `{format_command('pins', 'diff', group)}`"
        held = [each for each in differences if each.held]
        if held:
            what = f"definitions are held back: {_join(held)}: {held[0].held}"
            yield Finding(Level.WARNING, group, what, hint)
        changed = [each for each in differences if each.before is not None and not each.held]
        if changed:
            since = min(each.before.first_seen for each in changed if each.before is not None)
            yield Finding(Level.WARNING, group, f"definitions changed since {since}: {_join(changed)}", hint)
        for each in differences:
            if each.note and not each.held:
                yield Finding(Level.WARNING, group, f"{_join([each])}: {each.note}", "read its definition")

    return check


def _join(differences: Sequence[Difference]) -> str:
    keys = [each.key for each in differences[:_MAX_NAMED]]
    names = ", ".join(kind.noun if kind is PinKind.INSTRUCTIONS else f"`{one_line(name)}`" for kind, name in keys)
    more = len(differences) - _MAX_NAMED
    return f"{names} and {more} more" if more > 0 else names
