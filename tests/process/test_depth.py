"""JSON of any depth costs its own call at most.

How deep the parsers can go depends on the interpreter and the stack, from less than 1000 to more than 200000 levels.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.neighbours import assert_alive
from tests.program import Json, odd, serving

# Around what Python 3.11 to 3.14 decode, and what functions in Python can visit.
DEPTHS = (400, 850, 950, 1_100, 1_600, 5_000, 11_000, 20_000, 40_000, 300_000)
# Each of these decodes the arguments, the results, or both.
FEATURES: dict[str, Json] = {
    "guards": [{"deny": "/etc/passwd"}, {"argument": "$.text", "deny": "secret", "effect": "ask"}],
    "redact": [{"presets": ["emails"]}],
    "overrides": {"echo": {"arguments": {"extra": {"default": 1}}}},
    "cache": [{"tools": ["echo"], "ttl": "1m"}],
    "validate": "strict",
}


@pytest.fixture(autouse=True)
def _deep_answers_can_be_read() -> Iterator[None]:
    """Let the client of the test, whose stack is deeper than that of a program, read what the program can read."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * limit)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.parametrize("is_full", [False, True], ids=["plain", "with features"])
async def test_json_of_any_depth_costs_its_own_call_at_most(
    tmp_path: Path, subtests: pytest.Subtests, *, is_full: bool
) -> None:
    settings: Json = {"audit": {"path": str(tmp_path / "audit"), "arguments": "full"}} if is_full else {}
    server = odd(**FEATURES) if is_full else odd()
    async with serving(tmp_path, {"odd": server, "good": odd()}, settings=settings) as program:
        for depth in DEPTHS:
            with subtests.test(depth=depth):
                deep = b"[" * depth + b"]" * depth
                await program.call_line("odd", "fault", {"kind": "deep", "size": depth})
                program.send(_call(b'{"text":"a","extra":%s}' % deep))  # what cannot be read has no id
                await program.call_line("odd", "echo", {"text": deep.decode()})
                await assert_alive(program, "odd", "good")
    assert "a bug" not in await program.stderr()


def _call(arguments: bytes) -> bytes:
    call = b'{"name":"call_dynamic_tool","arguments":{"group":"odd","name":"echo","args":%s}}' % arguments
    return b'{"jsonrpc":"2.0","id":"deep","method":"tools/call","params":%s}\n' % call
