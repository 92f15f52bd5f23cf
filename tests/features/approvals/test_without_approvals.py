"""A program without the feature refuses what needs approval, and every config that says how to ask."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.features.test_table import copy_without, run
from tests.program import Json, odd

CHECK = """
import sys
from dynamic_mcp.cli.main import run
sys.exit(run(["check", "--json", "-c", sys.argv[1]]) != 2)
"""
SCHEMA = """
from dynamic_mcp.config.schema import schema_text
print(schema_text())
"""
SERVE = """
import sys
from dynamic_mcp.cli.main import run
assert run([sys.argv[1]]) == 0
"""
ASK: dict[str, Json] = {
    "approve": {"approve": ["ech*"]},
    "a guard": {"guards": [{"tools": ["echo"], "deny": "hello", "effect": "ask"}]},
}


@pytest.fixture
def without_approvals(tmp_path: Path) -> Path:
    """A folder with the program, which lacks the feature."""
    copy_without("approvals", tmp_path / "dynamic_mcp")
    return tmp_path


def write(folder: Path, server: Json, settings: Json) -> str:
    config = folder / "config.json"
    config.write_text(json.dumps({"mcpServers": {"good": {**odd(), **server}}, "settings": settings}))
    return str(config)


@pytest.mark.parametrize("server", ASK.values(), ids=ASK.keys())
def test_a_call_that_needs_approval_is_refused(without_approvals: Path, server: Json) -> None:
    config = write(without_approvals, server, {})
    arguments = {"group": "good", "name": "echo", "arguments": {"text": "hello"}}
    frames = [
        {"method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}}},
        {"method": "tools/call", "params": {"name": "call_dynamic_tool", "arguments": arguments}},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", "id": id, **frame}) for id, frame in enumerate(frames)]
    printed = run(without_approvals, SERVE, config, stdin="\n".join([*lines, ""])).splitlines()
    answers = [json.loads(line) for line in printed]
    (called,) = (each["result"] for each in answers if each.get("id") == 1)
    assert called["isError"]
    said = called["content"][0]["text"]
    assert "`echo` of group `good` was not approved: this dynamic-mcp has no approvals" in said
    assert "hello" not in said


def test_how_to_ask_is_an_unknown_field_of_the_config(without_approvals: Path) -> None:
    config = write(without_approvals, {}, {"approval": {"channels": ["queue"]}})

    (finding,) = json.loads(run(without_approvals, CHECK, config))

    assert finding["level"] == "error"
    assert finding["what"] == "`settings.approval`: is an unknown field"
    assert "approval" not in json.loads(run(without_approvals, SCHEMA))["$defs"]["Settings"]["properties"]
