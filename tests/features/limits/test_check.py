"""What is found wrong with limits."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from dynamic_mcp.doctor.findings import Finding
from dynamic_mcp.features.limits.check import check
from dynamic_mcp.features.limits.config import Limit
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from tests.fakes import config_of, group_config


def catalog(*tools: str) -> Catalog:
    return Catalog({ListKind.TOOLS: Listing(dict.fromkeys(tools, Raw(b"{}")))})


def find(limits: tuple[Limit, ...], catalogs: Mapping[str, Catalog], *servers: str) -> list[Finding]:
    """Return what is found wrong with limits that all of these servers have."""
    config = config_of(*(group_config(name, rules={"limits": limits}) for name in servers))
    return list(check(config, lambda: catalogs))


def test_globs_that_match_nothing_are_found_and_a_likely_name_is_suggested() -> None:
    limits = (
        Limit("mcpServers.a.limits[0]", rate=1),
        Limit("mcpServers.a.limits[1]", tools=("get_*", "get_itm"), rate=1),
    )

    (finding,) = find(limits, {"a": catalog("get_item", "query")}, "a")

    assert finding.where == "mcpServers.a.limits[1].tools[1]"
    assert finding.hint == "did you mean `get_item`?"


def test_nothing_is_said_of_what_a_server_has_not_been_asked_for() -> None:
    limits = (Limit("limits[0]", tools=("x",), rate=1),)

    assert find(limits, {}, "a") == []
    assert find(limits, {"a": Catalog()}, "a") == []


def test_a_limit_of_several_servers_need_not_match_something_of_each() -> None:
    limits = (Limit("settings.defaults.limits[0]", tools=("get_item", "gone"), rate=1),)

    found = find(limits, {"a": catalog("get_item"), "b": catalog("other")}, "a", "b")

    assert [each.where for each in found] == ["settings.defaults.limits[0].tools[1]"]
    assert find(limits, {"a": catalog("get_item")}, "a", "b") == []
