"""Checks whether servers say of themselves what is pinned, and what of it is held back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from dynamic_mcp.config.resolved import Config, Pinning
from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.doctor.servers import CheckCatalog
from dynamic_mcp.features.pins.definition import Key, PinKind
from dynamic_mcp.features.pins.judgement import judge
from dynamic_mcp.features.pins.lock_file import PinSet, find_lock_file, read_lock
from dynamic_mcp.groups.catalog import Catalog
from dynamic_mcp.system.file_store import StoreError
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import one_line, os_reason

_SHOWN = 5


def make_check(config: Config) -> CheckCatalog:
    """Return what compares catalogs with the pins of a config."""
    return _PinChecker(config).check


class _PinChecker:
    def __init__(self, config: Config) -> None:
        self._pinnings = {name: each.pinning for name, each in config.presentations.items()}
        self._lock, self._problem = PinSet(), ""
        path = find_lock_file(config)
        try:
            self._lock = read_lock(path)
        except (OSError, StoreError) as exc:
            self._problem = f"its definitions are not compared: `{path}` cannot be read: {os_reason(exc)}"

    def check(self, group: str, catalog: Catalog) -> Iterator[Finding]:
        """Return the findings about what a group says of itself."""
        pinning = self._pinnings.get(group, Pinning())
        if pinning.policy == "trust":
            return
        if self._problem:
            yield Finding(Level.WARNING, group, self._problem, "repair or remove it")
            return
        server = self._lock.servers.get(group)
        if server is not None and server.source != pinning.source:
            yield Finding(
                Level.NOTE, group, "something else is run than what is pinned", "what it says now will be pinned"
            )
            server = None
        judgement = judge(server, catalog, pinning.policy, today=datetime.now(UTC).date().isoformat())
        hint = f"review them with `{format_command('pins', 'diff', group)}`"
        held = [*judgement.held]
        if held:
            why = judgement.held[held[0]].text
            yield Finding(Level.WARNING, group, f"definitions are held back: {_join(held)}: {why}", hint)
        changed = [each for each in judgement.changes if (each.kind, each.name) not in judgement.held]
        if changed:
            since = min(each.before.first_seen for each in changed)
            names = _join([(each.kind, each.name) for each in changed])
            yield Finding(Level.WARNING, group, f"definitions changed since {since}: {names}", hint)
        for key, findings in judgement.findings.items():
            if key not in judgement.held:
                yield Finding(Level.WARNING, group, f"{_join([key])}: {findings[0].text}", "read what it says")


def _join(keys: Sequence[Key]) -> str:
    names = ", ".join(
        kind.noun if kind is PinKind.INSTRUCTIONS else f"`{one_line(name)}`" for kind, name in keys[:_SHOWN]
    )
    return f"{names} and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else names
