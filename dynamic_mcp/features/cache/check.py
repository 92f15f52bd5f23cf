"""Checks cache rules: globs that match nothing, and tools whose results cannot be cached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from dynamic_mcp.config.access import ToolEffects
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.call_rules import check_globs, find_rules, tools_of
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs, warning
from dynamic_mcp.features.cache.config import Cache
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.policy.classify import access_of
from dynamic_mcp.policy.globs import Globs
from dynamic_mcp.system.text import pluralize

_MAX_NAMED = 3
_RESOURCES = (ListKind.RESOURCES, ListKind.TEMPLATES)


def check(config: Config, load_catalogs: KnownCatalogs) -> Iterator[Finding]:
    """Return the findings about `cache`; a rule shared by several servers need not match each of them."""
    catalogs = load_catalogs()
    for rule, servers in find_rules(config, "cache", Cache):
        tools, resources = tools_of(servers, catalogs), _resources_of(servers, catalogs)
        if tools is not None:
            yield from check_globs(f"{rule.id}.tools", rule.tools, tools, matches=Globs.matches)
        if resources is not None:
            yield from check_globs(f"{rule.id}.resources", rule.resources, resources, "resource", Globs.may_match)
        for name in servers:
            if name in catalogs:
                yield from _check_writers(rule, catalogs[name], config.presentations[name].effects)


def _resources_of(servers: Iterable[str], catalogs: Mapping[str, Catalog]) -> list[str] | None:
    """Return the URIs of servers; None if those of a server are unknown."""
    known = [catalogs[name] for name in servers if name in catalogs and catalogs[name].knows(_RESOURCES)]
    if len(known) < len(list(servers)):
        return None
    return list(chain.from_iterable(each.entries(kind) for each in known for kind in _RESOURCES))


def _check_writers(rule: Cache, catalog: Catalog, effects: ToolEffects) -> Iterator[Finding]:
    """Check that named tools can be cached; `*` stands for all read-only ones."""
    globs = Globs(glob for glob in rule.tools if glob != "*")
    matching = {name: tool for name, tool in catalog.tools.items() if globs.matches(name)}
    writers = [name for name, tool in matching.items() if access_of(name, tool, effects).access != "read"]
    if writers:
        named = ", ".join(f"`{name}`" for name in writers[:_MAX_NAMED])
        more = f" and {pluralize(len(writers) - _MAX_NAMED, 'other tool')}" if len(writers) > _MAX_NAMED else ""
        what = f"{named}{more} may change something, so the results are not kept"
        yield warning(f"{rule.id}.tools", what, "put what only reads into `effects.read` of the server")
