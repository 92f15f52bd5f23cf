"""Two servers that ask the client in the middle of two calls, with equal ids and tokens: nothing is mixed up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.program import UPSTREAMS, Json, Program, running, text_of

GROUPS = ("a", "b")


def full(name: str) -> dict[str, Json]:
    """Return the config of a complete server of this name."""
    return {"command": sys.executable, "args": [str(UPSTREAMS / "full.py"), "--name", name]}


def begin(program: Program, group: str) -> None:
    """Call a tool that asks the client; both groups' calls carry the same progress token."""
    question = {"message": f"for {group}", "requestedSchema": {"type": "object", "properties": {}}}
    args = {"method": "elicitation/create", "params": question}
    call = {"group": group, "name": "ask", "args": args}
    params = {"name": "call_dynamic_tool", "arguments": call, "_meta": {"progressToken": "same"}}
    program.send({"jsonrpc": "2.0", "id": f"call-{group}", "method": "tools/call", "params": params})


@pytest.mark.parametrize("order", [GROUPS, GROUPS[::-1]])
async def test_two_servers_that_ask_at_the_same_time_get_each_its_own_answer(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {group: full(group) for group in GROUPS}}))
    async with running(str(file)) as program:
        await program.initialize(capabilities={"elicitation": {}})
        for group in GROUPS:  # both are up, so that neither is ahead of the other
            await program.call(group, "plain")
        for group in GROUPS:
            begin(program, group)
        asked = {}
        for group in GROUPS:
            marker = f"for {group}".encode()
            line = await program.line(lambda line, marker=marker: b"elicitation/create" in line and marker in line)  # type: ignore[misc]
            asked[group] = json.loads(line)
        # both questions are open now, and no call is answered
        assert not [line for line in program.lines if b'"id":"call-' in line]
        assert asked["a"]["id"] != asked["b"]["id"]

        for group in order:
            result = {"action": "accept", "content": {"name": f"answer for {group}"}}
            program.send({"jsonrpc": "2.0", "id": asked[group]["id"], "result": result})

        told = {}
        for group in GROUPS:
            answer = json.loads(await program.line(lambda line, group=group: f'"id":"call-{group}"'.encode() in line))  # type: ignore[misc]
            told[group] = json.loads(text_of(answer["result"]))
        for group in GROUPS:
            assert told[group]["result"]["content"] == {"name": f"answer for {group}"}
        assert told["a"]["id"] == told["b"]["id"], "the servers asked with equal ids"
