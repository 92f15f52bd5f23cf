"""What the audit log has of clients over HTTP: who, from where, in which session, and who was refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dynamic_mcp.features.audit.config import KEEP_S
from dynamic_mcp.features.audit.keeper import Keeping
from dynamic_mcp.features.audit.observer import AuditObserver
from dynamic_mcp.features.audit.recorder import Trail
from tests.face.auth.parties import TOKEN, client_of, guarded_face

Line = dict[str, Any]  # Any: whatever is on a line
WRONG = "dmcp_wrong-0123456789"


async def record(folder: Path) -> tuple[list[Line], str]:
    """Record a session that moves between addresses, and a refused credential; return the lines, and the session."""
    trail = Trail(folder, Keeping(KEEP_S), stops_writes=True)
    async with guarded_face(folder / "c.json", observer=AuditObserver(trail)) as face:
        client_of(face, WRONG).send("POST", "/mcp?access_token=wrong")
        client = client_of(face, TOKEN)
        client.peer = "192.0.2.1"
        await client.initialize()
        client.peer = "192.0.2.2"
        await client.request("tools/call", {"name": "get_dynamic_tools", "arguments": {"group": "up"}}).ends()
        client.send("DELETE", "/mcp")
    trail.close()
    return _read(folder), client.session


def _read(folder: Path) -> list[Line]:
    files = sorted(folder.glob("????-??-??.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def _read_all(folder: Path) -> str:
    return "".join(file.read_text(errors="replace") for file in folder.rglob("*") if file.is_file())


async def test_each_line_says_who_and_from_where(tmp_path: Path) -> None:
    lines, _ = await record(tmp_path)

    assert [(line["event"], line.get("subject", ""), line["address"]) for line in lines] == [
        ("auth.denied", "", "127.0.0.1"),
        ("auth.accepted", "ann", "192.0.2.1"),
        ("session.opened", "ann", "192.0.2.1"),
        ("list", "ann", "192.0.2.2"),
        ("session.closed", "ann", "192.0.2.1"),
    ]
    assert (lines[0]["outcome"], lines[0]["auth"]) == ("denied", "bearer")
    assert lines[0]["detail"] == {
        "reason": "unknown or revoked token",
        "path": "/mcp",
    }


async def test_all_lines_of_a_session_have_its_id_which_lets_nobody_in(tmp_path: Path) -> None:
    lines, session = await record(tmp_path)

    (id,) = {line["session"] for line in lines if "session" in line}
    assert id not in session


async def test_no_credential_is_in_the_log(tmp_path: Path) -> None:
    _, session = await record(tmp_path)

    assert not [secret for secret in (TOKEN, WRONG, "access_token", session) if secret in _read_all(tmp_path)]
