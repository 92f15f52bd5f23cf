"""Shared checks of call rules: the servers of a rule, and whether its globs match."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Raw

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.rules import CallRule
from dynamic_mcp.doctor.findings import Finding, guess, warning
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.policy.globs import Globs

R = TypeVar("R", bound=CallRule)
# Matches globs with a name or a URI.
Matches = Callable[[Globs, str], bool]


def find_rules(config: Config, key: str, kind: type[R]) -> Iterator[tuple[R, list[str]]]:
    """Yield each rule under a key once, with its servers; all are of this kind."""
    servers: dict[R, list[str]] = {}
    for server, presentation in config.presentations.items():
        for rule in presentation.rules_of(key, kind):
            servers.setdefault(rule, []).append(server)
    yield from servers.items()


def tools_of(servers: Iterable[str], catalogs: Mapping[str, Catalog]) -> dict[str, Raw] | None:
    """Return the tools of servers; None if one of them has no known tools."""
    tools: dict[str, Raw] = {}
    for server in servers:
        catalog = catalogs.get(server)
        if catalog is None or not catalog.knows((ListKind.TOOLS,)):
            return None
        tools.update(catalog.tools)
    return tools


def check_globs(
    place: str,
    globs: Sequence[str],
    names: Collection[str],
    noun: str = "tool",
    matches: Matches = Globs.matches_variant,
    *,
    unmet: str = "that its servers are known to have",
) -> Iterator[Finding]:
    """Check that each glob at a place matches a known name of its servers.

    `unmet` ends the message of a finding, after the noun.
    """
    for number, glob in enumerate(globs):
        if glob != "*" and not any(matches(Globs((glob,)), name) for name in names):
            what = f"`{glob}` matches no {noun} {unmet}"
            yield warning(f"{place}[{number}]", what, guess(glob, names))
