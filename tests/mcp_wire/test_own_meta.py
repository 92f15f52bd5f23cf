"""What a server writes in `_meta` under a name of the proxy's gets another name, and all else stays as it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.mcp import own_meta
from tests.examples import examples

OWN = "dynamic-mcp/cache"
RENAMED = "upstream.dynamic-mcp/cache"


def renamed(payload: bytes) -> bytes:
    return bytes(own_meta.rename(Raw(payload)))


@pytest.mark.parametrize(
    "name",
    [
        b"dynamic-mcp/cache",
        b"dynamic-mcp\\/cache",
        b"\\u0064ynamic-mcp/cache",
        b"dynamic\\u002Dmcp\\u002fcache",
        b"".join(b"\\u%04x" % each for each in OWN.encode()),
    ],
)
def test_a_name_is_found_however_it_is_written(name: bytes) -> None:
    payload = b'{"content":[],"_meta":{"x": 1.50,"%s":"hit"}}' % name

    assert json.loads(renamed(payload)) == {"content": [], "_meta": {"x": 1.5, RENAMED: "hit"}}
    assert b"1.50" in renamed(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"tools":[{"name":"a","_meta":{"%s":1}}]}',
        b'{"content":[{"type":"resource","resource":{"uri":"x","_meta":{"%s":1}}}]}',
        b'{"inputRequests":{"a":{"method":"elicitation/create","params":{"_meta":{"%s":1}}}}}',
        b'{"code":-1,"message":"m","data":{"_meta":{"%s":1}}}',
    ],
)
def test_it_is_renamed_wherever_the_protocol_has_a_meta(payload: bytes) -> None:
    assert renamed(payload % OWN.encode()) == payload % RENAMED.encode()


@pytest.mark.parametrize(
    "payload",
    [
        b'{"content":[{"type":"text","text":"see dynamic-mcp/cache"}]}',
        b'{"structuredContent":{"_meta":{"dynamic-mcp/cache": 1}}}',
        b'{"dynamic-mcp/cache": 1}',
        b'{"_meta":"dynamic-mcp/cache"}',
        b'{"_meta":{"vendor.example/x":"dynamic-mcp/cache"}}',
    ],
)
def test_what_is_no_name_in_a_meta_keeps_its_bytes(payload: bytes) -> None:
    assert renamed(payload) == payload


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.just(OWN),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["_meta", "a", OWN, "dynamic-mcp/group", "structuredContent"]), inner)
    ),
    max_leaves=20,
)


@examples(100)
@given(_JSON, st.booleans())
def test_no_meta_has_such_a_name_afterwards_and_nothing_is_lost(value: object, ascii_only: bool) -> None:
    payload = json.dumps(value, ensure_ascii=ascii_only).encode()

    after = json.loads(renamed(payload))

    assert json.dumps(after).replace("upstream.dynamic-mcp/", "dynamic-mcp/") == json.dumps(value)
    assert not list(_own_names(after, depth=10))


def _own_names(value: object, depth: int) -> list[str]:
    match value:
        case dict() if depth:
            meta = value.get("_meta")
            found = [name for name in meta if name.startswith("dynamic-mcp/")] if isinstance(meta, dict) else []
            others = [each for key, each in value.items() if key not in ("_meta", "structuredContent")]
            return found + [name for each in others for name in _own_names(each, depth - 1)]
        case list() if depth:
            return [name for each in value for name in _own_names(each, depth - 1)]
    return []
