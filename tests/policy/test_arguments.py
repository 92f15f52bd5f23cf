"""Arguments are read in one way, however they are written."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.mcp import strict_json
from dynamic_mcp.policy.arguments import Arguments, ConditionError

PIECES = (*'{}[]":,01-.eE\\u aAé\x00\n', "9" * 25, "true", "null", "NaN", "d800")
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.one_of(st.integers(), st.floats(), st.booleans(), st.text(), st.dictionaries(st.text(), st.integers())).map(
        json.dumps
    ),
)


@given(TEXTS, TEXTS)
@example("1e400", "1")
@example("-0", "-0.0")
@example("9" * 5000, "1")
@example('"\\ud800"', '"\\ud83d\\ude00"')
@example('1,"a" :2', "3")
def test_arguments_are_what_the_strict_parser_says_of_them(one: str, other: str) -> None:
    for text in (f'{{"a":{one},"b":{other}}}', f'{{"a": {one}, "A": "x:y"}}', f'{{"a" : 1, {other}: {one}}}', one):
        try:
            expected = strict_json.loads(text)
            json.dumps(expected, ensure_ascii=False).encode()
        except ValueError:
            with pytest.raises(ConditionError):
                _ = Arguments(Raw(text.encode() or b"-")).value
        else:
            found = Arguments(Raw(text.encode())).value
            assert repr(found) == repr(expected if isinstance(expected, dict) else None)


@pytest.mark.parametrize("text", [b'{"a":1,"a":2}', b'{"a":1,"a" :2}', b'{"a":":","a":2}', b'{"\\u0061":1,"a":2}'])
def test_a_name_that_is_there_twice_is_an_error(text: bytes) -> None:
    with pytest.raises(ConditionError):
        _ = Arguments(Raw(text)).value
