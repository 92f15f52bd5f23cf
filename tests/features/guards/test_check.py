"""What is found wrong with guards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from dynamic_mcp.config.resolved import Rules
from dynamic_mcp.features.guards.check import check
from dynamic_mcp.features.guards.config import Guard
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from tests.fakes import config_of, group_config, tool

OWN = "mcpServers.a."


def catalog(**properties: Any) -> Catalog:
    """Return a catalog with a tool for each name, whose arguments are these."""
    listed = {
        name: tool(name, inputSchema={"type": "object", "properties": {each: {} for each in names}})
        for name, names in properties.items()
    }
    return Catalog({ListKind.TOOLS: Listing({name: Raw(json.dumps(each).encode()) for name, each in listed.items()})})


CATALOGS = {"a": catalog(query=["sql"], list_tables=["schema"]), "b": catalog(run=["cmd"])}


def found(*guards: Guard, catalogs: Mapping[str, Catalog] = CATALOGS) -> dict[str, str]:
    own: Rules = {"guards": guards}
    config = config_of(
        group_config("a", rules=own), group_config("b", rules=own if "settings" in guards[0].id else {})
    )
    return {each.where: f"{each.what} {each.hint}" for each in check(config, lambda: catalogs)}


def test_globs_of_guards_that_match_no_known_tool_are_found() -> None:
    guard = Guard(f"{OWN}guards[2]", tools=("query", "qery", "LIST_*", "*"), deny="x")
    assert found(guard) == {
        "mcpServers.a.guards[2].tools[1]": "`qery` matches no tool that its servers are known to have"
        " did you mean `query`?"
    }
    assert found(guard, catalogs={}) == {}


def test_a_rule_of_the_settings_is_about_the_tools_of_all_servers() -> None:
    assert found(Guard("settings.defaults.guards[0]", tools=("run", "query"), deny="x")) == {}
    assert list(found(Guard("settings.defaults.guards[0]", tools=("walk",), deny="x"))) == [
        "settings.defaults.guards[0].tools[0]"
    ]
    assert found(Guard("settings.defaults.guards[0]", tools=("walk",), deny="x"), catalogs={"a": CATALOGS["a"]}) == {}


def test_an_argument_that_no_tool_describes_is_found() -> None:
    said = found(
        Guard(f"{OWN}guards[0]", path="$.sql", deny="x"),
        Guard(f"{OWN}guards[1]", path="$.sqll[0].text", deny="x"),
        Guard(f"{OWN}guards[2]", path="$..anything", deny="x"),
        Guard(f"{OWN}guards[3]", tools=("list_tables",), path="$.sql", allow="x"),
    )
    assert list(said) == ["mcpServers.a.guards[1].argument", "mcpServers.a.guards[3].argument"]
    assert "did you mean `sql`?" in said["mcpServers.a.guards[1].argument"]
    assert "all their calls are refused" in said["mcpServers.a.guards[3].argument"]
