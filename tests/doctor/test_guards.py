"""What is found wrong with guards and with rules on what is replaced."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Raw

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.config.rules import Guard, Redact, Rules
from dynamic_mcp.doctor.findings import Finding
from dynamic_mcp.doctor.guards import check_guards, check_redact
from dynamic_mcp.features.approvals.check import check
from dynamic_mcp.features.approvals.config import Approval
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from tests.fakes import config_of, group_config, tool

Check = Callable[[Config, Mapping[str, Catalog]], Iterator[Finding]]
OWN = "mcpServers.a."


def catalog(**properties: Any) -> Catalog:
    """Return a catalog with a tool for each name, whose arguments are these."""
    listed = {
        name: tool(name, inputSchema={"type": "object", "properties": {each: {} for each in names}})
        for name, names in properties.items()
    }
    return Catalog({ListKind.TOOLS: Listing({name: Raw(json.dumps(each).encode()) for name, each in listed.items()})})


CATALOGS = {"a": catalog(query=["sql"], list_tables=["schema"]), "b": catalog(run=["cmd"])}


def found(check: Check, *rules: Guard | Redact, catalogs: Mapping[str, Catalog] = CATALOGS) -> dict[str, str]:
    own = Rules(
        guards=tuple(each for each in rules if isinstance(each, Guard)),
        redact=tuple(each for each in rules if isinstance(each, Redact)),
    )
    config = config_of(
        group_config("a", rules=own), group_config("b", rules=own if "settings" in rules[0].id else Rules())
    )
    return {each.where: f"{each.what} {each.hint}" for each in check(config, catalogs)}


def test_globs_of_guards_that_match_no_known_tool_are_found() -> None:
    guard = Guard(f"{OWN}guards[2]", tools=("query", "qery", "LIST_*", "*"), deny="x")
    assert found(check_guards, guard) == {
        "mcpServers.a.guards[2].tools[1]": "`qery` matches no tool that its servers are known to have"
        " did you mean `query`?"
    }
    assert found(check_guards, guard, catalogs={}) == {}


def test_a_rule_of_the_settings_is_about_the_tools_of_all_servers() -> None:
    assert found(check_guards, Guard("settings.guards[0]", tools=("run", "query"), deny="x")) == {}
    assert list(found(check_guards, Guard("settings.guards[0]", tools=("walk",), deny="x"))) == [
        "settings.guards[0].tools[0]"
    ]
    assert (
        found(check_guards, Guard("settings.guards[0]", tools=("walk",), deny="x"), catalogs={"a": CATALOGS["a"]})
        == {}
    )


def test_an_argument_that_no_tool_describes_is_found() -> None:
    said = found(
        check_guards,
        Guard(f"{OWN}guards[0]", path="$.sql", deny="x"),
        Guard(f"{OWN}guards[1]", path="$.sqll[0].text", deny="x"),
        Guard(f"{OWN}guards[2]", path="$..anything", deny="x"),
        Guard(f"{OWN}guards[3]", tools=("list_tables",), path="$.sql", allow="x"),
    )
    assert list(said) == ["mcpServers.a.guards[1].argument", "mcpServers.a.guards[3].argument"]
    assert "did you mean `sql`?" in said["mcpServers.a.guards[1].argument"]
    assert "all their calls are refused" in said["mcpServers.a.guards[3].argument"]


def test_rules_on_texts_that_are_about_nothing_or_find_nothing_are_found() -> None:
    said = found(
        check_redact,
        Redact(f"{OWN}redact[0]", tools=("walk",), pattern="x*"),
        Redact(f"{OWN}redact[1]", tools=("query",), pattern="x+"),
        Redact(f"{OWN}redact[2]", presets=("keys",)),
    )
    assert list(said) == ["mcpServers.a.redact[0].pattern", "mcpServers.a.redact[0].tools[0]"]


def test_a_guard_that_asks_needs_somebody_who_is_told() -> None:
    rules = Rules(guards=(Guard("g", deny="x", effect="ask"),))
    alone = Approval(channels=("client",))
    (finding,) = check(config_of(group_config("a", rules=rules), approval=alone), dict)
    assert finding.where == "settings.approval.channels"
