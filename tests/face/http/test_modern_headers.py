"""What a modern request repeats in its headers is what its body says, or it is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from mcp.shared import inbound as peer

from dynamic_mcp.config.types import DirectTools
from dynamic_mcp.errors import HEADER_MISMATCH
from dynamic_mcp.face.http.core import HttpFace
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.proxy import Proxy
from tests.examples import examples
from tests.face.http.modern_parties import (
    LISTEN,
    META,
    VERSION,
    FakeDispatcher,
    ModernHttpClient,
    call_of,
    code_of,
    headers_for,
    modern,
    opener,
)
from tests.face.http.parties import HttpClient, face_of
from tests.fakes import FakeUpstream, Json, Opener, config_of, group_config, tool

_WRONG: list[tuple[Json, dict[str, str | None]]] = [
    (call_of("echo"), {"mcp-method": None}),
    (call_of("echo"), {"mcp-method": "tools/list"}),
    (call_of("echo"), {"mcp-method": "Tools/Call"}),
    (call_of("echo"), {"mcp-method": "=?base64?dG9vbHMvY2FsbA==?="}),
    (call_of("echo"), {"mcp-name": None}),
    (call_of("echo"), {"mcp-name": ""}),
    (call_of("echo"), {"mcp-name": "Echo"}),
    (call_of("echo"), {"mcp-name": "other"}),
    (call_of("echo"), {"mcp-name": "=?base64?ZWNoby==?="}),
    (call_of("echo"), {"mcp-name": "=?base64?ZWNobw?="}),
    (call_of("echo"), {"mcp-name": "=?BASE64?ZWNobw==?="}),
    (call_of("=?base64?ZWNobw==?="), {"mcp-name": "=?base64?ZWNobw==?="}),
    (call_of("\u00e9"), {"mcp-name": "\u00e9"}),
    (modern("tools/call"), {"mcp-name": "echo"}),
    (modern("prompts/get", {"name": "a"}), {"mcp-name": "b"}),
    (modern("resources/read", {"uri": "file:///a"}), {"mcp-name": "file:///b"}),
    (modern("resources/read", {"uri": "file:///a"}), {"mcp-name": None}),
    (modern("tasks/get", {"taskId": "a"}), {"mcp-name": "b"}),
    (modern("tasks/update", {"taskId": "a"}), {"mcp-name": None}),
    (modern("tasks/cancel", {"taskId": "a"}), {"mcp-name": "A"}),
    (modern("\u00e9"), {"mcp-method": "\u00e9"}),
    ({**modern("tools/list"), "params": {"_meta": {**META, next(iter(META)): "2025-11-25"}}}, {}),
    ({**modern("tools/list"), "params": {"_meta": {**META, next(iter(META)): 20260728}}}, {}),
    ({**modern("tools/list"), "params": {"_meta": {**META, next(iter(META)): None}}}, {}),
]


@pytest.mark.parametrize(("message", "more"), _WRONG, ids=ascii)
async def test_a_request_whose_headers_say_something_else_is_refused_by_its_id(
    message: Json, more: dict[str, str | None]
) -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        reply = ModernHttpClient(face).post({**message, "id": "x"}, more)
        assert (reply.status, code_of(reply), reply.json["id"]) == (400, -32020, "x")
        assert dispatcher.calls == []


@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-a"])
@pytest.mark.parametrize("spelled", [str.lower, str.title])
async def test_a_header_that_is_there_twice_is_refused_even_if_both_are_right(name: str, spelled: Json) -> None:
    dispatcher = FakeDispatcher()
    message = call_of("echo")
    right = {**headers_for(message), "mcp-param-a": "b"}
    async with face_of(opener(), dispatcher=dispatcher) as face:
        reply = ModernHttpClient(face).send("POST", *right.items(), (spelled(name), right[name]))
        assert reply.receiver is not None
        reply.receiver.receive_body(json.dumps(message).encode())
        assert (reply.status, code_of(reply), reply.json["id"]) == (400, -32020, 1)
        assert dispatcher.calls == []


@pytest.mark.parametrize(
    ("message", "more"),
    [
        (call_of("echo"), {}),
        (call_of("echo"), {"mcp-name": "=?base64?ZWNobw==?="}),
        (call_of("echo"), {"mcp-name": "  echo\t"}),
        (call_of("Hello, \u4e16\u754c"), {}),
        (call_of(" a "), {}),
        (modern("resources/read", {"uri": "file:///a b?c=\u00e9"}), {}),
        (modern("tasks/get", {"taskId": "786512e2-9e0d"}), {}),
        (modern("tools/list"), {"mcp-name": "anything", "mcp-param-a": "b"}),
        (modern("tools/call"), {}),  # without a name, which whoever answers has to say
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, {}),  # nor without an envelope
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []}, {}),
    ],
    ids=ascii,
)
async def test_a_request_whose_headers_say_the_same_is_taken(message: Json, more: dict[str, str | None]) -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        ModernHttpClient(face).post(message, more)
        assert [call.frame.method for call in dispatcher.calls] == [message["method"]]


async def test_a_message_over_several_lines_is_handed_on_as_one_line() -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        message = call_of("echo", {"text": "a\nb"})
        ModernHttpClient(face).post(json.dumps(message, indent=2).encode(), headers_for(message))
        assert b"\n" not in bytes(dispatcher.call.frame.params)
        assert wire.value(wire.member(dispatcher.call.frame.params, "arguments", "text")) == "a\nb"


_ANNOTATED = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "n": {"type": "integer", "x-mcp-header": "N"},
    },
}
_TOOLS = [
    tool("put", inputSchema=_ANNOTATED),
    tool("echo"),
    tool("bad", inputSchema={"properties": {"a": {"x-mcp-header": ""}}}),
]


@pytest.mark.parametrize(
    ("arguments", "more", "is_right"),
    [
        ({"region": "us", "n": 42}, {"mcp-param-region": "us", "mcp-param-n": "42"}, True),
        ({"region": "us", "n": 42}, {"mcp-param-region": "=?base64?dXM=?=", "mcp-param-n": "42.0"}, True),
        ({"region": None}, {}, True),
        ({}, {"mcp-param-other": "x"}, True),
        ({"region": "us"}, {}, False),
        ({"region": "us"}, {"mcp-param-region": "eu"}, False),
        ({}, {"mcp-param-region": "us"}, False),
        ({"region": "us"}, {"mcp-param-region": "=?base64?dXM?="}, False),
    ],
)
@pytest.mark.parametrize(("path", "name"), [("/mcp/up", "put"), ("/mcp", "up__put")])
async def test_the_annotated_parameters_of_a_known_tool_must_be_in_the_headers(
    path: str, name: str, arguments: Json, more: dict[str, str | None], is_right: bool
) -> None:
    dispatcher = FakeDispatcher()
    proxy = Proxy(
        config_of(group_config(direct=DirectTools(is_all=True))),
        opener=Opener(up=[FakeUpstream({"tools/list": {"tools": _TOOLS}})]),
    )
    face = HttpFace(proxy, HttpOptions(), dispatcher=dispatcher)
    try:
        client = HttpClient(face)
        await client.initialize()
        await client.request("tools/list").ends()

        reply = ModernHttpClient(face, path).post(call_of(name, arguments), more)

        assert (len(dispatcher.calls) == 1) is is_right
        assert is_right or (reply.status, code_of(reply)) == (400, -32020)
        for free in (name.replace("put", "echo"), name.replace("put", "bad"), "unknown"):
            ModernHttpClient(face, path).post(call_of(free, {"region": "us"}))
            assert dispatcher.call.frame.method == "tools/call"
        assert len(dispatcher.calls) == 3 + is_right
    finally:
        face.close()
        await proxy.close()


# --- anything at all -----------------------------------------------------------------------------------

_METHODS = st.sampled_from(
    ["tools/call", "tools/list", "prompts/get", "resources/read", LISTEN, "\u00e9", "Tools/Call", ""]
)
_NAMES = st.one_of(
    st.sampled_from(["echo", " echo", "\u00e9", "=?base64?ZWNobw==?=", "", None, 1, ["echo"]]), st.text(max_size=5)
)
_ENVELOPES: st.SearchStrategy[Json] = st.sampled_from(
    [META, {}, {**META, next(iter(META)): "2025-11-25"}, None, [], "x"]
)
_VALUES = st.one_of(
    st.sampled_from(
        [VERSION, "2025-11-25", "echo", "tools/call", "=?base64?ZWNobw==?=", "=?base64?ZWNobw?=", "", " echo "]
    ),
    st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=8),
)
_FIELDS = st.lists(
    st.tuples(
        st.sampled_from(
            ["mcp-method", "Mcp-Name", "mcp-name", "MCP-Protocol-Version", "mcp-session-id", "mcp-param-a"]
        ),
        _VALUES,
    ),
    max_size=3,
)


@st.composite
def _requests(draw: st.DrawFn) -> tuple[bytes, list[tuple[str, str]]]:
    """A body that may be no message at all, and headers that may be those which it should have."""
    params = {"name": draw(_NAMES), "uri": draw(_NAMES), "_meta": draw(_ENVELOPES)}
    message: Json = {
        "jsonrpc": "2.0",
        "id": draw(st.sampled_from([1, "x", None])),
        "method": draw(_METHODS),
        "params": params,
    }
    for left_out in draw(st.sets(st.sampled_from(["id", "method", "params"]), max_size=1)):
        del message[left_out]
    fields = [*headers_for(message).items()] if draw(st.booleans()) else [("mcp-protocol-version", VERSION)]
    fields = [(name, value.encode("ascii", "ignore").decode()) for name, value in fields]
    body = draw(st.one_of(st.just(json.dumps(message).encode()), st.binary(max_size=20)))
    return body, [*fields, *draw(_FIELDS)]


@given(_requests())
@examples(400, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_sent_is_answered_once_and_begun_only_if_the_official_sdk_sees_no_mismatch(
    request: tuple[bytes, list[tuple[str, str]]],
) -> None:
    body, fields = request
    if asyncio.run(_serve(body, fields)):
        joined: Mapping[str, str] = {name.lower(): value.strip(" \t") for name, value in fields}
        named = [name.lower() for name, _ in fields]
        assert all(named.count(name) < 2 for name in ("mcp-method", "mcp-name", "mcp-protocol-version"))
        verdict = peer.classify_inbound_request(json.loads(body), headers=joined)
        assert not isinstance(verdict, peer.InboundLadderRejection) or verdict.code != HEADER_MISMATCH


async def _serve(body: bytes, fields: list[tuple[str, str]]) -> bool:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        reply = ModernHttpClient(face).send("POST", *fields)
        if reply.receiver is not None:
            reply.receiver.receive_body(body)
        if dispatcher.calls:
            is_listening = dispatcher.call.frame.method == LISTEN
            assert (bool(reply.status), reply.is_stream) == (is_listening, is_listening)
        else:
            assert reply.has_ended
        return bool(dispatcher.calls)
