"""Checks of guards and of what is replaced in texts: rules that are about nothing, or that find what they should not.

It connects to nothing: what servers have is known from earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Raw

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.rules import Guard, Redact
from dynamic_mcp.doctor.findings import Finding, guess, warning
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.policy.globs import Globs
from dynamic_mcp.policy.patterns import compile_pattern

# The first name of a path: `sql` in `$.sql` and in `$.sql[0].text`.
_STOPS = ".[*?@("


def check_guards(config: Config, catalogs: Mapping[str, Catalog]) -> Iterator[Finding]:
    """Return the findings about `guards`; `catalogs` are those that are known, by group."""
    for place, each, servers in _rules(config, "guards"):
        assert isinstance(each, Guard)
        known = _tools_of(servers, catalogs)
        if known is None:
            continue
        yield from _check_globs(place, each.tools, known)
        yield from _check_path(place, each, known)


def check_redact(config: Config, catalogs: Mapping[str, Catalog]) -> Iterator[Finding]:
    """Return the findings about `redact`."""
    for place, each, servers in _rules(config, "redact"):
        assert isinstance(each, Redact)
        if each.pattern is not None and compile_pattern(each.pattern).search("") is not None:
            what = "the pattern matches an empty text; each message is looked through, and empty matches stay"
            yield warning((*place, "pattern"), what, "write `+` for `*`")
        known = _tools_of(servers, catalogs)
        if known is not None and each.tools is not None:
            yield from _check_globs(place, each.tools, known)


def _rules(config: Config, kind: str) -> Iterator[tuple[Keys, Guard | Redact, list[str]]]:
    """Yield each rule once, with its place and the servers that follow it."""
    servers: dict[str, list[str]] = {}
    found: dict[str, Guard | Redact] = {}
    for server, presentation in config.presentations.items():
        rules: Sequence[Guard | Redact] = getattr(presentation.rules, kind)
        for each in rules:
            found[each.id] = each
            servers.setdefault(each.id, []).append(server)
    for id, each in found.items():
        number = int(id.rpartition("[")[2].rstrip("]"))
        of_one: Keys = ("mcpServers", servers[id][0])
        yield (*(("settings",) if id.startswith("settings.") else of_one), kind, number), each, servers[id]


def _tools_of(servers: Iterable[str], catalogs: Mapping[str, Catalog]) -> dict[str, Raw] | None:
    """Return the tools of servers; None if those of one of them are not known."""
    tools: dict[str, Raw] = {}
    for server in servers:
        catalog = catalogs.get(server)
        if catalog is None or not catalog.knows((ListKind.TOOLS,)):
            return None
        tools.update(catalog.tools)
    return tools


def _check_globs(place: Keys, globs: Sequence[str], tools: Mapping[str, Raw]) -> Iterator[Finding]:
    for number, glob in enumerate(globs):
        if glob != "*" and not any(map(Globs((glob,)).matches_variant, tools)):
            what = f"`{glob}` matches no tool that its servers are known to have"
            yield warning((*place, "tools", number), what, guess(glob, tools))


def _check_path(place: Keys, guard: Guard, tools: Mapping[str, Raw]) -> Iterator[Finding]:
    """Check that a tool describes the argument; one that may get others as well is no help."""
    name = _first_name(guard.path or "")
    globs = Globs(guard.tools)
    schemas = [
        wire.member(tool, "inputSchema", "properties") for own, tool in tools.items() if globs.matches_variant(own)
    ]
    if not name or not schemas or not all(map(len, schemas)):
        return
    names = {each for schema in schemas for each in wire.members(schema)}
    if name not in names:
        what = f"no tool that this guard is about describes an argument `{name}`"
        hint = guess(name, names)
        if guard.allow is not None:
            hint = hint or "so all their calls are refused"
        yield warning((*place, "argument"), what, hint)


def _first_name(path: str) -> str:
    name = path.removeprefix("$.")
    end = min((at for at in map(name.find, _STOPS) if at >= 0), default=len(name))
    return "" if name == path else name[:end]
