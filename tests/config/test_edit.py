from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dynamic_mcp.config import jsonc
from dynamic_mcp.config.edit import NoPlaceError, drop, move, put
from dynamic_mcp.config.keys import Keys

KEYS = st.text('/*,"\\a]}:é ', max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('/*,"\\a]}:é\n', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
NOISE = [
    "",
    "",
    " ",
    "\n",
    "\n    ",
    "\r\n  ",
    "// a, ]\n",
    '/* ,} " */',
    "/**/",
    "/* \n // */",
    "\t//\n",
    "/***/ \n",
]


@st.composite
def json_texts(draw: st.DrawFn) -> tuple[str, object]:
    """Generate JSON as a person may have written it: with comments, blanks and trailing commas anywhere."""

    def gap() -> str:
        return draw(st.sampled_from(NOISE)) + draw(st.sampled_from(NOISE))

    def write(value: object) -> str:
        match value:
            case dict():
                items = [f"{json.dumps(key)}{gap()}:{gap()}{write(member)}" for key, member in value.items()]
            case list():
                items = [write(each) for each in value]
            case _:
                return json.dumps(value)
        inside = ",".join(f"{gap()}{item}{gap()}" for item in items)
        comma = draw(st.sampled_from(["", ","] if items else [""])) + gap()
        return ("{%s}" if isinstance(value, dict) else "[%s]") % (inside + comma)

    value = draw(st.dictionaries(KEYS, JSON, max_size=3))
    return gap() + write(value) + gap(), value


def walk(value: object, path: Keys = ()) -> Iterator[tuple[Keys, object]]:
    """Yield every path in a value, with the value there."""
    yield path, value
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from walk(inner, (*path, key))


def with_value(value: object, path: Keys, new: object) -> object:
    """Return the value with a new one at a path."""
    if not path:
        return new
    if isinstance(value, dict):
        return {**value, path[0]: with_value(value.get(path[0]), path[1:], new)}
    assert isinstance(value, list)
    return [with_value(item, path[1:], new) if n == path[0] else item for n, item in enumerate(value)]


def same(one: object, other: object) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def comments(text: str) -> str:
    return re.sub(r"\s", "", "".join(c for c, p in zip(text, jsonc.blank_comments(text), strict=True) if c != p))


@given(json_texts(), JSON, st.data())
def test_what_is_put_is_read_again_and_nothing_else_is_another(
    source: tuple[str, object], new: object, data: st.DataObject
) -> None:
    text, value = source
    path, _ = data.draw(st.sampled_from(list(walk(value))))
    assert same(jsonc.loads(put(text, path, new)), with_value(value, path, new))


@given(json_texts(), JSON, KEYS, st.data())
def test_a_new_member_comes_last_and_costs_no_byte_of_the_others(
    source: tuple[str, object], new: object, key: str, data: st.DataObject
) -> None:
    text, value = source
    path, there = data.draw(st.sampled_from([place for place in walk(value) if isinstance(place[1], dict)]))
    assert isinstance(there, dict)
    assume(key not in there)
    result = put(text, (*path, key), new)
    assert same(jsonc.loads(result), with_value(value, (*path, key), new))
    assert comments(result) == comments(text)
    letters = iter(result)
    assert all(letter in letters for letter in text), "each byte of the text is in the result, in its order"


@given(json_texts(), JSON, KEYS, st.data())
def test_what_was_put_and_is_dropped_leaves_the_text_as_it_was(
    source: tuple[str, object], new: object, key: str, data: st.DataObject
) -> None:
    text, value = source
    path, there = data.draw(st.sampled_from([place for place in walk(value) if isinstance(place[1], dict)]))
    assert isinstance(there, dict)
    assume(there and key not in there)
    eol = "\r\n" if text[text.find("\n") - 1 : text.find("\n")] == "\r" else "\n"
    text = text.replace("\r\n", "\n").replace("\n", eol)
    assert drop(put(text, (*path, key), new), (*path, key)) == text


@given(json_texts(), st.data())
def test_what_is_dropped_is_gone_and_the_comments_are_not(source: tuple[str, object], data: st.DataObject) -> None:
    text, value = source
    path, _ = data.draw(st.sampled_from(list(walk(value))[1:] or [((), None)]))
    assume(path)
    result = drop(text, path)
    *rest, key = path
    expected = json.loads(json.dumps(value))
    inner: Any = expected
    for step in rest:
        inner = inner[step]
    del inner[key]
    assert same(jsonc.loads(result), expected)
    assert len(comments(result)) <= len(comments(text))


@given(json_texts(), KEYS, st.lists(KEYS, max_size=1), st.data())
def test_what_is_moved_is_read_at_its_new_place_and_no_comment_is_lost(
    source: tuple[str, object], key: str, parents: list[str], data: st.DataObject
) -> None:
    text, value = source
    objects = [(path, there) for path, there in walk(value) if isinstance(there, dict)]
    old, there = data.draw(st.sampled_from([(path, there) for path, there in objects if there] or [((), {})]))
    assume(there)
    moved = (*old, data.draw(st.sampled_from(sorted(there))))
    target, members = data.draw(st.sampled_from(objects))
    first = (*parents, key)[0]
    assume(target[: len(moved)] != moved and first not in members)
    result = move(text, moved, (*target, *parents, key))
    assert same(jsonc.loads(result), relocated(value, moved, (*target, *parents, key)))
    assert sorted(comments(result)) == sorted(comments(text))


def relocated(value: object, old: Keys, new: Keys) -> object:
    """Return the value with the member at a path moved to another one."""
    tree: Any = json.loads(json.dumps(value))
    parent = tree
    for key in old[:-1]:
        parent = parent[key]
    member = parent.pop(old[-1])
    parent = tree
    for key in new[:-1]:
        parent = parent[int(key)] if isinstance(parent, list) else parent.setdefault(key, {})
    parent[new[-1]] = member
    return tree


@given(st.text() | st.text('{}[]:,"/*\\ \n1a'), KEYS)
def test_any_text_is_changed_or_refused(text: str, key: str) -> None:
    try:
        value = jsonc.loads(text)
    except ValueError:
        with pytest.raises((json.JSONDecodeError, jsonc.DuplicateKeyError)):
            put(text, (key,), 1)
        with pytest.raises((json.JSONDecodeError, jsonc.DuplicateKeyError)):
            drop(text, (key,))
        return
    if isinstance(value, dict) or value is None:
        assert same(jsonc.loads(put(text, (key,), 1)), {**(value or {}), key: 1})


@pytest.mark.parametrize(
    ("text", "path", "value", "result"),
    [
        ('{\n  "a": 1 // one\n}\n', ("b",), 2, '{\n  "a": 1, // one\n  "b": 2\n}\n'),
        ('{\r\n\t"a": 1,\r\n}', ("b",), {"c": []}, '{\r\n\t"a": 1,\r\n\t"b": {\r\n\t\t"c": []\r\n\t},\r\n}'),
        ("\ufeff{}", ("a", "b"), 1, '\ufeff{\n  "a": {\n    "b": 1\n  }\n}'),
        ('{"a": {"b": 1}}', ("a", "c"), [1, {"d": 2}], '{"a": {"b": 1, "c": [1, {"d": 2}]}}'),
        ('{"servers": {}}', ("servers", "x"), {"a": 1}, '{"servers": {"x": {"a": 1}}}'),
        ('{\n    "a": {}\n}', ("a", "b"), 1, '{\n    "a": {\n        "b": 1\n    }\n}'),
        ('{\n  "a": {\n    // "old": 1\n  }\n}', ("a", "b"), 1, '{\n  "a": {\n    "b": 1\n    // "old": 1\n  }\n}'),
        ('{"a": null, "b": 2}', ("a", "x"), 1, '{"a": {"x": 1}, "b": 2}'),
        ('{\n  "a": [\n    "x" // first\n  ]\n}', ("a", 1), "y", '{\n  "a": [\n    "x", // first\n    "y"\n  ]\n}'),
        (
            '{\n  "a": {\n    // why\n    "b": 1, // b\n    "c": 2\n  }\n}',
            ("a",),
            {"b": 3, "d": ["x", "y"]},
            '{\n  "a": {\n    // why\n    "b": 3, // b\n    "d": ["x", "y"]\n  }\n}',
        ),
        ('{ "a" : 1 }', ("a",), 1, '{ "a" : 1 }'),
        ('{"a": 1}', ("a",), True, '{"a": true}'),
        ('{"a": 1, /* last */ }', ("b",), "é", '{"a": 1, "b": "é", /* last */ }'),
    ],
)
def test_what_is_put_looks_like_its_neighbours(text: str, path: Keys, value: object, result: str) -> None:
    assert put(text, path, value) == result


@pytest.mark.parametrize(
    ("text", "path", "result"),
    [
        ('{\n  "a": 1, // one\n  "b": 2\n}\n', ("b",), '{\n  "a": 1 // one\n}\n'),
        ('{\n  "a": 1,\n  "b": 2,\n}\n', ("a",), '{\n  "b": 2,\n}\n'),
        ('{\n  "a": 1,\n  "b": 2,\n}\n', ("b",), '{\n  "a": 1,\n}\n'),
        ('{"a": 1, "b": 2}', ("a",), '{"b": 2}'),
        ('{"a": 1, "b": 2}', ("b",), '{"a": 1}'),
        ('{\n  "a": {\n    "b": 1\n  }\n}', ("a", "b"), '{\n  "a": {}\n}'),
        ('{\n  // about a\n  "a": 1\n}', ("a",), "{\n  // about a\n}"),
        ('{"a": [1, 2, 3]}', ("a", 1), '{"a": [1, 3]}'),
        ('{"a": 1}', ("b",), '{"a": 1}'),
        ('{"a": 1}', ("a", "b"), '{"a": 1}'),
        ('{"a": 1}', (), '{"a": 1}'),
    ],
)
def test_what_is_dropped_takes_its_comma_and_its_line(text: str, path: Keys, result: str) -> None:
    assert drop(text, path) == result


@pytest.mark.parametrize("path", [("a", "b"), ("l", 2), ("l", "x"), ("l", -1), (0,)])
def test_a_value_that_holds_nothing_is_not_overwritten_on_the_way(path: Keys) -> None:
    with pytest.raises(NoPlaceError):
        put('{"a": 1, "l": [1]}', path, 2)


@pytest.mark.parametrize("text", ["", "{", '{"a": 1', "[" * 10_000, '{"a": 1, "a": 2}', "{} x", "{/*}"])
def test_a_text_that_cannot_be_parsed_is_refused(text: str) -> None:
    with pytest.raises((json.JSONDecodeError, jsonc.DuplicateKeyError)):
        put(text, ("b",), 1)
    with pytest.raises((json.JSONDecodeError, jsonc.DuplicateKeyError)):
        drop(text, ("b",))
