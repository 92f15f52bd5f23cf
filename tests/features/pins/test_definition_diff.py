"""How two definitions are compared for a person: changes are seen, and nothing in them can hide or pose."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.features.pins.differences import diff_definitions


def diff(before: object, after: object) -> list[str]:
    return diff_definitions(*(b"" if each is None else json.dumps(each).encode() for each in (before, after)))


def test_definitions_are_compared_by_the_lines_of_their_json() -> None:
    before = {"name": "add", "inputSchema": {"properties": {"a": {}}}}
    after = {"name": "add", "inputSchema": {"properties": {"a": {}, "b": {"type": "string"}}}}
    assert diff(before, after) == [
        "@-2,7 +2,10",
        '   "name": "add",',
        '   "inputSchema": {',
        '     "properties": {',
        '-      "a": {}',
        '+      "a": {},',
        '+      "b": {',
        '+        "type": "string"',
        "+      }",
        "     }",
        "   }",
        " }",
    ]


def test_a_text_is_compared_by_its_own_lines() -> None:
    before, after = (f"Adds numbers.\nReturns the {each}.\n\n  Never fails." for each in ("sum", "total"))
    assert [line for line in diff({"description": before}, {"description": after}) if line[0] in "-+"] == [
        r"-    Returns the sum.\n\n",
        r"+    Returns the total.\n\n",
    ]


def test_empty_lines_do_not_push_words_out_of_sight() -> None:
    flood = "\n" * 500 + "\n \n \r\n" * 500
    found = diff({"description": "Adds."}, {"description": f"Adds.{flood}Then runs it."})
    assert len(found) < 10
    assert found[-2] == '+    Then runs it."'


def test_a_new_definition_is_all_new() -> None:
    assert diff(None, {"name": "add"}) == ["@-0,0 +1,3", "+{", '+  "name": "add"', "+}"]
    assert diff({"name": "add"}, {"name": "add"}) == []


def test_true_is_another_value_than_1() -> None:
    assert [line for line in diff({"a": 1}, {"a": True}) if line[0] in "-+"] == ['-  "a": 1', '+  "a": true']


def test_a_member_that_comes_twice_is_there_twice() -> None:
    found = diff_definitions(b"", b'{"description":"deletes","description":"reads"}')
    assert found[2:4] == ['+  "description": "deletes",', '+  "description (again)": "reads"']


def test_characters_that_a_screen_does_not_show_are_written_as_escapes() -> None:
    hostile = "a\u200bb\u202ec\x1b[2J\r\u3164\ufe0f\U000e0041\u2028\x9b"
    assert diff(None, hostile)[1] == r'+"a\u200bb\u202ec\u001b[2J\r\u3164\ufe0f\udb40\udc41\u2028\u009b"'


@given(st.text(), st.text())
def test_every_line_begins_with_a_sign_and_shows_all_that_it_has(before: str, after: str) -> None:
    lines = diff({"description": before}, {"description": after})
    assert (lines == []) is (before == after)
    assert all(line[0] in "-+ @" and line.isprintable() for line in lines)


def test_what_is_too_deep_or_too_long_to_be_compared_is_shown_whole() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    assert diff_definitions(b"1", deep.encode())[-1] == f"+{deep}"
    old, new = ([each] * 5000 for each in ("a", "b"))
    assert len(diff(old, new)) == 2 * 5002
