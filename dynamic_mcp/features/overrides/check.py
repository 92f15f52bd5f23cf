"""Checks overrides: those that match nothing, tools that cannot be shown as configured, and invalid values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Raw

from dynamic_mcp.config.access import ToolEffects
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs, guess, warning
from dynamic_mcp.features.overrides.config import Override
from dynamic_mcp.features.overrides.overrides import Overrides
from dynamic_mcp.features.overrides.schema import CannotShow, ToolSchema
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.policy.classify import access_of
from dynamic_mcp.policy.globs import Globs


def check(config: Config, load_catalogs: KnownCatalogs) -> Iterator[Finding]:
    """Return the findings about `overrides` of servers."""
    catalogs = load_catalogs()
    for server, presentation in config.presentations.items():
        overrides, catalog = presentation.rules_of("overrides", Override), catalogs.get(server)
        if not overrides or catalog is None or not catalog.knows((ListKind.TOOLS,)):
            continue
        place: Keys = ("mcpServers", server, "overrides")
        for override in overrides:
            yield from _check_override(override, catalog.tools, (*place, override.tools))
            yield from _check_hint(override, catalog.tools, presentation.effects, (*place, override.tools))
        presented = {name: tool for name, tool in catalog.tools.items() if presentation.tools.allows(name)}
        for complaint in Overrides(overrides).show(presented).complaints:
            yield warning(place, complaint)


def _check_override(override: Override, tools: Mapping[str, Raw], place: Keys) -> Iterator[Finding]:
    matching = _find_matching(override, tools)
    if not matching:
        what = f"`{override.tools}` matches no tool that the server is known to have"
        yield warning(place, what, guess(override.tools, tools))
        return
    try:
        schemas = {name: ToolSchema(wire.member(tool, "inputSchema")) for name, tool in matching.items()}
        declared = {name for schema in schemas.values() for name in schema.declared}
    except CannotShow:
        return  # which the list reports
    for name, argument in override.arguments.items():
        if name not in declared:
            what = f"no tool that `{override.tools}` matches describes an argument `{name}`"
            yield warning((*place, "arguments", name), what, guess(name, declared))
        elif argument.default is not None:
            for tool, schema in schemas.items():
                if not schema.accepts(name, argument.default):
                    what = f"`{tool}` does not take this value, so it is still required"
                    yield warning((*place, "arguments", name, "default"), what)


def _check_hint(override: Override, tools: Mapping[str, Raw], effects: ToolEffects, place: Keys) -> Iterator[Finding]:
    """Return a warning about tools that clients are told only read, and that rules take for ones that write."""
    if override.annotations.get("readOnlyHint") is not True:
        return
    matching = _find_matching(override, tools)
    writing = [name for name, tool in matching.items() if access_of(name, tool, effects).access == "write"]
    if writing:
        names = ", ".join(f"`{name}`" for name in writing[:3]) + (", …" if writing[3:] else "")
        what = f"is only what clients are shown; for rules, these tools may write: {names}"
        hint = "`effects.read` of the server says what only reads"
        yield warning((*place, "annotations", "readOnlyHint"), what, hint)


def _find_matching(override: Override, tools: Mapping[str, Raw]) -> dict[str, Raw]:
    return {name: tool for name, tool in tools.items() if Globs((override.tools,)).matches(name)}
