"""Overrides of tools and arguments: what is shown for them, and what is sent for what a model gives."""

from __future__ import annotations

import pytest
from msgspec import Raw

from dynamic_mcp.errors import InvalidArguments
from tests.features.overrides.overridden import Json, overrides_of, restored, shown, tools_of

TEXT = {"type": "string"}


def test_what_an_override_does_not_give_stays_as_the_server_says_it() -> None:
    own = {"title": "T", "description": "D", "annotations": {"readOnlyHint": True, "x": [1]}, "_meta": {"a": 1.0}}
    tools = tools_of(t={**own, "inputSchema": {"type": "object"}})
    (tool,) = shown(overrides_of(t={"title": "New", "annotations": {"idempotentHint": True}}), tools).values()
    assert tool == {
        **own,
        "name": "t",
        "inputSchema": {"type": "object"},
        "title": "New",
        "annotations": {"readOnlyHint": True, "x": [1], "idempotentHint": True},
    }


def test_a_glob_is_about_all_its_tools_and_what_is_not_about_them_stays_the_same_object() -> None:
    tools = tools_of(get_a={}, get_b={}, set_a={})
    found = overrides_of(**{"get_*": {"description": "Reads."}}).show(tools).entries
    assert [b'"Reads."' in bytes(found[name]) for name in tools] == [True, True, False]
    assert found["set_a"] is tools["set_a"]


def test_an_exact_name_wins_over_globs_and_the_first_glob_over_others_member_by_member() -> None:
    overrides = overrides_of(
        **{
            "*": {"title": "any", "description": "any", "annotations": {"readOnlyHint": True}},
            "get_*": {"title": "getter", "annotations": {"readOnlyHint": False, "openWorldHint": True}},
            "get_a": {"title": "a"},
        }
    )
    tool = shown(overrides, tools_of(get_a={}, get_b={}))["get_a"]
    assert (tool["name"], tool["title"], tool["description"]) == ("get_a", "a", "any")
    assert tool["annotations"] == {"readOnlyHint": True, "openWorldHint": True}


def test_arguments_are_merged_too_and_a_value_is_either_fixed_or_a_default() -> None:
    overrides = overrides_of(
        **{
            "*": {"arguments": {"a": {"fixed": "every"}, "b": {"fixed": "every", "description": "B"}}},
            "t": {"arguments": {"a": {"default": "own"}}},
        }
    )
    tools = tools_of(t={"a": TEXT, "b": TEXT, "c": TEXT})
    assert shown(overrides, tools)["t"]["inputSchema"]["properties"] == {"a": {**TEXT, "default": "own"}, "c": TEXT}
    assert restored(overrides, tools, "t", {"c": "x"}) == {"a": "own", "b": "every", "c": "x"}


def test_a_glob_sends_nothing_to_a_tool_that_describes_no_such_argument() -> None:
    overrides = overrides_of(**{"*": {"arguments": {"repo": {"fixed": "acme/app"}}}})
    tools = tools_of(with_repo={"repo": TEXT}, without={})
    assert restored(overrides, tools, "with_repo", {}) == {"repo": "acme/app"}
    assert restored(overrides, tools, "without", {}) == {}


def test_an_exact_name_sends_it_wherever_the_tool_may_take_it() -> None:
    overrides = overrides_of(t={"arguments": {"repo": {"fixed": "acme/app"}}})
    assert restored(overrides, tools_of(t={"inputSchema": {"type": "object"}}), "t", {}) == {"repo": "acme/app"}
    assert overrides.show(tools_of(t={"a": TEXT})).complaints == (
        "the tool `t` was left out, because of its override: `repo` does not take the value that the config gives",
    )


def test_nothing_given_is_no_arguments() -> None:
    tools = tools_of(t={"a": TEXT})
    for overrides, sent in (
        ({"fixed": "x"}, b'{"a":"x"}'),
        ({"default": "x"}, b'{"a":"x"}'),
        ({"rename": "b"}, None),
    ):
        tool = overrides_of(t={"arguments": {"a": overrides}}).show(tools).by_name["t"]
        found = tool.restore(None)
        assert (None if found is None else bytes(found)) == sent
        assert bytes(tool.restore(Raw(b"null")) or b"") == (sent or b"null")


@pytest.mark.parametrize("given", [b"[]", b'"a"', b"5", b"{"])
def test_what_is_no_object_is_refused(given: bytes) -> None:
    tool = overrides_of(t={"arguments": {"a": {"fixed": 1}}}).show(tools_of(t={"a": {}})).by_name["t"]
    with pytest.raises(InvalidArguments):
        tool.restore(Raw(given))


