"""Checks guards: those that match nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Raw

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.call_rules import check_globs, find_rules, tools_of
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs, guess, warning
from dynamic_mcp.features.guards.config import Guard
from dynamic_mcp.mcp import wire
from dynamic_mcp.policy.globs import Globs

# The first name of a path: `sql` in `$.sql` and in `$.sql[0].text`.
_STOPS = ".[*?@("


def check(config: Config, load_catalogs: KnownCatalogs) -> Iterator[Finding]:
    """Return the findings about `guards`."""
    for rule, servers in find_rules(config, "guards", Guard):
        tools = tools_of(servers, load_catalogs())
        if tools is not None:
            yield from check_globs(f"{rule.id}.tools", rule.tools, tools)
            yield from _check_path(rule, tools)


def _check_path(guard: Guard, tools: Mapping[str, Raw]) -> Iterator[Finding]:
    """Check that a tool describes the argument; a tool that accepts other arguments does not count."""
    name = _first_name(guard.path or "")
    globs = Globs(guard.tools)
    schemas = [
        wire.member(tool, "inputSchema", "properties")
        for name_of_tool, tool in tools.items()
        if globs.matches_variant(name_of_tool)
    ]
    if not name or not schemas or not all(map(len, schemas)):
        return
    names = {each for schema in schemas for each in wire.members(schema)}
    if name not in names:
        what = f"no tool that this guard is about describes an argument `{name}`"
        hint = guess(name, names)
        if guard.allow is not None:
            hint = hint or "so all their calls are refused"
        yield warning(f"{guard.id}.argument", what, hint)


def _first_name(path: str) -> str:
    name = path.removeprefix("$.")
    end = min((at for at in map(name.find, _STOPS) if at >= 0), default=len(name))
    return "" if name == path else name[:end]
