"""Plug-ins that fail, hang and misbehave: what it costs is their call, and the server gets that once at most."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from dynamic_mcp.middleware import CallRequest, CallResult, Middleware, Next
from tests.fakes import BOUND_S, FakeUpstream, text_of
from tests.features.plugins.scene import client_with, upstream, use

SECRET = "hunter2"
SOON_S = 0.05


class Failing(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        raise RuntimeError(SECRET)


class FailingAfter(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        await next(request)
        raise RuntimeError(SECRET)


class Exiting(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        sys.exit(3)


class Interrupting(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        raise KeyboardInterrupt


class FailingAtOnce(Middleware):
    """Fails before there is a coroutine."""

    def call(self, request: CallRequest, next: Next) -> CallResult:  # type: ignore[override]
        raise RuntimeError(SECRET)


class CancellingItself(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        raise asyncio.CancelledError


class ReturningNothing(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        return None  # type: ignore[return-value]


class ReturningNoJson(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        return CallResult(b'{"content":[]}\n{"jsonrpc":"2.0"}')


class Hanging(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        await asyncio.Event().wait()
        raise AssertionError


class HangingAfter(Middleware):
    async def call(self, request: CallRequest, next: Next) -> CallResult:
        await next(request)
        await asyncio.Event().wait()
        raise AssertionError


class Stubborn(Middleware):
    """Swallows its cancellation, and goes on with the call when it is let."""

    async def open(self, options: Any, services: Any) -> None:
        Stubborn.may_go = asyncio.Event()
        Stubborn.has_gone = asyncio.Event()

    may_go: asyncio.Event
    has_gone: asyncio.Event

    async def call(self, request: CallRequest, next: Next) -> CallResult:
        while not self.may_go.is_set():
            try:
                await self.may_go.wait()
            except asyncio.CancelledError:
                continue
        try:
            return await next(request)
        finally:
            self.has_gone.set()


class Detaching(Middleware):
    """Has another task go on with the call, and fails meanwhile."""

    async def call(self, request: CallRequest, next: Next) -> CallResult:
        going_on = asyncio.ensure_future(next(request))
        await asyncio.sleep(0)
        raise RuntimeError(f"while {going_on} runs")


class Impatient(Middleware):
    """Gives the server no time, and then fails."""

    async def call(self, request: CallRequest, next: Next) -> CallResult:
        async with asyncio.timeout(0):
            return await next(request)
        raise AssertionError


MISBEHAVING = [
    Failing,
    FailingAfter,
    Exiting,
    Interrupting,
    FailingAtOnce,
    CancellingItself,
    ReturningNothing,
    ReturningNoJson,
    Hanging,
    HangingAfter,
    Stubborn,
]
AFTER = (FailingAfter, HangingAfter)


@pytest.mark.parametrize("plugin", MISBEHAVING)
async def test_an_error_fails_the_call_and_tells_the_client_nothing_of_its_words(plugin: type[Middleware]) -> None:
    server = upstream()
    async with client_with(server, use(plugin, timeout_s=SOON_S)) as client:
        async with asyncio.timeout(BOUND_S):
            result = await client.call("a", "echo", {"text": "x"})
    assert result["isError"]
    assert f"plug-in `{plugin.__module__}:{plugin.__name__}`" in text_of(result)
    assert SECRET not in text_of(result)
    assert "Traceback" not in text_of(result)
    assert ("the call may have run" in text_of(result)) == (plugin in AFTER)
    assert len(server.heard("tools/call")) == (1 if plugin in AFTER else 0)


@pytest.mark.parametrize("plugin", MISBEHAVING)
async def test_skip_goes_on_without_it_and_never_sends_a_call_twice(plugin: type[Middleware]) -> None:
    server = upstream()
    async with client_with(server, use(plugin, timeout_s=SOON_S, on_error="skip")) as client:
        async with asyncio.timeout(BOUND_S):
            assert text_of(await client.call("a", "echo", {"text": "x"})) == "x"
    assert len(server.heard("tools/call")) == 1


async def test_an_error_of_a_prompt_is_a_json_rpc_error() -> None:
    async with client_with(upstream(), use(Failing)) as client:
        answer = await client.request("prompts/get", {"name": "greet"})
    assert answer["error"]["code"] == -32603
    assert "nothing was sent" in answer["error"]["message"]


async def test_the_log_says_what_the_client_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async with client_with(upstream(), use(Failing)) as client:
        await client.call("a", "echo")
    assert SECRET in caplog.text
    assert "has failed with RuntimeError" in caplog.text


async def test_a_plug_in_that_was_cut_cannot_send_its_call_later() -> None:
    server = upstream()
    async with client_with(server, use(Stubborn, timeout_s=SOON_S)) as client:
        async with asyncio.timeout(BOUND_S):
            assert (await client.call("a", "echo"))["isError"]
            Stubborn.may_go.set()
            await Stubborn.has_gone.wait()
    assert server.heard("tools/call") == []


async def test_the_time_of_what_follows_is_not_the_plug_ins() -> None:
    server = upstream()
    server.answers.pop("tools/call")
    async with client_with(server, use(HangingAfter, timeout_s=SOON_S, on_error="skip")) as client:
        calling = asyncio.create_task(client.call("a", "echo"))
        asked = await server.hears("tools/call")
        await asyncio.wait((calling,), timeout=4 * SOON_S)
        assert not calling.done()
        server.say({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [{"type": "text", "text": "late"}]}})
        async with asyncio.timeout(BOUND_S):
            assert text_of(await calling) == "late"


async def test_skip_waits_for_a_call_that_another_task_goes_on_with() -> None:
    server = upstream()
    server.answers.pop("tools/call")
    async with client_with(server, use(Detaching, on_error="skip")) as client:
        calling = asyncio.create_task(client.call("a", "echo"))
        asked = await server.hears("tools/call")
        server.say({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [{"type": "text", "text": "done"}]}})
        async with asyncio.timeout(BOUND_S):
            assert text_of(await calling) == "done"
    assert len(server.heard("tools/call")) == 1


async def test_fail_cancels_a_call_that_another_task_goes_on_with() -> None:
    server = upstream()
    server.answers.pop("tools/call")
    async with client_with(server, use(Detaching)) as client:
        assert (await client.call("a", "echo"))["isError"]
        await _cancelled(server)


async def test_a_call_that_a_plug_in_has_cancelled_is_not_sent_again() -> None:
    server = upstream()
    server.answers.pop("tools/call")
    async with client_with(server, use(Impatient, on_error="skip")) as client:
        async with asyncio.timeout(BOUND_S):
            assert "may have run" in text_of(await client.call("a", "echo"))
    assert len(server.heard("tools/call")) <= 1


@pytest.mark.parametrize("plugin", [HangingAfter, FailingAfter])
async def test_a_call_that_its_client_cancels_is_cancelled_at_the_server(plugin: type[Middleware]) -> None:
    server = upstream()
    server.answers.pop("tools/call")
    async with client_with(server, use(plugin)) as client:
        arguments = {"name": "call_dynamic_tool", "arguments": {"group": "a", "name": "echo"}}
        client.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": arguments})
        await server.hears("tools/call")
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
        await _cancelled(server)


async def _cancelled(server: FakeUpstream) -> None:
    async with asyncio.timeout(BOUND_S):
        await server.hears("notifications/cancelled")
