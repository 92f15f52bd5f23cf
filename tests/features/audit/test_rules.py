"""What the audit log says of calls that guards refuse, and of arguments in which texts were replaced."""

from __future__ import annotations

from pathlib import Path

from dynamic_mcp.features.guards.config import Guard
from dynamic_mcp.features.redaction.config import Redact
from tests.features.audit.audited import audited

GUARD = Guard("mcpServers.up.guards[0]", deny="drop")
REDACT = Redact("r", places=("arguments",), pattern=r"secret-\d", replacement="[x]")


async def test_a_call_that_a_guard_refuses_says_by_which(tmp_path: Path) -> None:
    async with audited(tmp_path, rules={"guards": (GUARD,)}) as on:
        client = await on.join()
        await client.call("up", "get_thing", {"text": "drop it"})
        (line,) = on.lines()
    assert {key: line[key] for key in ("outcome", "error", "decision", "rule")} == {
        "outcome": "denied",
        "error": "RefusedByGuard",
        "decision": "deny",
        "rule": GUARD.id,
    }


async def test_replaced_arguments_are_what_is_written_down(tmp_path: Path) -> None:
    async with audited(tmp_path, arguments="full", rules={"redact": (REDACT,)}) as on:
        client = await on.join()
        await client.call("up", "get_thing", {"text": "it is secret-1"})
    written = read_all(tmp_path)
    assert b"it is [x]" in written
    assert b"secret-1" not in written


def read_all(directory: Path) -> bytes:
    return b"".join(each.read_bytes() for each in directory.rglob("*") if each.is_file())
