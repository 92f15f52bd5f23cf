"""The published servers of which it is said that they make no difference between clients, asked as different ones.

They are used where their commands are on the PATH, as in `test_real_servers.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from dynamic_mcp.config.client_independent import is_client_independent
from dynamic_mcp.config.resolved import Program
from tests.journeys.test_real_servers import command
from tests.program import BOUND_S, Json

pytestmark = [pytest.mark.full, pytest.mark.alone_only("the program takes no part in it")]
ASKABLE: Json = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}, "url": {}}}
HELLOS: list[Json] = [
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "dynamic-mcp", "version": "1"}},
    {"protocolVersion": "2025-06-18", "capabilities": ASKABLE, "clientInfo": {"name": "Cursor", "version": "2"}},
    {"protocolVersion": "2025-11-25", "capabilities": ASKABLE, "clientInfo": {"name": "claude-code", "version": "3"}},
]


async def play(name: str, hello: Json, call: Json, folder: Path) -> tuple[list[Json], list[str]]:
    """Return what a server answers to a client that lists everything and calls a tool, and what it asks it."""
    env = {**os.environ, "MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(command(name), stdin=pipe, stdout=pipe, env=env, cwd=folder)
    assert server.stdin is not None
    assert server.stdout is not None
    requests = [("initialize", hello), *((f"{each}/list", {}) for each in ("tools", "resources", "prompts"))]
    answers: list[Json] = []
    asked: list[str] = []
    async with asyncio.timeout(BOUND_S):
        for number, (method, params) in enumerate([*requests, ("tools/call", call)]):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            server.stdin.write(json.dumps(message).encode() + b"\n")
            while (line := json.loads(await server.stdout.readline())).get("id") != number or "method" in line:
                asked += [line["method"]] if "id" in line else []
            if method == "initialize":
                server.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
                del line["result"]["protocolVersion"]
            answers.append(line if method != "tools/call" else line["result"].get("isError", False))
        server.stdin.close()
        await server.wait()
    return answers, asked


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("mcp-server-time", {"name": "get_current_time", "arguments": {"timezone": "UTC"}}),
        ("mcp-server-git", {"name": "git_status", "arguments": {"repo_path": "."}}),
        ("mcp-server-memory", {"name": "read_graph", "arguments": {}}),
    ],
)
async def test_a_server_that_is_said_to_make_no_difference_offers_every_client_the_same_and_asks_none(
    tmp_path: Path, name: str, call: Json
) -> None:
    await (await asyncio.create_subprocess_exec("git", "init", "-q", str(tmp_path))).wait()
    played = [await play(name, hello, call, tmp_path) for hello in HELLOS]

    assert is_client_independent(Program(command=name, args=(), env={}, cwd=None))
    assert [asked for _, asked in played] == [[]] * len(HELLOS)
    assert played[0][0][-1] is False
    assert [answers for answers, _ in played] == [played[0][0]] * len(HELLOS)
