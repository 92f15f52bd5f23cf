"""What is listed directly beyond its limit is found in a check, as far as the tools are known."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from dynamic_mcp.config.resolved import DirectLimit, ToolFilter
from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.doctor.direct import check_max_direct
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from tests.fakes import PresentedGroup, config_of, group_config, tool

ALL = DirectTools(is_all=True)
THREE = Catalog({ListKind.TOOLS: Listing({name: Raw(json.dumps(tool(name)).encode()) for name in "xyz"})})


@pytest.mark.parametrize(
    ("limit", "is_found"),
    [(DirectLimit(tools=2), True), (DirectLimit(tokens=5), True), (DirectLimit(), False), (None, False)],
)
def test_more_than_the_limit_is_found(limit: DirectLimit | None, is_found: bool) -> None:
    config = config_of(group_config("a", direct=ALL), group_config("b", direct=ALL), max_direct=limit)
    found = list(check_max_direct(config, {"a": THREE}))

    assert bool(found) is is_found


@pytest.mark.parametrize("beside", [(), (group_config("b", direct=ALL),)])
def test_what_auto_lists_counts_too_and_is_said_to_be_for_some_clients(beside: tuple[PresentedGroup, ...]) -> None:
    shown = group_config("a", direct=DirectTools(is_auto=True))
    (finding,) = check_max_direct(config_of(shown, *beside, max_direct=DirectLimit(tools=2)), {"a": THREE})

    assert ("to clients that search tools themselves" in finding.what) is not bool(beside)


def test_only_tools_count_that_some_client_is_listed() -> None:
    shown = group_config("a", direct=ALL, tools=ToolFilter(exclude=("x", "y")))
    others = [group_config("b", direct=DirectTools(globs=("x",))), group_config("c")]
    config = config_of(shown, *others, max_direct=DirectLimit(tools=1))

    assert not list(check_max_direct(config, dict.fromkeys("abc", THREE)))
