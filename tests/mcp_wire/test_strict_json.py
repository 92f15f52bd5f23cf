"""JSON has one canonical form exactly if all readers take it in the same way."""

from __future__ import annotations

import pytest

from dynamic_mcp.mcp import strict_json


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1,"b":2}', b'{ "b" : 2, "a": 1 }'),
        (b'{"a":{"y":[],"x":{}}}', b'{"a":{"x":{},"y":[]}}'),
        (b'"\\u00e9\\/"', '"é/"'.encode()),
    ],
)
def test_json_that_all_readers_take_alike_is_equal(one: bytes, other: bytes) -> None:
    assert strict_json.canonical(one) == strict_json.canonical(other)


@pytest.mark.parametrize(
    "values",
    [
        (b"1", b"1.0", b"1e0", b"1E0", b'"1"', b"true"),
        (b"0", b"-0", b"0.0", b"-0.0", b"null", b"false", b'""', b"[]", b"{}"),
        (b"9007199254740992", b"9007199254740993", b"9007199254740993.0"),
        ('"e\u0301"'.encode(), '"\u00e9"'.encode(), b'"e"'),
        (b'{"a":1}', b'{"A":1}', b'{"a":[1]}', b'{"a":1,"b":null}', b'[{"a":1}]', b'"{\\"a\\":1}"'),
        (b"[1,2]", b"[2,1]", b"[12]", b'["1,2"]'),
        (b'"\\ud800"', b'"\\udc00"', b'"\\ufffd"', b'"\\\\ud800"'),
    ],
)
def test_json_that_a_reader_may_take_differently_is_not_equal(values: tuple[bytes, ...]) -> None:
    assert len({strict_json.canonical(value) for value in values}) == len(values)


@pytest.mark.parametrize("text", [b'{"a":1,"a":1}', b"[{}", b"NaN", b"[" * 100_000 + b"]" * 100_000, b"\xff"])
def test_json_that_readers_disagree_about_has_no_canonical_form(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever is wrong with it
        strict_json.canonical(text)
