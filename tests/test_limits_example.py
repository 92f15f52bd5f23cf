"""What `examples/rules.json` says of how often notes are written, and of what is kept of them."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.own_process import OWN
from tests.program import Program, started, text_of

CONFIG = Path(__file__).parent.parent / "examples" / "rules.json"
MARK = "dynamic-mcp/cache"


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[Program]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # for `python`
    environment = {**os.environ, "PATH": path, "NOTES_DIR": str(tmp_path)}
    async with started(*OWN, str(CONFIG), env=environment) as program:
        await program.initialize()
        yield program


async def test_notes_are_kept_until_one_is_written_and_not_too_many_are_written_at_once(program: Program) -> None:
    async def add(title: str) -> str:
        result = await program.call("notes", "add_note", {"title": title, "text": "text"})
        return text_of(result) if result.get("isError") else ""

    async def is_hit() -> bool:
        return MARK in (await program.call("notes", "list_notes", {})).get("_meta", {})

    assert await add("One") == ""
    assert [await is_hit(), await is_hit()] == [False, True]
    assert await add("Two") == ""
    assert [await is_hit(), await is_hit()] == [False, True]
    assert await add("Three") == ""
    refused = [await add(f"More {number}") for number in range(5)]
    assert "was called too often; nothing was sent" in refused[-1]
    assert "try again in" in refused[-1]
