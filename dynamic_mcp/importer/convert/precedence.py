"""Which servers a tool does not start, since it has another one of the same name in a scope that counts more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dynamic_mcp.importer.convert.memory import Key, key_of
from dynamic_mcp.importer.model import ForeignServer, Reading, Scope

_BEFORE = {Scope.LOCAL: 0, Scope.PROJECT: 1, Scope.USER: 2}


def find_shadowed(
    readings: Sequence[Reading], counts: Callable[[ForeignServer], bool]
) -> Mapping[Key, ForeignServer]:
    """Return the server that each shadowed one gives way to; only those that `counts` holds for shadow others.

    What is local comes before what is the project's, and that before what is the user's, as in every tool that has
    them. Files of one scope shadow nothing of each other: they may be of several editors or profiles.
    """
    candidates = [
        found
        for reading in readings
        if not reading.is_borrowed and reading.source.tool != "file"
        for found in reading.servers
    ]
    first: dict[tuple[str, str], ForeignServer] = {}
    for found in sorted(candidates, key=_rank):
        name = (found.source.tool, found.name)
        if name not in first and counts(found):
            first[name] = found
    winners = ((found, first.get((found.source.tool, found.name))) for found in candidates)
    return {key_of(found): winner for found, winner in winners if winner and _rank(winner) < _rank(found)}


def _rank(found: ForeignServer) -> int:
    return _BEFORE[found.source.scope]
