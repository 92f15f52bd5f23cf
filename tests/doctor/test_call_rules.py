"""What is found wrong with limits and with what is kept."""

from __future__ import annotations

import json

from msgspec import Raw

from dynamic_mcp.config.access import ToolAccess
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.rules import Cache, Limit, Rules
from dynamic_mcp.doctor.call_rules import check_call_rules
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


def one(*, limits: tuple[Limit, ...] = (), cache: tuple[Cache, ...] = (), access: ToolAccess | None = None) -> Config:
    """Return a config of one server with these rules."""
    return config_of(group_config("a", rules=Rules(limits=limits, cache=cache), access=access or ToolAccess()))


def test_globs_that_match_nothing_are_found_and_a_likely_name_is_suggested() -> None:
    config = one(
        limits=(Limit("limits[0]", rate=1), Limit("limits[1]", tools=("get_*", "get_itm"), rate=1)),
        cache=(Cache("cache[0]", tools=("gone_*",), resources=("x://*", "y://7", "z://*")),),
    )
    found = {each.where: each for each in check_call_rules(config, {"a": CATALOG})}

    assert list(found) == [
        "mcpServers.a.limits[1].tools[1]",
        "mcpServers.a.cache[0].tools[0]",
        "mcpServers.a.cache[0].resources[2]",
    ]
    assert found["mcpServers.a.limits[1].tools[1]"].hint == "did you mean `get_item`?"


def test_nothing_is_said_of_what_a_server_has_not_been_asked_for() -> None:
    config = one(limits=(Limit("limits[0]", tools=("x",), rate=1),), cache=(Cache("cache[0]", resources=("z://*",)),))

    assert list(check_call_rules(config, {})) == []
    assert list(check_call_rules(config, {"a": Catalog()})) == []


def test_tools_that_may_write_are_named_where_their_results_are_to_be_kept() -> None:
    config = one(cache=(Cache("cache[0]", tools=("*_item", "query")), Cache("cache[1]", tools=("*",))))

    (finding,) = check_call_rules(config, {"a": CATALOG})

    assert finding.where == "mcpServers.a.cache[0].tools"
    assert "`delete_item`" in finding.what
    assert "`get_item`" not in finding.what
    read = ToolAccess(read=("delete_item", "query"))
    assert (
        list(check_call_rules(one(cache=(Cache("cache[0]", tools=("*_item",)),), access=read), {"a": CATALOG})) == []
    )


def test_a_rule_of_several_servers_need_not_match_something_of_each() -> None:
    rules = Rules(limits=(Limit("limits[0]", tools=("get_item", "gone"), rate=1),))
    config = config_of(group_config("a", rules=rules), group_config("b", rules=rules))

    found = list(check_call_rules(config, {"a": CATALOG, "b": catalog("other")}))

    assert [each.where for each in found] == ["settings.limits[0].tools[1]"]
    assert list(check_call_rules(config, {"a": CATALOG})) == []
