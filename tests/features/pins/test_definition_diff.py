"""How two definitions are compared for a person: what has changed is seen, and nothing in it can hide or pose."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.features.pins.commands.text_diff import Sign, reveal
from dynamic_mcp.features.pins.commands.view import diff_definitions

LONG = " ".join(f"word{number}" for number in range(100))


def diff(before: object, after: object) -> dict[str, list[str]]:
    """Return the lines of each member that differs, each with its sign."""
    found = diff_definitions(*("" if each is None else json.dumps(each) for each in (before, after)))
    return {each.member: [f"{line.sign.value} {line.text}" for line in each.lines] for each in found}


def test_texts_are_compared_word_by_word() -> None:
    before = {"name": "add", "description": "Adds two numbers and returns the sum."}
    after = {"name": "add", "description": "Adds two numbers and mails the sum."}
    assert diff(before, after) == {"description": ["  Adds two numbers and", "- returns", "+ mails", "  the sum."]}


def test_changes_that_few_words_keep_apart_are_one() -> None:
    assert diff({"description": "read a file"}, {"description": "delete a directory"}) == {
        "description": ["- read a file", "+ delete a directory"]
    }


def test_unchanged_words_far_from_a_change_are_counted() -> None:
    first, *_, last = diff({"description": f"{LONG} end"}, {"description": f"{LONG} END"})["description"]
    assert (first, last) == ("@ 88 words are the same", "+ END")


def test_scripts_without_spaces_are_compared_by_character() -> None:
    found = diff("私は東京に住んでいます", "私は大阪に住んでいます")
    assert found == {"text": ["  私は", "- 東京", "+ 大阪", "  に住んでいます"]}


def test_white_space_alone_is_said_to_be_so() -> None:
    assert diff({"title": "a  b\t"}, {"title": "a b"}) == {"title": ["@ only white space differs"]}


def test_empty_lines_do_not_push_words_out_of_sight() -> None:
    found = diff({"description": "Adds."}, {"description": "Adds." + "\n" * 500 + "Then runs it."})
    assert found == {"description": ["  Adds.", "+ Then runs it."]}


def test_schemas_are_compared_name_by_name() -> None:
    before = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a"]}
    after = {"required": ["a", "b"], "properties": {"b": {"type": "number"}, "a": {"type": "string"}, "c": True}}
    assert diff({"inputSchema": before}, {"inputSchema": after}) == {
        "inputSchema": [
            "  {",
            '    "properties": {',
            '      "a": {',
            '-       "type": "number"',
            '+       "type": "string"',
            "      }",
            '      "b": {',
            '        "type": "number"',
            "      }",
            '+     "c": true',
            "    }",
            '    "required": [',
            '      "a"',
            '+     "b"',
            "    ]",
            '-   "type": "object"',
            "  }",
        ]
    }


def test_long_texts_in_a_schema_are_compared_word_by_word() -> None:
    schemas = [{"properties": {"x": {"description": f"{LONG} {end}"}}} for end in ("read", "write")]
    lines = diff({"inputSchema": schemas[0]}, {"inputSchema": schemas[1]})["inputSchema"]
    assert '        "description":' in lines
    assert [line.split() for line in lines if line[0] in "-+"] == [["-", "read"], ["+", "write"]]


def test_unchanged_lines_far_from_a_change_are_counted_but_not_what_is_around_it() -> None:
    fields = {f"f{number:02}": {"type": "string"} for number in range(30)}
    lines = diff({"inputSchema": {"properties": fields}}, {"inputSchema": {"properties": {**fields, "z": 1}}})
    assert lines["inputSchema"] == [
        "  {",
        '    "properties": {',
        "@ 87 lines are the same",
        '      "f29": {',
        '        "type": "string"',
        "      }",
        '+     "z": 1',
        "    }",
        "  }",
    ]


def test_a_number_is_no_boolean() -> None:
    assert diff({"annotations": {"readOnlyHint": True}}, {"annotations": {"readOnlyHint": 1}})["annotations"][
        1:3
    ] == [
        '-   "readOnlyHint": true',
        '+   "readOnlyHint": 1',
    ]


def test_what_is_new_or_gone_is_shown_whole() -> None:
    tool = {"name": "add", "description": "Adds.\nQuickly.", "annotations": {"readOnlyHint": True}}
    shown = diff(None, tool)
    assert shown["description"] == ["+ Adds.", "+ Quickly."]
    assert shown["annotations"] == ["+ {", '+   "readOnlyHint": true', "+ }"]
    assert diff({**tool, "title": ""}, {"name": "add"})["title"] == ["- <empty>"]


def test_what_cannot_be_seen_is_written_out() -> None:
    hidden = "\u200b\u202e\u3164\U000e0041\x1b[2J\u00ad\ud800"
    (line,) = diff({"description": "a"}, {"description": f"a{hidden}"})["description"][1:]
    assert line == "+ a<U+200B><U+202E><U+3164><U+E0041><U+001B>[2J<U+00AD><U+D800>"
    assert "<U+200B>" in "".join(diff({"inputSchema": {}}, {"inputSchema": {"\u200b": "\u200b"}})["inputSchema"])


def test_a_symbol_in_colour_is_no_hidden_character_but_a_row_of_selectors_is() -> None:
    assert reveal("⚠️ careful") == "⚠️ careful"
    assert reveal("⚠\ufe0f\ufe0e\ufe0f") == "⚠<U+FE0F><U+FE0E><U+FE0F>"
    assert reveal("a\ufe0f") == "a<U+FE0F>"


def test_a_text_cannot_pose_as_an_unchanged_line() -> None:
    lines = diff({"description": "Adds."}, {"description": "Sums.\n  Adds.\n@ 5 words are the same\r- gone"})
    assert [line[0] for line in lines["description"]] == ["-", "+", "+", "+"]


def test_what_is_nested_too_deeply_is_still_compared() -> None:
    deep = [f"{'[' * 400}{end}{']' * 400}" for end in (1, 2)]
    found = diff_definitions(f'{{"inputSchema":{deep[0]}}}', f'{{"inputSchema":{deep[1]}}}')
    assert {line.sign for each in found for line in each.lines} >= {Sign.OLD, Sign.NEW}


WORDS = st.text("abé.,\n\t\u200b\u202e\x1b\u2028\ud800\ufe0f⚠", max_size=4)
TEXTS = st.lists(WORDS, max_size=30).map(" ".join)


@given(TEXTS, TEXTS)
def test_no_word_that_is_new_is_left_out_and_no_line_acts_on_a_terminal(before: str, after: str) -> None:
    lines = [line for each in diff_definitions(json.dumps(before), json.dumps(after)) for line in each.lines]
    assert all(line.text.isprintable() for line in lines)
    added = " ".join(line.text for line in lines if line.sign is Sign.NEW)
    words = {reveal(word) for word in after.split(" ") if not {"\n", "\t", "\r"} & set(word)}
    assert all(word in added for word in words if word not in reveal(before))


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | WORDS, lambda x: st.lists(x) | st.dictionaries(WORDS, x))
)
def test_a_value_does_not_differ_from_itself_and_differs_from_another(value: object) -> None:
    assert diff({"outputSchema": value}, {"outputSchema": value}) == {}
    lines = diff({"outputSchema": value}, {"outputSchema": [value]})["outputSchema"]
    assert any(line[0] in "-+" for line in lines)
