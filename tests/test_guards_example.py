"""What `examples/rules.json` says of the arguments of notes, and of what is replaced in them."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.own_process import OWN
from tests.program import Program, started, text_of

CONFIG = Path(__file__).parent.parent / "examples" / "rules.json"
KEY = "ghp_" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY1234"


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[Program]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # for `python`
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    async with started(*OWN, str(CONFIG), env=environment) as program:
        await program.initialize()
        yield program


async def test_scripts_are_refused_and_keys_and_addresses_replaced(program: Program, tmp_path: Path) -> None:
    refused = await program.call("notes", "add_note", {"title": "One", "text": "<SCRIPT>"})
    assert "notes have no scripts; nothing was sent" in text_of(refused)
    text = f"The key of ann@example.com is {KEY}."
    added = await program.call("notes", "add_note", {"title": "Two", "text": text})
    assert not added.get("isError")
    (file,) = (tmp_path / "dynamic-mcp-notes").iterdir()
    assert "The key of ann@example.com is [secret]." in file.read_text()
    read = await program.call("notes", "read_note", {"name": file.stem})
    assert read["structuredContent"]["text"] == "The key of [redacted] is [secret]."
    assert "ann@example.com" not in text_of(read)
