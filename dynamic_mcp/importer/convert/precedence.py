"""Which servers a tool does not start because a scope that takes precedence has one of the same name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dynamic_mcp.importer.convert.memory import Key, key_of
from dynamic_mcp.importer.model import ForeignServer, Reading, Scope

_BEFORE = {Scope.LOCAL: 0, Scope.PROJECT: 1, Scope.USER: 2}


def find_shadowed(
    readings: Sequence[Reading], counts: Callable[[ForeignServer], bool]
) -> Mapping[Key, ForeignServer]:
    """Return the server that shadows each shadowed one; only servers that `counts` accepts shadow others.

    Local servers take precedence over the project's, and those over the user's, as in every tool that has these
    scopes. Files of one scope do not shadow each other: they may belong to several editors or profiles.
    """
    candidates = [
        server
        for reading in readings
        if not reading.is_borrowed and reading.source.tool != "file"
        for server in reading.servers
    ]
    first: dict[tuple[str, str], ForeignServer] = {}
    for server in sorted(candidates, key=_rank):
        name = (server.source.tool, server.name)
        if name not in first and counts(server):
            first[name] = server
    winners = ((server, first.get((server.source.tool, server.name))) for server in candidates)
    return {key_of(server): winner for server, winner in winners if winner and _rank(winner) < _rank(server)}


def _rank(server: ForeignServer) -> int:
    return _BEFORE[server.source.scope]
