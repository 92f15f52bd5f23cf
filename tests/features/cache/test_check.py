"""What is found wrong with what is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec import Raw

from dynamic_mcp.config.access import ToolEffects
from dynamic_mcp.doctor.findings import Finding
from dynamic_mcp.features.cache.check import check
from dynamic_mcp.features.cache.config import Cache
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from tests.fakes import config_of, group_config, tool


def catalog(*tools: str, resources: tuple[str, ...] = (), templates: tuple[str, ...] = ()) -> Catalog:
    """Return a catalog that is known whole."""
    return Catalog(
        {
            ListKind.TOOLS: Listing({name: Raw(json.dumps(tool(name)).encode()) for name in tools}),
            ListKind.RESOURCES: Listing({uri: Raw(b"{}") for uri in resources}),
            ListKind.TEMPLATES: Listing({uri: Raw(b"{}") for uri in templates}),
        }
    )


CATALOG = catalog("get_item", "delete_item", "query", resources=("x://one",), templates=("y://{id}",))


def find(
    *rules: Cache, catalogs: Mapping[str, Catalog] | None = None, effects: ToolEffects | None = None
) -> list[Finding]:
    """Return what is found wrong with what is kept of one server."""
    config = config_of(group_config("a", rules={"cache": rules}, effects=effects or ToolEffects()))
    return list(check(config, lambda: {"a": CATALOG} if catalogs is None else catalogs))


def test_globs_that_match_nothing_are_found() -> None:
    found = find(Cache("mcpServers.a.cache[0]", tools=("gone_*",), resources=("x://*", "y://7", "z://*")))

    assert [each.where for each in found] == ["mcpServers.a.cache[0].tools[0]", "mcpServers.a.cache[0].resources[2]"]


def test_nothing_is_said_of_what_a_server_has_not_been_asked_for() -> None:
    rule = Cache("mcpServers.a.cache[0]", tools=("x",), resources=("z://*",))

    assert find(rule, catalogs={}) == []
    assert find(rule, catalogs={"a": Catalog()}) == []


def test_tools_that_may_write_are_named_where_their_results_are_to_be_kept() -> None:
    (finding,) = find(
        Cache("mcpServers.a.cache[0]", tools=("*_item", "query")), Cache("mcpServers.a.cache[1]", tools=("*",))
    )

    assert finding.where == "mcpServers.a.cache[0].tools"
    assert "`delete_item`" in finding.what
    assert "`get_item`" not in finding.what
    read = ToolEffects(read=("delete_item", "query"))
    assert find(Cache("mcpServers.a.cache[0]", tools=("*_item",)), effects=read) == []
