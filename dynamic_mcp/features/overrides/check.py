"""Checks overrides: those that match nothing, tools that cannot be shown as configured, and invalid values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Raw

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs, guess, warning
from dynamic_mcp.features.overrides.config import Override
from dynamic_mcp.features.overrides.overrides import Overrides
from dynamic_mcp.features.overrides.schema import CannotShow, ToolSchema
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import wire
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
        presented = {name: tool for name, tool in catalog.tools.items() if presentation.tools.allows(name)}
        for complaint in Overrides(overrides).show(presented).complaints:
            yield warning(place, complaint)


def _check_override(override: Override, tools: Mapping[str, Raw], place: Keys) -> Iterator[Finding]:
    matching = {name: tool for name, tool in tools.items() if Globs((override.tools,)).matches(name)}
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
