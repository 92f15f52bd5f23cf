"""The picture of the way of a call is what a debugger shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.program import odd

ROOT = Path(__file__).parents[1]
BOUND_S = 60
# Runs the program, and writes down which functions it enters and leaves.
FOLLOW = """
import sys
from dynamic_mcp.cli.main import run
def follow(frame, event, argument):
    path = frame.f_code.co_filename.replace("\\\\", "/")
    if event in ("call", "return") and "/dynamic_mcp/" in path:
        file = path.rpartition("/dynamic_mcp/")[2]
        noted.write(f"{event} {file} {frame.f_code.co_name}\\n")
with open(sys.argv[2], "w") as noted:
    sys.setprofile(follow)
    try:
        run([sys.argv[1]])
    finally:
        sys.setprofile(None)
"""
FIRST, LAST = "call face/lines.py _receive", "call session/legacy.py _send_answer"


def test_a_call_passes_the_functions_of_the_picture_in_their_order(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mcpServers": {"good": odd()}}))
    noted = tmp_path / "noted"
    program = subprocess.Popen(
        [sys.executable, "-c", FOLLOW, str(config), str(noted)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    arguments = {"group": "good", "name": "echo", "args": {"text": "hello"}}
    call = {"method": "tools/call", "params": {"name": "call_dynamic_tool", "arguments": arguments}}
    requests = [{"method": "initialize", "params": {"protocolVersion": "2025-11-25"}}, call, call]
    for id, request in enumerate(requests):
        program.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id, **request}) + "\n")
        program.stdin.flush()
        while json.loads(program.stdout.readline()).get("id") != id:
            pass
    program.communicate(timeout=BOUND_S)

    passed = noted.read_text().splitlines()
    last = max(number for number, each in enumerate(passed) if each == LAST)
    first = max(number for number, each in enumerate(passed[:last]) if each == FIRST)
    of_call = iter([each.partition(" ")[2] for each in passed[first : last + 1]])
    assert [each for each in read_picture() if each not in of_call] == []


def read_picture() -> list[str]:
    """Return the files and functions in their order."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = text.partition("<!-- way of a call -->")[2].partition("<!-- end of the way of a call -->")[0]
    found = re.findall(r"\u2502 \w+\.(\w+) +(\S+\.py)", picture)
    assert len(found) > 15
    return [f"{file} {name}" for name, file in found]
