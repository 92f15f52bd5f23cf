"""Streamable HTTP of the modern era: headers that repeat the body, a stream for each request, and no session."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from msgspec import Raw

from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.errors import HttpError, LinkLost, NotSent, ProtocolViolation
from dynamic_mcp.mcp import wire
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.link import LinkOwner
from dynamic_mcp.upstream.open import open_link
from tests.fake_parties import Ear, FakeCaller
from tests.fakes import Json, settled
from tests.program import BOUND_S
from tests.upstream.modern import LEGACY_HELLO, Client, complete, legacy_caller, modern_caller, until
from tests.upstream.remote import WaitingEar, call, remote, text
from tests.upstream.scripted_http import Respond, ScriptedHttp, with_body, with_error, with_result
from tests.upstreams.conformance_modern import ModernHttp
from tests.upstreams.odd_http import Connection, Request, message_event


@contextlib.asynccontextmanager
async def modern_link(config: GroupConfig, listener: LinkOwner | None = None) -> AsyncIterator[AnyLink]:
    """Open a link for a legacy client to a server that is known to be modern."""
    async with asyncio.timeout(BOUND_S):
        link, _ = await open_link(config, listener or Ear(), LEGACY_HELLO, lacks="legacy")
        try:
            assert link.is_modern
            yield link
        finally:
            await link.close()


# --- headers ---------------------------------------------------------------------------------------------


async def test_each_post_repeats_the_revision_the_method_and_the_name_and_has_no_session() -> None:
    async with ModernHttp() as far, modern_link(remote(far.url)) as link:
        await link.request("tools/list", timeout_s=BOUND_S)
        await text(link, "test_simple_text")
        await link.request("resources/read", {"uri": Raw(b'"test://static-text"')}, timeout_s=BOUND_S)
        await link.close()

        named = {"tools/call": "test_simple_text", "resources/read": "test://static-text"}
        for request in far.requests:
            method = request.message["method"]
            assert request.method == "POST"
            assert request.headers["mcp-protocol-version"] == "2026-07-28"
            assert request.headers["mcp-method"] == method
            assert request.headers.get("mcp-name") == named.get(method)
            assert "mcp-session-id" not in request.headers


async def test_a_name_that_is_no_header_is_encoded() -> None:
    async with ScriptedHttp(**{"tools/call": with_result(complete())}) as far, modern_link(remote(far.url)) as link:
        await call(link, "wörld\n")

        assert far.requests[-1].headers["mcp-name"] == "=?base64?d8O2cmxkCg==?="


async def test_annotated_parameters_are_in_headers_once_the_tools_are_known() -> None:
    async with ModernHttp() as far, modern_link(remote(far.url)) as link:
        await link.request("tools/list", timeout_s=BOUND_S)
        arguments = {"region": "us west", "priority": 7, "dry_run": True, "query": "x"}

        assert json.loads(await text(link, "test_custom_headers", **arguments)) == arguments
        nested = {"target": {"tenant": "ü", "path": "/"}}
        assert json.loads(await text(link, "test_nested_header", **nested)) == nested

        custom, also = far.received("tools/call")
        assert (custom.headers["mcp-param-region"], custom.headers["mcp-param-priority"]) == ("us west", "7")
        assert custom.headers["mcp-param-dry-run"] == "true"
        assert also.headers["mcp-param-tenant"] == "=?base64?w7w=?="


async def test_a_call_that_is_refused_by_its_headers_is_sent_again_once_the_tools_are_read() -> None:
    async with ModernHttp() as far:
        ear = WaitingEar()
        async with modern_link(remote(far.url), ear) as link:
            assert json.loads(await text(link, "test_custom_headers", region="eu")) == {"region": "eu"}

            methods = [request.message["method"] for request in far.requests]
            assert [each for each in methods if each.startswith("tools/")] == [
                "tools/call",
                "tools/list",
                "tools/call",
            ]
            assert "notifications/tools/list_changed" in [frame.method for frame in ear.frames]


async def test_a_call_whose_headers_are_refused_again_fails() -> None:
    error = {"code": -32020, "message": "mismatch"}
    answers = {"tools/call": with_error(400, error), "tools/list": with_result(complete(tools=[]))}
    async with ScriptedHttp(**answers) as far, modern_link(remote(far.url)) as link:
        assert await call(link, "t") == {"error": error}

        assert len(far.received("tools/call")) == 2


async def test_what_is_repeated_of_the_body_cannot_be_set_in_the_config() -> None:
    headers = {"Mcp-Method": "x", "MCP-Name": "x", "mcp-param-region": "x", "MCP-Protocol-Version": "x", "X-Own": "y"}
    async with ModernHttp() as far, modern_link(remote(far.url, headers=headers)) as link:
        await link.request("tools/list", timeout_s=BOUND_S)
        await text(link, "test_custom_headers", query="x")

        assert far.requests[-1].headers["x-own"] == "y"
        assert "mcp-param-region" not in far.requests[-1].headers


# --- streams ---------------------------------------------------------------------------------------------


async def test_progress_and_log_messages_belong_to_the_call_in_whose_stream_they_come() -> None:
    class Attributing(Ear):
        def __init__(self) -> None:
            super().__init__()
            self.heard: list[object] = []

        def receive_notification(self, frame: wire.Frame, callers: object, *, may_be_late: bool = False) -> None:
            if frame.method == "notifications/message":
                self.heard.append(callers)

    ear, callers = Attributing(), [legacy_caller() for _ in range(3)]
    async with ModernHttp() as far, modern_link(remote(far.url), ear) as link:
        await asyncio.gather(*(call(link, "test_logging_tool", caller=each) for each in callers))
        await settled()

        assert sorted(map(str, ear.heard)) == sorted(str([each]) for each in callers for _ in range(3))


async def test_a_cancelled_request_ends_its_stream_and_sends_nothing() -> None:
    async with ModernHttp() as far, modern_link(remote(far.url)) as link:
        caller = legacy_caller()
        params = {"name": Raw(b'"test_wait"'), "_meta": Raw(b'{"progressToken":1}')}
        waiting = asyncio.create_task(link.request("tools/call", params, timeout_s=BOUND_S, caller=caller))
        await until(lambda: caller.told)
        waits = [each for each in far.server.in_flight if each.method == "tools/call"]
        assert len(waits) == 1

        waiting.cancel()

        await until(lambda: waits[0] not in far.server.in_flight)
        assert not far.received("notifications/cancelled")


async def test_questions_are_asked_over_http_too() -> None:
    async with ModernHttp() as far, modern_link(remote(far.url)) as link:
        client = Client(lambda *_: wire.result_frame({"action": "accept", "content": {"ok": True}}))

        answer = await call(link, "test_input_required_result_request_state", caller=client)

        assert answer["content"][0]["text"].startswith("state-ok")
        assert "resultType" not in answer


async def test_changes_come_over_a_stream_that_the_link_keeps_open() -> None:
    async with ModernHttp() as far:
        ear = WaitingEar()
        async with modern_link(remote(far.url), ear) as link:
            params = {"uri": Raw(b'"test://watched-resource"')}
            answer = await link.request("resources/subscribe", params, timeout_s=BOUND_S)
            assert bytes(answer.result) == b"{}"

            await text(link, "test_update_resource", uri="test://watched-resource")
            await ear.wait_for_frame()

            [updated] = [frame for frame in ear.frames if frame.method == "notifications/resources/updated"]
            assert bytes(updated.params) == b'{"uri":"test://watched-resource"}'
            assert [each.wanted["resourceSubscriptions"] for each in far.server.listens] == [
                ["test://watched-resource"]
            ]

        await until(lambda: not far.server.listens)


async def test_a_request_of_the_server_in_a_stream_is_put_to_nobody() -> None:
    async def ask(request: Request, to: Connection) -> None:
        question = {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}}
        await to.events()
        await to.event(message_event(question))
        await to.event(message_event({"jsonrpc": "2.0", "id": request.message["id"], "result": complete(x=1)}))
        await to.end_events()

    async with ScriptedHttp(**{"tools/call": ask}) as far, modern_link(remote(far.url)) as link:
        caller = legacy_caller()

        assert await call(link, "t", caller=caller) == {"x": 1}

        assert caller.asked == []
        assert [request.message["method"] for request in far.requests] == ["server/discover", "tools/call"]


async def test_a_stream_that_ends_before_the_answer_fails_its_call_alone_and_is_not_resumed() -> None:
    async def end(_: Request, to: Connection) -> None:
        await to.events()
        await to.event(message_event({"jsonrpc": "2.0", "method": "notifications/x"}, id="1"))
        await to.end_events()

    answers = {"tools/call": end, "prompts/get": with_result(complete(x=1))}
    async with ScriptedHttp(**answers) as far, modern_link(remote(far.url)) as link:
        with pytest.raises(LinkLost, match="`t` may have run"):
            await call(link, "t")

        assert link.loss is None
        assert len((await link.request("prompts/get", {}, timeout_s=BOUND_S)).result)
        assert [request.method for request in far.requests] == ["POST"] * 3


# --- statuses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [{}, {"id": None}])
@pytest.mark.parametrize(("status", "code"), [(400, -32602), (404, -32601), (400, -32021), (500, -32603)])
@pytest.mark.parametrize("caller", [legacy_caller, modern_caller])
async def test_an_error_that_comes_with_a_status_is_the_answer(
    caller: type[FakeCaller], status: int, code: int, id: Json
) -> None:
    error = {"code": code, "message": "m", "data": {"n": 1}}
    async with (
        ScriptedHttp(**{"tools/call": with_error(status, error, **id)}) as far,
        modern_link(remote(far.url)) as link,
    ):
        assert await call(link, "t", caller=caller()) == {"error": error}


async def test_an_error_for_another_request_is_no_answer() -> None:
    error = {"code": -32602, "message": "m"}
    async with (
        ScriptedHttp(**{"tools/call": with_error(400, error, id=99)}) as far,
        modern_link(remote(far.url)) as link,
    ):
        with pytest.raises(HttpError, match="400"):
            await call(link, "t")


@pytest.mark.parametrize("status", [401, 403, 404, 500, 502])
async def test_a_status_alone_is_an_error_that_names_it(status: int) -> None:
    async with (
        ScriptedHttp(**{"tools/call": with_body(status, b"nothing here")}) as far,
        modern_link(remote(far.url)) as link,
    ):
        with pytest.raises(HttpError, match=f"{status}.*nothing here"):
            await call(link, "t")


async def test_a_body_that_is_no_message_is_a_violation() -> None:
    async with (
        ScriptedHttp(**{"tools/call": with_body(200, b"<html>", "text/html")}) as far,
        modern_link(remote(far.url)) as link,
    ):
        with pytest.raises(ProtocolViolation, match="text/html"):
            await call(link, "t")


async def test_a_server_that_is_gone_has_run_nothing() -> None:
    async with ScriptedHttp() as far, modern_link(remote(far.url)) as link:
        await far.__aexit__()
        with pytest.raises((NotSent, LinkLost)):
            await call(link, "t")
        with pytest.raises(NotSent):
            await call(link, "t")


@pytest.mark.parametrize("gone", [with_body(404, b""), with_error(400, {"code": -32000, "message": "no session"})])
async def test_a_link_whose_server_has_become_a_legacy_one_ends(gone: Respond) -> None:
    async with ScriptedHttp() as far, modern_link(remote(far.url)) as link:
        far.answers.update({"tools/call": with_body(404, b""), "server/discover": gone})

        with pytest.raises(HttpError, match="404"):
            await call(link, "t")

        assert link.loss is not None
        assert "no longer" in link.loss.reason


async def test_a_link_whose_server_stays_modern_goes_on_after_an_odd_status() -> None:
    async with ScriptedHttp(**{"tools/call": with_body(404, b"")}) as far, modern_link(remote(far.url)) as link:
        with pytest.raises(HttpError, match="404"):
            await call(link, "t")

        assert link.loss is None
        assert len(far.received("server/discover")) == 2


async def test_a_subscription_over_http_outlives_its_server() -> None:
    async with ModernHttp() as far:
        ear = WaitingEar()
        async with modern_link(remote(far.url), ear) as link:
            await until(lambda: far.server.listens)
            await far.__aexit__()

            async with ModernHttp(far.port) as again:
                await until(lambda: again.server.listens)
                await ear.wait_for_frame()

                assert link.loss is None
                assert "notifications/tools/list_changed" in [frame.method for frame in ear.frames]
