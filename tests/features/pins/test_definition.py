from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.features.pins.definition import SCHEME, canonical, fingerprint
from tests.examples import examples
from tests.features.pins.schemas import TOOLS, Json, Members, raw

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)


def shuffled(value: Json) -> Json:
    match value:
        case dict():
            return {name: shuffled(value[name]) for name in reversed(value)}
        case list():
            return [shuffled(each) for each in value]
    return value


def test_a_fingerprint_says_how_it_was_made() -> None:
    found = fingerprint(Raw(b'{"name":"get"}'))
    assert found.startswith(SCHEME)
    assert len(found) == len(SCHEME) + 64


@examples(100)
@given(OBJECTS)
def test_the_way_json_is_written_does_not_count(value: Members) -> None:
    expected = fingerprint(raw(value))
    assert fingerprint(Raw(json.dumps(shuffled(value), indent=3, ensure_ascii=False).encode())) == expected
    assert fingerprint(Raw(json.dumps(value, indent=1).encode())) == expected


def test_quotes_that_are_written_as_escapes_are_the_same_quotes() -> None:
    assert fingerprint(Raw(b'{"name":"a\\u0022b"}')) == fingerprint(Raw(b'{"name":"a\\"b"}'))


def test_a_member_that_comes_twice_counts_whichever_a_reader_takes() -> None:
    plain = fingerprint(Raw(b'{"name":"get","description":"reads"}'))
    first = fingerprint(Raw(b'{"name":"get","description":"deletes","description":"reads"}'))
    compensated = fingerprint(
        Raw(b'{"name":"get","description":"\\u0022","description":"reads","x":"\\u0022\\u0022"}')
    )
    assert len({plain, first, compensated}) == 3


def test_numbers_that_readers_tell_apart_are_apart() -> None:
    written = [b"1", b"1.0", b"true", b"18446744073709551617", b"18446744073709551618", b"1e400", b"2e400"]
    assert len({fingerprint(Raw(b'{"minimum":%s}' % each)) for each in written}) == len(written)


def test_what_clients_do_not_show_does_not_count() -> None:
    bare = raw({"name": "get"})
    assert fingerprint(raw({"name": "get", "_meta": {"x": 1}, "icons": [{"src": "https://x"}]})) == fingerprint(bare)


def test_a_member_that_no_revision_has_counts() -> None:
    assert fingerprint(raw({"name": "get", "Description": "x"})) != fingerprint(raw({"name": "get"}))


def test_what_no_reader_takes_for_json_has_a_fingerprint_too() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    assert fingerprint(Raw(b'{"name":%s}' % deep)) != fingerprint(Raw(b'{"name":%s }' % (b"[" * 5001 + b"]" * 5001)))
    assert fingerprint(Raw(b'{"name":"\\ud800"}')) != fingerprint(Raw(b'{"name":"\\ud801"}'))


@examples(100)
@given(TOOLS)
def test_the_canonical_form_is_its_own(tool: Members) -> None:
    assert canonical(Raw(canonical(raw(tool)))) == canonical(raw(tool))
