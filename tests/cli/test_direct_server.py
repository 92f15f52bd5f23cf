"""The `--header` option, in the two forms that people know."""

from __future__ import annotations

import pytest

from dynamic_mcp.cli.direct_server import parse_headers
from dynamic_mcp.errors import InvalidArguments


@pytest.mark.parametrize(
    ("word", "name", "value"),
    [
        ("Authorization: Bearer abc", "Authorization", "Bearer abc"),
        ("Authorization=Bearer abc", "Authorization", "Bearer abc"),
        ("Authorization:Basic dXNlcjpwdw==", "Authorization", "Basic dXNlcjpwdw=="),
        ("X-Target=http://host:80/?a=b", "X-Target", "http://host:80/?a=b"),
        ("X-Key : ${KEY}", "X-Key", "${KEY}"),
    ],
)
def test_the_first_colon_or_equals_sign_ends_the_name(word: str, name: str, value: str) -> None:
    assert parse_headers([word]) == {name: value}


@pytest.mark.parametrize("word", ["s3cr3t", "s3cr3t:", "=s3cr3t", "a b: s3cr3t", "X:", ""])
def test_what_is_no_header_is_refused_with_an_example(word: str) -> None:
    with pytest.raises(InvalidArguments) as raised:
        parse_headers([word])
    assert "'Authorization: Bearer ${TOKEN}'" in raised.value.hint
