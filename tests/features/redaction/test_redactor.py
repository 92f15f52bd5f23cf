"""Replacing in messages: which texts it reaches, that nothing hides from it, and that nothing else changes."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.features.redaction.config import Redact
from dynamic_mcp.features.redaction.redactor import Redactor
from tests.examples import examples

Json = Any  # whatever JSON a test writes down

SECRET = Redact("r", pattern=r"secret-\d+", replacement="[x]")


def redact(payload: Json, *rules: Redact, tool: str | None = "query") -> Json:
    """Return what an answer becomes; bytes are JSON already."""
    raw = Raw(payload if isinstance(payload, bytes) else json.dumps(payload).encode())
    return json.loads(bytes(Redactor(rules or (SECRET,)).redact_answer(tool, raw)))


# --- where -------------------------------------------------------------------------------------------------------

S = "a secret-1 b"
X = "a [x] b"


@pytest.mark.parametrize(
    "given",
    [
        {"content": [{"type": "text", "text": S}]},
        {"structuredContent": {"a": [S, {"b": S}]}},
        {"contents": [{"uri": "x:1", "text": S}]},
        {"description": S, "messages": [{"role": "user", "content": {"type": "text", "text": S}}]},
        {"content": [{"type": "resource", "resource": {"uri": "x:1", "text": S}}]},
        {"content": [{"type": "resource_link", "uri": "x:1", "name": "n", "description": S}]},
        {"code": -32000, "message": S, "data": {"why": [S]}},
        {"code": -32000, "message": "m", "data": S},
        {"taskId": "t", "status": "failed", "statusMessage": S},
        {"tasks": [{"taskId": "t", "statusMessage": S}]},
        {"completion": {"values": [S], "total": 1}},
        {"level": "info", "logger": "l", "data": {"m": S}},
        {"progressToken": "t", "progress": 1, "message": S},
        {"_meta": {"example.com/note": S}},
        {"unknown": {"deep": [[S]]}},
        {"content": S},
    ],
)
def test_every_text_that_a_server_writes_is_reached(given: Json) -> None:
    assert redact(given) == json.loads(json.dumps(given).replace(S, X))


EVERYTHING = Redact("r", pattern=r"(?s).+", replacement="[x]")


@pytest.mark.parametrize(
    "payload",
    [
        {"content": [{"type": "image", "data": "c2VjcmV0LTE=", "mimeType": "image/png"}]},
        {"content": [{"type": "audio", "data": "c2VjcmV0LTE=", "mimeType": "audio/wav"}]},
        {"content": [{"data": "c2VjcmV0LTE=", "mimeType": "image/png", "type": "image"}]},
        {"contents": [{"uri": "file:///secret-1", "blob": "c2VjcmV0LTE=", "mimeType": "text/plain"}]},
        {"content": [{"type": "resource", "resource": {"uri": "file:///secret-1", "blob": "c2VjcmV0LTE="}}]},
        {"content": [{"type": "resource_link", "uri": "file:///secret-1", "name": "secret-1"}]},
        {"content": [], "_meta": {"dynamic-mcp/approval": {"id": "secret-1"}, "progressToken": "secret-1"}},
        {"content": [], "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "secret-1"}}},
        {"task": {"taskId": "secret-1", "status": "working", "createdAt": "2025-11-25T10:30:00Z"}},
        {"resultType": "complete", "requestState": "secret-1", "nextCursor": "secret-1"},
        {"structuredContent": {"secret-1": 1, "n": [1.50, 1e3, True, None, 12345678901234567890]}},
        {"code": -32042, "message": "[x]", "data": {"elicitations": [{"mode": "url", "url": "secret-1"}]}},
        {"uri": "file:///secret-1"},
    ],
)
def test_what_is_no_text_for_people_stays_the_same_object(payload: Json) -> None:
    raw = Raw(json.dumps(payload).encode())
    assert Redactor([EVERYTHING]).redact_answer("query", raw) is raw


def test_questions_keep_what_clients_act_on() -> None:
    form = {"mode": "form", "message": S, "requestedSchema": {"type": "object", "title": "secret-2"}}
    asked = {"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create", "params": form}}}
    expected = json.loads(json.dumps(asked).replace(S, X))
    assert redact(asked) == expected
    sampling = {"messages": [{"role": "user", "content": {"type": "text", "text": S}}], "systemPrompt": S}
    raw = Raw(json.dumps(sampling).encode())
    redacted = Redactor([SECRET]).present_message(raw)
    assert json.loads(bytes(redacted)) == json.loads(json.dumps(sampling).replace(S, X))


# --- which rules -------------------------------------------------------------------------------------------------


def test_a_rule_with_tools_is_about_these_and_one_without_about_everything() -> None:
    own = Redact("r0", tools=("run_*",), pattern="secret", replacement="[own]")
    every = Redact("r1", pattern="token", replacement="[every]")
    payload = {"content": [{"type": "text", "text": "secret token"}]}

    def text(tool: str | None) -> str:
        found: str = redact(payload, own, every, tool=tool)["content"][0]["text"]
        return found

    assert text("run_it") == text("Run_It") == "[own] [every]"
    assert text("query") == text(None) == "secret [every]"
    raw = Raw(json.dumps(payload).encode())
    assert b"[own] [every]" in bytes(Redactor([own, every]).present_message(raw))


def test_arguments_and_results_have_their_own_rules() -> None:
    redactor = Redactor(
        [
            Redact("r0", places=("arguments",), pattern="a", replacement="1"),
            Redact("r1", places=("results",), pattern="b", replacement="2"),
            Redact("r2", places=("results", "arguments"), pattern="c", replacement="3"),
        ]
    )
    raw = Raw(b'{"text":"abc","uri":"abc"}')
    assert bytes(redactor.redact_arguments("t", raw) or b"") == b'{"text":"1b3","uri":"1b3"}'
    assert bytes(redactor.redact_answer("t", raw)) == b'{"text":"a23","uri":"abc"}'
    assert redactor.redact_arguments("t", None) is None


# --- how ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("^a", "a a", "[x] a"),
        ("a$", "a a", "a [x]"),
        (r"\Aa\z", "a", "[x]"),
        ("a*", "baab", "b[x]b"),
        ("a|b", "abcab", "[x]c[x]"),
        ("(a)(b)", "xabx", "x[x]x"),
        (".", "é\n😀", "[x]\n[x]"),
        ("(?i)É", "é", "[x]"),
        (r'"', 'say "a"', "say [x]a[x]"),
    ],
)
def test_a_pattern_is_replaced_wherever_it_is_found(pattern: str, text: str, expected: str) -> None:
    rule = Redact("r", pattern=pattern, replacement="[x]")
    assert redact({"content": [{"type": "text", "text": text}]}, rule)["content"][0]["text"] == expected


def test_a_replacement_is_taken_literally() -> None:
    rule = Redact("r", pattern="(a)", replacement=r'\1 "é" \g<0> $1')
    assert redact({"text": "a"}, rule) == {"text": rule.replacement}
    assert redact({"text": "a"}, Redact("r", pattern="a", replacement="")) == {"text": ""}


@pytest.mark.parametrize(
    "written",
    [
        b'"\\u0073ecret-1"',
        b'"secret\\u002d1"',
        b'"s\\u0065cret-1 \\ud800"',
        b'"\\/\\b\\f secret-1"',
        b'"\\\\nsecret-1"',
        b'"\\\\secret-1"',
        b'"{\\"a\\":\\"\\\\u0073ecret-1\\"}"',
        b'"[\\"{\\\\\\"a\\\\\\":\\\\\\"\\\\\\\\u0073ecret-1\\\\\\"}\\"]"',
    ],
)
def test_escapes_hide_nothing(written: bytes) -> None:
    for payload in (b'{"structuredContent":{"a":%s}}', b'{"content":[{"t\\u0065xt":%s,"type":"text"}]}'):
        found = bytes(Redactor([SECRET]).redact_answer("query", Raw(payload % written)))
        assert "[x]" in json.dumps(json.loads(found))
        assert b"ecret" not in found


def test_names_twice_white_space_and_depth_hide_nothing() -> None:
    payload = b'{"text" : "secret-1" ,\n"text":"b","content" :[{"text":"secret-2","text":"c"}], "n": 1.50 }'
    found = bytes(Redactor([SECRET]).redact_answer("query", Raw(payload)))
    assert found == re.sub(rb"secret-\d", b"[x]", payload)
    deep = b'{"structuredContent":' + b"[" * 50_000 + b'"secret-1"' + b"]" * 50_000 + b"}"
    assert b"secret" not in bytes(Redactor([SECRET]).redact_answer("query", Raw(deep)))
    content = b'{"content":' * 50_000 + b'"secret-1"' + b"}" * 50_000
    assert b"secret" not in bytes(Redactor([SECRET]).redact_answer("query", Raw(content)))


# --- JSON in texts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "inner", "expected"),
    [
        (r"secret-\d", {"a": "secret-1", "n": 1}, {"a": "[x]", "n": 1}),
        (r'"password":\s*"[^"]*"', {"password": "p", "n": [1]}, {"password": "[x]", "n": [1]}),
        (r'"pin": \d+', {"pin": 1234, "n": 1}, {"pin": "[x]", "n": 1}),
        (r"\d{4}", {"pin": 1234, "1234": "1234"}, {"pin": "[x]", "1234": "[x]"}),
        (r"(?s)a.*b", {"x": "a", "y": [1, "b"], "z": "c"}, {"x": "[x]", "y": ["[x]", "[x]"], "z": "c"}),
        (r"\\n", {"a": "x\ny"}, {"a": "x\ny"}),
        (r"x\ny", {"a": "x\ny"}, {"a": "[x]"}),
        (r"null|true", {"a": None, "b": [True, False]}, {"a": "[x]", "b": ["[x]", False]}),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_json_in_a_text_stays_json(pattern: str, inner: Json, expected: Json, indent: int | None) -> None:
    rule = Redact("r", pattern=pattern, replacement="[x]")
    text = json.dumps(inner, indent=indent)
    assert json.loads(redact({"content": [{"type": "text", "text": text}]}, rule)["content"][0]["text"]) == expected


def test_a_replacement_with_quotes_does_not_break_json_in_a_text() -> None:
    rule = Redact("r", pattern="secret", replacement='"\\\n')
    text = json.dumps({"a": "my secret", "b": [json.dumps({"c": "secret"})]})
    found = json.loads(redact({"text": text}, rule)["text"])
    assert found["a"] == f"my {rule.replacement}"
    assert json.loads(found["b"][0]) == {"c": rule.replacement}


# --- properties --------------------------------------------------------------------------------------------------

TEXTS = st.one_of(
    st.text(alphabet=st.characters(codec="utf-8"), max_size=6),
    st.sampled_from(
        ["secret-1", "a secret-22 b", "secret-", "\\u0073ecret-1", "[x]", '{"a":"secret-3"}', "é secret-4"]
    ),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


def replace_all(value: Json) -> Json:
    """Replace in each text, as simply as it can be said."""
    if isinstance(value, str):
        return re.sub(r"secret-[0-9]+", "[x]", value)
    if isinstance(value, dict):
        return {name: replace_all(inner) for name, inner in value.items()}
    return [replace_all(inner) for inner in value] if isinstance(value, list) else value


def escape_all(value: Json) -> str:
    """Write JSON with an escape for every character of a text, and white space where it may be."""
    if isinstance(value, str):
        units = value.encode("utf-16-be").hex()
        return '"' + "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)) + '"'
    if isinstance(value, dict):
        return "{ " + " , ".join(f"{escape_all(name)} :\n{escape_all(each)}" for name, each in value.items()) + " }"
    return "[\t" + ",".join(map(escape_all, value)) + "]" if isinstance(value, list) else json.dumps(value)


@examples(100)
@given(VALUES)
def test_texts_are_replaced_and_nothing_else_changes(value: Json) -> None:
    payload = {"structuredContent": value}
    assert redact(payload) == redact(escape_all(payload).encode()) == replace_all(payload)


@examples(100)
@given(VALUES)
def test_without_anything_to_replace_the_object_is_the_same(value: Json) -> None:
    raw = Raw(json.dumps({"structuredContent": replace_all(value)}, ensure_ascii=False).encode())
    assert Redactor([SECRET]).redact_answer("query", raw) is raw


@examples(100)
@given(VALUES, st.sampled_from([r"\d+", "[a-z]+", "(?s).*", '["{}:]+', r"\\", "true|null"]))
def test_json_in_a_text_stays_json_whatever_is_replaced(value: Json, pattern: str) -> None:
    rule = Redact("r", pattern=pattern, replacement='"[x]\\')
    text = json.dumps([value])
    assert isinstance(json.loads(redact({"text": text}, rule)["text"]), list)


def schema_of(value: Json) -> Json:
    """Return a schema of the types of a value."""
    match value:
        case dict():
            shape = {name: schema_of(each) for name, each in value.items()}
            return {"type": "object", "properties": shape, "required": [*value], "additionalProperties": False}
        case list():
            return {"type": "array", "prefixItems": [schema_of(each) for each in value], "maxItems": len(value)}
        case bool():
            return {"const": value}
        case int() | float():
            return {"const": value}
    return {"type": "null" if value is None else "string"}


@examples(100)
@given(VALUES, st.lists(st.sampled_from(["keys", "tokens", "emails", "card_numbers"]), max_size=4))
def test_structured_content_fits_its_schema_as_before(value: Json, presets: list[str]) -> None:
    rule = Redact("r", presets=tuple(presets), pattern=r"[a-z0-9]+", replacement="[x]")
    found = redact({"structuredContent": value}, rule)["structuredContent"]
    jsonschema.Draft202012Validator(schema_of(value)).validate(found)


# --- bounds ------------------------------------------------------------------------------------------------------


def test_a_pattern_that_takes_too_long_has_the_whole_text_replaced() -> None:
    clock = itertools.count()
    redactor = Redactor([Redact("r", pattern="a.*b|a", replacement="[x]")], clock=lambda: float(next(clock)))
    raw = Raw(json.dumps({"content": [{"text": "-".join("a" * 100)}, {"text": "none"}]}).encode())
    assert json.loads(bytes(redactor.redact_answer("t", raw))) == {"content": [{"text": "[x]"}, {"text": "none"}]}


def test_replacements_that_would_grow_a_text_beyond_measure_are_one_for_all_of_it() -> None:
    rule = Redact("r", pattern="a", replacement="y" * 1000)
    assert redact({"text": "a-" * 100_000}, rule) == {"text": "y" * 1000}
    assert len(redact({"text": "a-" * 100}, rule)["text"]) == 100 * 1001


@pytest.mark.parametrize(
    "unit", ["-----BEGIN PRIVATE KEY-----", "a@", "bearer ", "eyJ.", "cookie:a=", "://x:", "4111 "]
)
def test_a_megabyte_of_beginnings_is_looked_through(unit: str) -> None:
    rule = Redact("r", presets=("keys", "tokens", "emails", "card_numbers"))
    text = unit * (1_000_000 // len(unit))
    assert isinstance(redact({"text": text}, rule)["text"], str)
