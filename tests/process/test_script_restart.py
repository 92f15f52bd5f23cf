"""A script that waits for its client when the program ends, or is killed, goes on in the next one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.http_program import serving_http
from tests.modern_client import retry_of
from tests.process.test_modern_states import client_of
from tests.program import full, text_of

pytestmark = pytest.mark.alone_only("it is a program that serves over HTTP, and nobody's window")
CODE = """first = await call("a", "echo", {"text": "7 of them"})
try:
    await call("a", "elicit", {"key": "k"})
except ToolError as error:
    return [first, str(error), await call("a", "echo", {"text": "after it"})]"""
SCRIPT = {"name": "run_dynamic_script", "arguments": {"code": CODE}}
SETTINGS = {"scripts": True}


@pytest.mark.parametrize("how", ["killed", "ended"])
async def test_a_script_goes_on_after_the_program_was_ended_and_only_once(tmp_path: Path, how: str) -> None:
    servers = {"a": full()}
    async with serving_http(tmp_path, servers, settings=SETTINGS) as program, client_of(program) as client:
        asked = await client.request("tools/call", SCRIPT)
        assert asked["result"]["resultType"] == "input_required"
        if how == "killed":
            await program.kill()
    async with serving_http(tmp_path, servers, settings=SETTINGS) as program, client_of(program) as client:
        retry = {**SCRIPT, **retry_of(asked)}
        done = await client.request("tools/call", retry)
        first, second, third = json.loads(text_of(done["result"]))
        assert "7 of them" in json.dumps(first)
        assert "it may have run" in second
        assert "after it" in json.dumps(third)
        again = await client.request("tools/call", retry)
        assert again["error"]["data"] == {"reason": "used"}
