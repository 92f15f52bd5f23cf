"""What a request repeats in headers says exactly what its body says, and nothing passes that could be read twice."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp.shared import inbound as peer
from msgspec import Raw

from dynamic_mcp.mcp.mirrored_headers import (
    NONE_MIRRORED,
    HeaderParameters,
    InvalidAnnotation,
    decode_value,
    encode_value,
)
from tests.examples import examples

_TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.text("=?base64?QUFB=/+ \t", max_size=20),
    st.sampled_from(["=?base64?QQ==?=", "=?base64?=", "=?BASE64?QQ==?=", "=?base64?QQ==", " a", "a\t", ""]),
)


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


def schema(properties: dict[str, Any], **more: object) -> Raw:  # Any: a JSON Schema
    return raw({"type": "object", "properties": properties, **more})


# --- values --------------------------------------------------------------------------------------------


@examples(100)
@given(_TEXTS)
def test_every_text_survives_a_header(text: str) -> None:
    value = encode_value(text)
    assert decode_value(value) == text
    assert all(0x20 <= each <= 0x7E for each in value)
    assert value == value.strip()


@examples(100)
@given(_TEXTS)
@example("=?base64?=")
def test_the_official_sdk_reads_what_is_encoded_here_and_the_other_way_round(text: str) -> None:
    assert peer.decode_header_value(encode_value(text).decode()) == text
    assert decode_value(peer.encode_header_value(text).encode()) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("us-west1", b"us-west1"),
        ("Hello, 世界", b"=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", b"=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", b"=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", b"=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_the_examples_of_the_specification_are_encoded_as_it_says(text: str, value: bytes) -> None:
    assert encode_value(text) == value


@pytest.mark.parametrize(
    "value",
    [
        b"=?base64?SGVsbG8?=",  # without padding
        b"=?base64?SGVs!!!bG8=?=",
        b"=?base64?SGVs bG8=?=",
        b"=?base64?QR==?=",  # bits that mean nothing
        b"=?base64?/w==?=",  # no UTF-8
        b"=?base64?7aCA?=",  # half of a character
        b"=?base64?QQ==?=, =?base64?QQ==?=",
        b"caf\xc3\xa9",
        b"a\x00b",
        b"a\rb",
        b"a\x7fb",
    ],
)
def test_a_malformed_value_stands_for_nothing(value: bytes) -> None:
    assert decode_value(value) is None


@pytest.mark.parametrize("value", [b"SGVsbG8=", b"=?base64?SGVsbG8=", b"SGVsbG8=?=", b"=?BASE64?SGVsbG8=?="])
def test_a_value_without_both_marks_stands_for_itself(value: bytes) -> None:
    assert decode_value(value) == value.decode()


@examples(100)
@given(st.binary(max_size=40))
def test_no_value_is_read_in_two_ways(value: bytes) -> None:
    text = decode_value(value)
    if text is not None:
        assert value.strip(b" \t") in (text.encode(), b"=?base64?" + b64encode(text.encode()) + b"?=")


# --- annotations ---------------------------------------------------------------------------------------


def test_a_schema_without_annotations_mirrors_nothing() -> None:
    assert HeaderParameters.of(schema({"a": {"type": "string", "description": "caf\u00e9"}})) is NONE_MIRRORED
    assert NONE_MIRRORED.is_empty
    assert NONE_MIRRORED.headers(raw({"a": "b"})) == ()


def test_an_annotation_is_found_however_it_is_spelled() -> None:
    spelled = Raw(rb'{"properties":{"a":{"type":"string","x\u002dmcp-header":"A"}}}')
    assert HeaderParameters.of(spelled).headers(raw({"a": "b"})) == ((b"Mcp-Param-A", b"b"),)


def test_a_nested_parameter_is_mirrored() -> None:
    nested = schema({"at": {"type": "object", "properties": {"place": {"type": "string", "x-mcp-header": "Place"}}}})
    parameters = HeaderParameters.of(nested)
    assert parameters.headers(raw({"at": {"place": "here"}})) == ((b"Mcp-Param-Place", b"here"),)
    for without in ("{}", '{"at":null}', '{"at":[]}', '{"at":{"place":null}}'):
        assert parameters.headers(Raw(without.encode())) == ()


def test_what_only_looks_like_an_annotation_is_none() -> None:
    harmless = schema(
        {
            "x-mcp-header": {"type": "object", "properties": {"x-mcp-header": {"type": "number"}}},
            "a": {"default": {"x-mcp-header": ""}, "enum": [{"x-mcp-header": 1}], "const": {"x-mcp-header": 2}},
        },
        examples=[{"x-mcp-header": "!"}],
    )
    assert HeaderParameters.of(harmless).is_empty


_ANNOTATED = {"type": "string", "x-mcp-header": "A"}


@pytest.mark.parametrize(
    "properties",
    [
        *(
            {"a": {"type": "string", "x-mcp-header": name}}
            for name in ("", " ", "A B", "A:", "\u00e9", "A\r\nX: y", "A\n")
        ),
        *({"a": {"type": "string", "x-mcp-header": name}} for name in (None, 1, True, ["A"])),
        *(
            {"a": {"type": kind, "x-mcp-header": "A"}}
            for kind in ("number", "object", "array", "null", ["string"], 1)
        ),
        {"a": {"x-mcp-header": "A"}},
        {"a": _ANNOTATED, "b": _ANNOTATED},
        {"a": _ANNOTATED, "b": {"type": "string", "x-mcp-header": "a"}},
        {"a": {"type": "array", "items": _ANNOTATED}},
        {"a": {"type": "array", "items": [_ANNOTATED]}},
        {"a": {"type": "object", "additionalProperties": _ANNOTATED}},
        {"a": {"patternProperties": {"a": _ANNOTATED}}},
        *({"a": {keyword: [{"properties": {"a": _ANNOTATED}}]}} for keyword in ("anyOf", "oneOf", "allOf")),
        *({"a": {keyword: _ANNOTATED}} for keyword in ("not", "if", "then", "else", "contains")),
    ],
    ids=ascii,
)
def test_an_annotation_that_is_not_allowed_is_refused(properties: dict[str, Any]) -> None:
    with pytest.raises(InvalidAnnotation):
        HeaderParameters.of(schema(properties))


def test_an_annotation_outside_the_properties_is_refused() -> None:
    for document in ({"$defs": {"a": _ANNOTATED}}, _ANNOTATED, {"allOf": [{"properties": {"a": _ANNOTATED}}]}):
        with pytest.raises(InvalidAnnotation):
            HeaderParameters.of(raw(document))


def test_a_schema_that_nests_too_deeply_to_be_searched_is_refused() -> None:
    deep = b'{"not":' * 100_000 + b'{"x-mcp-header":"A"}' + b"}" * 100_000
    with pytest.raises(InvalidAnnotation):
        HeaderParameters.of(Raw(deep))


def test_a_reason_has_no_control_characters_of_the_server() -> None:
    with pytest.raises(InvalidAnnotation) as refused:
        HeaderParameters.of(schema({"a\r\n\x1b[1m": {"type": "string", "x-mcp-header": "\r\n"}}))
    assert str(refused.value).isprintable()


_NAMES = st.sampled_from(["a", "b", "A", "x-mcp-header", "properties", ""])
_SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "boolean", "number", "object", ["string"]]),
            "x-mcp-header": st.sampled_from(["A", "a", "B", "C", "", "A B", 1]),
            "default": st.just({"x-mcp-header": ""}),
        },
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"properties": st.dictionaries(_NAMES, inner, max_size=4)}),
        st.fixed_dictionaries({"properties": st.dictionaries(_NAMES, inner), "anyOf": st.lists(inner, max_size=2)}),
        st.fixed_dictionaries({"items": inner}),
        st.fixed_dictionaries({"$defs": st.dictionaries(_NAMES, inner, max_size=2)}),
    ),
    max_leaves=8,
)
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), _TEXTS, st.just([]), st.integers(-9, 9).map(float), st.just(1.5)
)
_ARGUMENTS = st.dictionaries(
    _NAMES,
    st.one_of(_VALUES, st.dictionaries(_NAMES, st.one_of(_VALUES, st.dictionaries(_NAMES, _VALUES)))),
    max_size=5,
)


@examples(100)
@given(_SCHEMAS)
def test_the_same_schemas_are_refused_as_by_the_official_sdk(document: dict[str, Any]) -> None:
    expected = peer.find_invalid_x_mcp_header(document)
    try:
        HeaderParameters.of(raw(document))
    except InvalidAnnotation:
        assert expected is not None
    else:
        assert expected is None


# --- what is sent, and what is checked -----------------------------------------------------------------

_EACH_TYPE = schema(
    {
        "s": {"type": "string", "x-mcp-header": "S"},
        "i": {"type": "integer", "x-mcp-header": "I"},
        "b": {"type": "boolean", "x-mcp-header": "B"},
        "o": {"type": "object", "properties": {"s": {"type": "string", "x-mcp-header": "O-S"}}},
        "n": {"type": "number"},
    }
)
_CALLS = st.dictionaries(
    st.sampled_from("sibn"), st.one_of(_VALUES, st.integers(10**15, 10**40)), max_size=4
) | st.fixed_dictionaries({"s": _TEXTS, "o": st.fixed_dictionaries({"s": _VALUES})})


def lowered(headers: tuple[tuple[bytes, bytes], ...]) -> dict[bytes, bytes]:
    return {name.lower(): value for name, value in headers}


@examples(100)
@given(_CALLS)
def test_what_is_sent_agrees_with_the_body_here_and_for_the_official_sdk(arguments: dict[str, Any]) -> None:
    parameters = HeaderParameters.of(_EACH_TYPE)
    headers = parameters.headers(raw(arguments))
    assert parameters.find_mismatch(raw(arguments), lowered(headers)) == ""
    told = {name.decode(): value.decode() for name, value in headers}
    assert peer.validate_mcp_param_headers(json.loads(bytes(_EACH_TYPE)), arguments, told) is None


@examples(100)
@given(_CALLS)
def test_what_the_official_sdk_sends_agrees_with_the_body(arguments: dict[str, Any]) -> None:
    told = peer.mcp_param_headers(peer.x_mcp_header_map(json.loads(bytes(_EACH_TYPE))), arguments)
    headers = {name.lower().encode(): value.encode() for name, value in told.items()}
    assert HeaderParameters.of(_EACH_TYPE).find_mismatch(raw(arguments), headers) == ""


@examples(100)
@given(_CALLS, _CALLS)
def test_headers_of_another_call_are_a_mismatch_here_and_for_the_official_sdk(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    parameters = HeaderParameters.of(_EACH_TYPE)
    headers = parameters.headers(raw(other))
    mismatch = parameters.find_mismatch(raw(one), lowered(headers))
    told = {name.decode(): value.decode() for name, value in headers}
    refused = peer.validate_mcp_param_headers(json.loads(bytes(_EACH_TYPE)), one, told)
    assert bool(mismatch) == (refused is not None)


@pytest.mark.parametrize(
    ("body", "header"),
    [
        ("42", b"42"),
        ("42", b"42.0"),
        ("42.0", b"42"),
        ("42", b"042"),
        ("4.2e1", b"42"),
        ("0", b"-0"),
        ("9007199254740993", b"9007199254740993"),
        ("9" * 6000, b"9" * 6000),
        ("1e999", b"1e999"),
    ],
)
def test_integers_are_compared_as_numbers(body: str, header: bytes) -> None:
    parameters = HeaderParameters.of(_EACH_TYPE)
    assert parameters.find_mismatch(Raw(b'{"i":%s}' % body.encode()), {b"mcp-param-i": header}) == ""


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"i": 42}, {b"mcp-param-i": b"43"}),
        ({"i": 42}, {b"mcp-param-i": b"42.5"}),
        ({"i": 42}, {b"mcp-param-i": b"4.2e1"}),
        ({"i": 42}, {b"mcp-param-i": b"+42"}),
        ({"i": 42}, {b"mcp-param-i": "٤٢".encode()}),
        ({"i": 9007199254740993}, {b"mcp-param-i": b"9007199254740992"}),
        ({"i": 42}, {b"mcp-param-i": b"42, 42"}),
        ({"i": 42}, {}),
        ({}, {b"mcp-param-i": b"42"}),
        ({"i": None}, {b"mcp-param-i": b"null"}),
        ({"i": {}}, {b"mcp-param-i": b"{}"}),
        ({"b": True}, {b"mcp-param-b": b"True"}),
        ({"s": "Region"}, {b"mcp-param-s": b"region"}),
        ({"s": ""}, {}),
        ({"s": "a"}, {b"mcp-param-s": b"=?base64?QR==?="}),
        ({"s": "=?base64?QQ==?="}, {b"mcp-param-s": b"=?base64?QQ==?="}),
        ({"o": {"s": "a"}}, {}),
        ({"o.s": "a"}, {b"mcp-param-o-s": b"a"}),
    ],
    ids=ascii,
)
def test_a_header_that_says_something_else_is_a_mismatch(arguments: object, headers: dict[bytes, bytes]) -> None:
    assert HeaderParameters.of(_EACH_TYPE).find_mismatch(raw(arguments), headers) != ""


def test_a_header_that_no_parameter_asks_for_is_ignored() -> None:
    assert HeaderParameters.of(_EACH_TYPE).find_mismatch(Raw(), {b"mcp-param-n": b"1", b"mcp-param-z": b"1"}) == ""


def test_an_argument_that_is_there_twice_agrees_with_no_header() -> None:
    twice = Raw(b'{"s":"a","s":"b"}')
    for value in (b"a", b"b"):
        assert HeaderParameters.of(_EACH_TYPE).find_mismatch(twice, {b"mcp-param-s": value}) != ""
    assert NONE_MIRRORED.find_mismatch(twice, {b"mcp-param-s": b"a"}) == ""
