"""A variable that a config refers to and that the AI tool did not pass on: who hears of it, and what is advised."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.program import Json, Program, full, running

CODEX = "codex-mcp-client"
FIX = "run `dynamic-mcp install codex`"


@contextlib.asynccontextmanager
async def client(folder: Path, name: str, servers: Json, **env: str) -> AsyncIterator[Program]:
    """Run the program as a client of this name does."""
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    async with running(str(file), env=env) as program:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
        await program.request("initialize", hello)
        program.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield program


def words(result: Json) -> str:
    return "\n".join(block.get("text", "") for block in result["content"])


@pytest.mark.both_hosts
async def test_an_error_of_a_server_that_lacks_a_variable_says_so_and_what_to_do(tmp_path: Path) -> None:
    server = full(env={"T": "${DM_UNSET}"})
    async with client(tmp_path, CODEX, {"up": server}) as program:
        failed = await program.call("up", "fail")
        assert failed["isError"] is True
        assert "`DM_UNSET` is not set for dynamic-mcp: Codex passes on only a few variables" in words(failed)
        assert FIX in words(failed)
        assert "DM_UNSET" not in words(await program.call("up", "plain"))
    said = await program.stderr()
    assert said.count("group up: `DM_UNSET` is not set for dynamic-mcp") == 1


async def test_a_server_that_cannot_be_reached_without_a_variable_is_shown_with_what_to_do(tmp_path: Path) -> None:
    async with client(tmp_path, CODEX, {"up": {"url": "https://${DM_UNSET}/mcp"}}) as program:
        assert FIX in words(await program.call("up", "x"))
        assert FIX in json.dumps(await program.request("tools/list"))


async def test_a_program_that_ends_for_want_of_a_variable_is_shown_with_what_to_do(tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"], "env": {"T": "${DM_UNSET}"}}
    async with client(tmp_path, CODEX, {"up": server}) as program:
        said = words(await program.call("up", "x"))
        assert "exited with code 3" in said
        assert FIX in said


@pytest.mark.parametrize(("name", "is_said"), [("gemini-cli-mcp-client-dynamic-mcp", True), ("other", False)])
async def test_an_empty_value_is_none_where_the_client_passes_it_on_for_none(
    tmp_path: Path, name: str, *, is_said: bool
) -> None:
    server = full(env={"T": "${DM_EMPTY}"})
    async with client(tmp_path, name, {"up": server}, DM_EMPTY="") as program:
        assert ("`DM_EMPTY` is not set" in words(await program.call("up", "fail"))) is is_said


async def test_a_reference_that_a_client_did_not_fill_in_is_no_value(tmp_path: Path) -> None:
    server = full(env={"T": "${DM_SELF}"})
    async with client(tmp_path, "Roo Code", {"up": server}, DM_SELF="${env:DM_SELF}") as program:
        assert "dynamic-mcp install roo-code" in words(await program.call("up", "fail"))


async def test_another_client_is_told_where_to_set_it(tmp_path: Path) -> None:
    async with client(tmp_path, "claude-code", {"up": full(env={"T": "${DM_UNSET}"})}) as program:
        said = words(await program.call("up", "fail"))
        assert "`DM_UNSET` is not set for dynamic-mcp: set it where the AI tool starts" in said
