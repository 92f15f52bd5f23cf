"""A server of both eras made with the Python SDK: what its tools ask a legacy client, and what it reports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator

import pytest
from msgspec import Raw

from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.mcp import wire
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.open import open_link
from tests.journeys.remote_server import free_port, listening
from tests.program import BOUND_S, UPSTREAMS
from tests.upstream.modern import LEGACY_HELLO, Client, modern_caller
from tests.upstream.remote import WaitingEar, call, remote
from tests.upstream.test_eras import program

SERVER = UPSTREAMS / "sdk_modern.py"
TRANSPORTS = ["stdio", pytest.param("http", marks=pytest.mark.full)]


@contextlib.asynccontextmanager
async def sdk_link(transport: str, ear: WaitingEar) -> AsyncIterator[AnyLink]:
    """Open a modern link to the server for a legacy client."""
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(BOUND_S):
        config: GroupConfig = program(SERVER)
        if transport == "http":
            port = free_port()
            await stack.enter_async_context(listening(sys.executable, str(SERVER), str(port), port=port))
            config = remote(f"http://127.0.0.1:{port}/mcp")
        link, _ = await open_link(config, ear, LEGACY_HELLO, lacks="legacy")
        try:
            assert link.is_modern
            yield link
        finally:
            await link.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_sdks_questions_reach_legacy_and_modern_clients(transport: str) -> None:
    async with sdk_link(transport, WaitingEar()) as link:
        client = Client(lambda *_: wire.result_frame({"action": "accept", "content": {"name": "Ada"}}))

        answer = await call(link, "greet", caller=client)

        assert answer["content"][0]["text"] == "hello Ada"
        assert [frame.method for frame in client.asked] == ["elicitation/create"]
        asked = await call(link, "greet", caller=modern_caller())
        assert (asked["resultType"], len(asked["inputRequests"])) == ("input_required", 1)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_sdks_updates_of_resources_are_heard(transport: str) -> None:
    ear = WaitingEar()
    async with sdk_link(transport, ear) as link:
        subscribed = await link.request("resources/subscribe", {"uri": Raw(b'"sdk://note"')}, timeout_s=BOUND_S)
        assert bytes(subscribed.result) == b"{}"

        await call(link, "touch", uri="sdk://note")
        await ear.wait_for_frame()

        [updated] = ear.frames
        assert updated.method == "notifications/resources/updated"
        assert json.loads(bytes(updated.params)) == {"uri": "sdk://note"}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_sdks_lists_and_resources_are_read(transport: str) -> None:
    async with sdk_link(transport, WaitingEar()) as link:
        listed = await link.request("tools/list", timeout_s=BOUND_S)
        read = await link.request(
            "resources/read", {"uri": Raw(b'"sdk://note"')}, timeout_s=BOUND_S, caller=Client(_none)
        )

        assert {"ttlMs", "cacheScope", "tools"} == set(wire.members(listed.result))
        assert [part["text"] for part in json.loads(bytes(read.result))["contents"]] == ["a note"]
        assert set(wire.members(read.result)) == {"contents"}


def _none(method: str, params: object) -> wire.Frame:
    raise AssertionError(method)
