"""Which revision a request is of, and what its body may be."""

from __future__ import annotations

import asyncio
import json

import pytest

from dynamic_mcp.identity import LOCAL, Principal
from tests.face.http.modern_parties import (
    META,
    VERSION,
    FakeDispatcher,
    ModernHttpClient,
    call_of,
    code_of,
    modern,
    opener,
)
from tests.face.http.parties import HELLO, ByUserHeader, HttpClient, face_of
from tests.fakes import Json

ALL_REVISIONS = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]


# --- which revision ------------------------------------------------------------------------------------


async def test_a_modern_request_needs_no_session_and_gets_none_whatever_it_says_of_one() -> None:
    dispatcher = FakeDispatcher(answers_at_once=True)
    async with face_of(opener(), dispatcher=dispatcher) as face:
        legacy = HttpClient(face)
        await legacy.initialize()
        for session in (None, legacy.session, "guessed"):
            more = {"mcp-session-id": session, "last-event-id": "1-1"}
            reply = ModernHttpClient(face).post(call_of("echo"), more)
            assert (reply.status, "mcp-session-id" in reply.headers) == (200, False)
        assert len(dispatcher.calls) == 3
        assert (await legacy.request("ping").ends()).json["result"] == {}


@pytest.mark.parametrize("version", ALL_REVISIONS[1:-1])
async def test_an_explicit_legacy_header_wins_over_a_modern_body(version: str) -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        client = HttpClient(face)
        await client.initialize(version=version)
        reply = client.request("ping", {"_meta": META}, mcp_protocol_version=version)
        assert ((await reply.ends()).json["result"], dispatcher.calls) == ({}, [])


@pytest.mark.parametrize("has_session", [False, True])
@pytest.mark.parametrize("method", ["tools/list", "server/discover", "initialize", "ping"])
async def test_a_modern_body_without_the_header_is_refused_by_its_id(method: str, has_session: bool) -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        client = HttpClient(face)
        await client.initialize()
        client.session = client.session if has_session else ""
        reply = client.post(modern(method, id="x"))
        assert (reply.status, code_of(reply), reply.json["id"]) == (400, -32020, "x")
        assert dispatcher.calls == []


async def test_a_legacy_body_may_name_the_key_of_the_envelope_elsewhere() -> None:
    async with face_of(opener()) as face:
        client = HttpClient(face)
        await client.initialize()
        params = {"text": "io.modelcontextprotocol/protocolVersion", "more": META}
        assert (await client.request("ping", params).ends()).json["result"] == {}


@pytest.mark.parametrize("version", ["2099-01-01", "draft", "", "2026-07-28 ", "2026-07-28;q=1", "2026-7-28", "é"])
@pytest.mark.parametrize("has_session", [False, True])
async def test_a_revision_that_nobody_speaks_is_refused_with_those_that_are_spoken(
    version: str, has_session: bool
) -> None:
    async with face_of(opener()) as face:
        client = HttpClient(face)
        await client.initialize()
        more = {"mcp-protocol-version": version, "mcp-session-id": client.session if has_session else None}
        reply = ModernHttpClient(face).post(modern("tools/list", id=7), more)
        error = reply.json["error"]
        assert (reply.status, error["code"], reply.json["id"]) == (400, -32022, 7)
        assert error["data"]["supported"] == ALL_REVISIONS
        assert version.isascii() is (error["data"]["requested"] == version)


async def test_the_refusal_of_a_revision_repeats_no_more_of_its_name_than_a_name_has() -> None:
    async with face_of(opener()) as face:
        reply = ModernHttpClient(face).post(modern("tools/list"), {"mcp-protocol-version": "9" * 50_000})
        assert (code_of(reply), len(reply.body) < 1000) == (-32022, True)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"[" * 100_000, b'{"id":{}}'])
async def test_a_revision_that_nobody_speaks_is_refused_whatever_the_body_is(body: bytes) -> None:
    async with face_of(opener()) as face:
        reply = ModernHttpClient(face).post(body, {"mcp-protocol-version": "2099-01-01"})
        assert (reply.status, code_of(reply), reply.json["id"]) == (400, -32022, None)


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "HEAD"])
async def test_the_modern_revision_has_post_only(method: str) -> None:
    async with face_of(opener()) as face:
        client = HttpClient(face)
        await client.initialize()
        fields = (("mcp-protocol-version", VERSION), ("mcp-session-id", client.session))
        reply = ModernHttpClient(face).send(method, *fields)
        assert (reply.status, reply.headers["allow"]) == (405, "POST, OPTIONS")
        assert (await client.request("ping").ends()).status == 200


async def test_a_request_about_one_group_says_which_and_none_about_a_group_that_is_not_there_is_taken() -> None:
    dispatcher = FakeDispatcher(answers_at_once=True)
    async with face_of(opener(), dispatcher=dispatcher) as face:
        assert ModernHttpClient(face, "/mcp/up").post(call_of("echo")).status == 200
        legacy = HttpClient(face, "/mcp/up")
        await legacy.initialize()
        assert (
            ModernHttpClient(face, "/mcp/none").post(call_of("echo"), {"mcp-session-id": legacy.session}).status
            == 404
        )
        assert [call.origin.only for call in dispatcher.calls] == ["up"]