def test_a_name_that_comes_twice_cannot_bring_back_what_is_fixed() -> None:
    tool = overrides_of(t={"arguments": {"a": {"fixed": 1}}}).show(tools_of(t={"a": {}})).by_name["t"]
    assert tool.restore(Raw(b'{"a":2,"a":3,"b":4}')) == Raw(b'{"b":4,"a":1}')
    assert tool.restore(Raw(b'{"a":2,"a":1}')) == Raw(b'{"a":1}')


@pytest.mark.parametrize("name", ["A", "\\u0041", "old", "OLD", "Hidden", "hidden"])
def test_the_servers_names_of_what_is_not_shown_are_refused_in_any_case(name: str) -> None:
    arguments: Json = {"a": {"fixed": 1}, "old": {"rename": "new"}, "hidden": {"hide": True}}
    tools = tools_of(t={"inputSchema": {"type": "object", "properties": {"a": {}, "old": {}, "hidden": {}}}})
    tool = overrides_of(t={"arguments": arguments}).show(tools).by_name["t"]
    with pytest.raises(InvalidArguments, match="is not a parameter of `t`"):
        tool.restore(Raw(b'{"%s":2}' % name.encode()))


def test_a_kelvin_sign_is_no_way_around_the_case() -> None:
    tool = overrides_of(t={"arguments": {"key": {"fixed": 1}}}).show(tools_of(t={"key": {}})).by_name["t"]
    with pytest.raises(InvalidArguments):
        tool.restore(Raw('{"\u212aey":2}'.encode()))


def test_names_that_the_tool_itself_tells_apart_by_case_stay() -> None:
    tools = tools_of(t={"id": {}, "ID": {}})
    overrides = overrides_of(t={"arguments": {"id": {"fixed": 1}}})
    assert restored(overrides, tools, "t", {"ID": 2}) == {"ID": 2, "id": 1}
    again = overrides_of(t={"arguments": {"id": {"rename": "Id"}}})
    assert restored(again, tools, "t", {"Id": 2, "ID": 3}) == {"id": 2, "ID": 3}


def test_arguments_can_swap_their_names_and_take_that_of_a_hidden_one() -> None:
    tools = tools_of(t={"a": TEXT, "b": TEXT, "c": TEXT})
    overrides = overrides_of(t={"arguments": {"a": {"rename": "b"}, "b": {"rename": "a"}}})
    assert restored(overrides, tools, "t", {"a": "1", "b": "2"}) == {"b": "1", "a": "2"}
    taken = overrides_of(t={"arguments": {"a": {"rename": "c"}, "c": {"hide": True}}})
    assert restored(taken, tools, "t", {"c": "1"}) == {"a": "1"}


def test_two_arguments_by_one_name_are_not_shown() -> None:
    found = overrides_of(t={"arguments": {"a": {"rename": "b"}}}).show(tools_of(t={"a": TEXT, "b": TEXT}))
    assert (dict(found.entries), len(found.complaints)) == ({}, 1)
    assert "two arguments that would be `b`" in found.complaints[0]


def test_what_is_given_as_it_is_sent_stays_the_same_object() -> None:
    tool = overrides_of(t={"arguments": {"a": {"default": 1}}}).show(tools_of(t={"a": {}})).by_name["t"]
    given = Raw(b'{"a": 1.50 , "b":[ ] }')
    assert tool.restore(given) is given
    odd = Raw(b'{"b":  1e400}')
    assert tool.restore(odd) == Raw(b'{"a":1,"b":1e400}')


def test_a_required_argument_cannot_be_hidden_without_a_value() -> None:
    schema = {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}
    tools = tools_of(t={"inputSchema": schema})
    found = overrides_of(t={"arguments": {"a": {"hide": True}}}).show(tools)
    assert "`a` is required, and has no value" in found.complaints[0]
    hidden = overrides_of(t={"arguments": {"a": {"hide": True, "default": "x"}}})
    assert shown(hidden, tools)["t"]["inputSchema"] == {"type": "object", "properties": {}}
    assert restored(hidden, tools, "t", {}) == {"a": "x"}


def test_of_two_tools_by_one_name_the_one_that_has_it_from_its_server_stays() -> None:
    found = overrides_of(b={"rename": "a"}).show(tools_of(a={}, b={}))
    assert (list(found.entries), found.by_name["a"].own_name) == (["a"], "a")
    assert found.complaints == ("the tool `b` was left out, because of its override: another one is named `a`",)


def test_a_name_is_free_once_its_tool_has_another() -> None:
    found = overrides_of(a={"rename": "c"}, b={"rename": "a"}).show(tools_of(a={}, b={}))
    assert (found.by_name["a"].own_name, found.complaints) == ("b", ())
