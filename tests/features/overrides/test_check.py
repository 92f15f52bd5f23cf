"""What is found wrong with overrides: those that are about nothing, and those that a tool cannot follow."""

from __future__ import annotations

from dynamic_mcp.config.access import ToolEffects
from dynamic_mcp.config.resolved import ToolFilter
from dynamic_mcp.features.overrides.check import check
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from tests.fakes import config_of, group_config
from tests.features.overrides.overridden import Json, rules_of, tools_of

TOOLS = tools_of(
    create_issue={"repo": {"type": "string"}, "labels": {"type": "array"}}, get_issue={}, close_issue={"id": {}}
)
CATALOG = Catalog({ListKind.TOOLS: Listing(TOOLS)})


def found(
    overrides: Json, *, is_known: bool = True, exclude: tuple[str, ...] = (), effects: ToolEffects | None = None
) -> dict[str, str]:
    tools = ToolFilter(include=("*",), exclude=exclude)
    presented = group_config("a", rules=rules_of(**overrides), tools=tools, effects=effects or ToolEffects())
    findings = check(config_of(presented), lambda: {"a": CATALOG} if is_known else {})
    return {each.where: f"{each.what}; {each.hint}" for each in findings}


def test_nothing_is_wrong_with_overrides_that_work() -> None:
    arguments = {"repo": {"fixed": "acme/app"}, "labels": {"default": []}}
    assert found({"create_issue": {"rename": "new_issue", "arguments": arguments}, "*_issue": {"title": "x"}}) == {}


def test_a_tool_that_the_server_does_not_have_is_found_and_the_closest_suggested() -> None:
    wrong: Json = {"create_isue": {"title": "x"}, "delete_*": {"title": "y"}}
    findings = found(wrong)
    assert "did you mean `create_issue`?" in findings["mcpServers.a.overrides.create_isue"]
    assert "matches no tool" in findings['mcpServers.a.overrides["delete_*"]']
    assert found(wrong, is_known=False) == {}


def test_an_argument_that_no_matching_tool_has_is_found() -> None:
    (place, what), *others = found({"*_issue": {"arguments": {"rep": {"hide": True}, "id": {"hide": True}}}}).items()
    assert place.endswith('["*_issue"].arguments.rep')
    assert "did you mean `repo`?" in what
    assert others == []


def test_a_default_that_the_tool_does_not_take_is_found() -> None:
    (place,) = found({"create_issue": {"arguments": {"labels": {"default": "bug"}}}})
    assert place == "mcpServers.a.overrides.create_issue.arguments.labels.default"


def test_a_tool_that_is_left_out_is_found_unless_the_filter_has_taken_the_other_one() -> None:
    clash: Json = {"create_issue": {"rename": "get_issue"}}
    assert "another one is named `get_issue`" in found(clash)["mcpServers.a.overrides"]
    assert found(clash, exclude=("get_issue",)) == {}
    fixed: Json = {"create_issue": {"arguments": {"repo": {"fixed": 5}}}}
    assert "`repo` does not take the value" in found(fixed)["mcpServers.a.overrides"]


def test_a_hint_that_a_tool_only_reads_is_found_if_rules_take_it_for_one_that_writes() -> None:
    shown: Json = {"*_issue": {"annotations": {"readOnlyHint": True}}}
    place = 'mcpServers.a.overrides["*_issue"].annotations.readOnlyHint'
    assert "these tools may write: `create_issue`, `close_issue`; `effects.read`" in found(shown)[place]
    assert found(shown, effects=ToolEffects(read=("*_issue",))) == {}
    assert found({"create_issue": {"annotations": {"readOnlyHint": False}}}) == {}
