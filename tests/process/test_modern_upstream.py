"""The whole program in front of a server that is modern only, for a legacy client: over stdio and HTTP."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.program import UPSTREAMS, Json, Program, serving
from tests.upstreams.conformance_modern import ModernHttp

ACCEPT = b'{"action":"accept","content":{"ok":true,"name":"Ada"}}'
CAN = {"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}}


@contextlib.asynccontextmanager
async def in_front_of_modern(transport: str, folder: Path, **members: Json) -> AsyncIterator[Program]:
    """Run the program in front of the strict modern server."""
    async with contextlib.AsyncExitStack() as stack:
        server: Json = {"command": sys.executable, "args": [str(UPSTREAMS / "conformance_modern.py")]}
        if transport == "http":
            server = {"url": (await stack.enter_async_context(ModernHttp())).url}
        program = await stack.enter_async_context(serving(folder, {"up": {**server, **members}}, capabilities=CAN))
        program.answers["elicitation/create"] = ACCEPT
        yield program


def said(result: Json) -> str:
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_legacy_client_uses_a_modern_server(transport: str, tmp_path: Path) -> None:
    async with in_front_of_modern(transport, tmp_path) as program:
        assert "simple text" in said(await program.call("up", "test_simple_text"))
        arguments = {"region": "eu", "priority": 3, "dry_run": False, "query": "ü"}
        assert json.loads(said(await program.call("up", "test_custom_headers", arguments))) == arguments
        assert "state-ok" in said(await program.call("up", "test_input_required_result_request_state"))
        assert len(program.heard("elicitation/create")) == 1

        read = await program.request("resources/read", {"uri": "test://static-text"})
        assert read["result"]["contents"][0]["uri"] == "test://static-text"
        assert set(read["result"]) == {"contents"}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_changes_of_a_modern_server_reach_a_legacy_client(transport: str, tmp_path: Path) -> None:
    async with in_front_of_modern(transport, tmp_path) as program:
        uri = "test://watched-resource"
        assert (await program.request("resources/subscribe", {"uri": uri}))["result"] == {}

        await program.call("up", "test_update_resource", {"uri": uri})

        updated = await program.hears("notifications/resources/updated")
        assert updated["params"] == {"uri": uri}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_log_messages_of_a_modern_server_reach_a_legacy_client_from_its_level_on(
    transport: str, tmp_path: Path
) -> None:
    async with in_front_of_modern(transport, tmp_path) as program:
        await program.call("up", "test_logging_tool")
        assert len(program.heard("notifications/message")) == 3

        assert (await program.request("logging/setLevel", {"level": "error"}))["result"] == {}
        await program.call("up", "test_logging_tool")

        assert len(program.heard("notifications/message")) == 3


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_server_that_everybody_shares_may_be_modern(transport: str, tmp_path: Path) -> None:
    async with in_front_of_modern(transport, tmp_path, share="all") as program:
        assert "simple text" in said(await program.call("up", "test_simple_text"))