async def test_a_request_is_made_for_whoever_it_authenticates_and_for_nobody_else() -> None:
    dispatcher = FakeDispatcher(answers_at_once=True)
    async with face_of(opener(), dispatcher=dispatcher, authenticator=ByUserHeader()) as face:
        legacy = HttpClient(face)
        hello = await legacy.request("initialize", HELLO, x_user="a").ends()
        session = hello.headers["mcp-session-id"]

        reply = ModernHttpClient(face).post(call_of("echo"), {"mcp-session-id": session, "x-user": "b"})
        assert (reply.status, dispatcher.call.origin.authentication.principal) == (200, Principal("test", "b"))
        for version in (VERSION, "2099-01-01"):  # not even which revisions there are is for everybody
            refused = ModernHttpClient(face).begin(call_of("echo"), {"mcp-protocol-version": version})
            assert (refused.status, refused.receiver) == (401, None)
        assert len(dispatcher.calls) == 1


# --- bodies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "id"),
    [
        (b"", -32700, None),
        (b"hello", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"', -32700, None),
        (b"[" * 1_000_000, -32700, None),
        (b"17", -32600, None),
        (b"{}", -32600, None),
        (b"[]", -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"method":17}', -32600, 1),
    ],
)
async def test_a_body_that_is_no_request_is_refused(body: bytes, code: int, id: Json) -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        reply = ModernHttpClient(face).post(body)
        assert (reply.status, code_of(reply), reply.json["id"]) == (400, code, id)
        assert dispatcher.calls == []


async def test_a_batch_is_refused_even_of_one_request() -> None:
    async with face_of(opener()) as face:
        reply = ModernHttpClient(face).post(json.dumps([modern("tools/list")]).encode(), {"mcp-method": "tools/list"})
        assert (reply.status, code_of(reply), reply.json["id"]) == (400, -32600, None)


async def test_a_notification_is_accepted_and_cancels_nothing() -> None:
    dispatcher = FakeDispatcher()
    async with face_of(opener(), dispatcher=dispatcher) as face:
        client = ModernHttpClient(face)
        client.post(call_of("echo", id=1))
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        reply = client.post(cancel)
        assert (reply.status, reply.body, dispatcher.call.reasons) == (202, b"", [])


@pytest.mark.parametrize(
    ("more", "status"),
    [
        pytest.param({"content-type": "text/plain"}, 415, id="a form that any page can send"),
        pytest.param({"content-type": None}, 415, id="no content type"),
        pytest.param({"accept": "application/json"}, 406, id="JSON only"),
        pytest.param({"accept": "text/event-stream"}, 406, id="streams only"),
        pytest.param({"content-length": str(1 << 40)}, 413, id="a body that says it is too long"),
        pytest.param({"host": "evil.example.com"}, 403, id="a foreign host"),
        pytest.param({"origin": "https://evil.example.com"}, 403, id="a foreign page"),
    ],
)
async def test_a_head_that_no_message_may_have_is_refused_before_its_body(
    more: dict[str, str | None], status: int
) -> None:
    async with face_of(opener()) as face:
        reply = ModernHttpClient(face).begin(call_of("echo"), more)
        assert (reply.status, reply.receiver) == (status, None)


async def test_a_body_that_turns_out_too_long_is_refused() -> None:
    async with face_of(opener(), max_body_bytes=100) as face:
        for version in (VERSION, "2099-01-01"):
            reply = ModernHttpClient(face).begin(call_of("echo"), {"mcp-protocol-version": version})
            assert reply.receiver is not None
            assert reply.receiver.max_body_bytes == 100
            reply.receiver.refuse_body()
            assert reply.status in (400, 413)


async def test_a_page_of_a_listed_origin_may_send_what_modern_requests_have() -> None:
    origin = "https://app.example.com"
    async with face_of(opener(), allowed_origins=(origin,)) as face:
        asked = "content-type, Mcp-Param-Region, mcp-param-a b, mcp-param-\u00e9, x-evil, mcp-param-tenant,"
        fields = (("origin", origin), ("access-control-request-headers", asked))
        granted = ModernHttpClient(face).send("OPTIONS", *fields).headers["access-control-allow-headers"].split(", ")

        assert {"mcp-method", "mcp-name", "mcp-protocol-version", "mcp-param-region", "mcp-param-tenant"} <= {
            *granted
        }
        assert {each for each in granted if each.startswith(("x-", "mcp-param"))} == {
            "mcp-param-region",
            "mcp-param-tenant",
        }
        for message in (call_of("nothing"), modern("none/such")):
            reply = await ModernHttpClient(face).post(message, {"origin": origin}).ends()
            assert reply.headers["access-control-allow-origin"] == origin


def test_everybody_is_local_where_nobody_authenticates() -> None:
    async def origin() -> Principal:
        dispatcher = FakeDispatcher()
        async with face_of(opener(), dispatcher=dispatcher) as face:
            ModernHttpClient(face).post(call_of("echo"))
            return dispatcher.call.origin.authentication.principal

    assert asyncio.run(origin()) == LOCAL
