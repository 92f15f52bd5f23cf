"""Checks of limits and of what is kept: globs that match nothing, and tools whose results cannot be kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from dynamic_mcp.config.access import ToolAccess
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.rules import Cache, Limit
from dynamic_mcp.doctor.findings import Finding, guess, warning
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.policy.classify import access_of
from dynamic_mcp.policy.globs import Globs
from dynamic_mcp.system.text import pluralize

_MAX_NAMED = 3
_RESOURCES = (ListKind.RESOURCES, ListKind.TEMPLATES)


def check_call_rules(config: Config, catalogs: Mapping[str, Catalog]) -> Iterator[Finding]:
    """Return the findings about `limits` and `cache`; `catalogs` are those that are known, by server.

    A rule that several servers have stands in `settings`, most likely; it need not match something of each.
    """
    for rule, servers in _servers_by_rule(config).items():
        own = "limits" if isinstance(rule, Limit) else "cache"
        number = int(rule.id.removeprefix(f"{own}[").removesuffix("]"))
        place: Keys = ("settings", own, number) if len(servers) > 1 else ("mcpServers", servers[0], own, number)
        known = [catalogs[name] for name in servers if name in catalogs]
        if len(known) == len(servers):
            yield from _check_globs(rule, known, place)
        if isinstance(rule, Cache):
            for name in servers:
                if name in catalogs:
                    yield from _check_writers(rule, catalogs[name], config.presentations[name].access, place)


def _servers_by_rule(config: Config) -> Mapping[Limit | Cache, list[str]]:
    found: dict[Limit | Cache, list[str]] = {}
    for name, shown in config.presentations.items():
        rules: tuple[Limit | Cache, ...] = (*shown.rules.limits, *shown.rules.cache)
        for rule in rules:
            found.setdefault(rule, []).append(name)
    return found


def _check_globs(rule: Limit | Cache, catalogs: Iterable[Catalog], place: Keys) -> Iterator[Finding]:
    """Check the globs of names. What a server has not been asked for is not missing."""
    if all(catalog.knows((ListKind.TOOLS,)) for catalog in catalogs):
        names = [name for catalog in catalogs for name in catalog.tools]
        for number, glob in enumerate(rule.tools):
            if glob != "*" and not any(map(Globs((glob,)).matches, names)):
                what = f"`{glob}` matches no tool that the server is known to have"
                yield warning((*place, "tools", number), what, guess(glob, names))
    if isinstance(rule, Cache) and all(catalog.knows(_RESOURCES) for catalog in catalogs):
        entries = list(chain.from_iterable(each.entries(kind) for each in catalogs for kind in _RESOURCES))
        for number, glob in enumerate(rule.resources):
            if glob != "*" and not any(map(Globs((glob,)).may_match, entries)):
                what = f"`{glob}` matches no resource that the server is known to have"
                yield warning((*place, "resources", number), what, guess(glob, entries))


def _check_writers(rule: Cache, catalog: Catalog, access: ToolAccess, place: Keys) -> Iterator[Finding]:
    """Check that what is named can be kept; `*` stands for whatever only reads."""
    globs = Globs(glob for glob in rule.tools if glob != "*")
    matching = {name: tool for name, tool in catalog.tools.items() if globs.matches(name)}
    writers = [name for name, tool in matching.items() if access_of(name, tool, access).access != "read"]
    if writers:
        named = ", ".join(f"`{name}`" for name in writers[:_MAX_NAMED])
        more = f" and {pluralize(len(writers) - _MAX_NAMED, 'other tool')}" if len(writers) > _MAX_NAMED else ""
        what = f"{named}{more} may change something, so the results are not kept"
        yield warning((*place, "tools"), what, "put what only reads into `access.read` of the server")
