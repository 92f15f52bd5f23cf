"""A server gets the secrets of programs when it starts, and they are nowhere else."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from dynamic_mcp.system import file_reader
from tests.program import odd, serving, text_of
from tests.secret_vault import SECRET, Vault


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    folder = tmp_path / "vault"
    folder.mkdir()
    return Vault(folder)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path / "config"


async def test_a_server_gets_its_secrets_once_for_each_start(vault: Vault, home: Path) -> None:
    server = odd(env={"COLOUR": "<${vault:a/b}>"})
    async with serving(home, {"up": server}, settings=vault.settings) as program:
        first, second = [json.loads(text_of(await program.call("up", "env"))) for _ in range(2)]

    assert first["COLOUR"] == second["COLOUR"] == f"<{SECRET}>"
    assert vault.asked == ["a/b"]


async def test_a_reload_that_changes_nothing_of_a_server_asks_nothing_again(vault: Vault, home: Path) -> None:
    server = odd(env={"COLOUR": "${vault:a}"})
    async with serving(home, {"up": server}, settings=vault.settings) as program:
        before = text_of(await program.call("up", "process"))

        document = {"mcpServers": {"up": server, "added": odd(description="Fresh")}, "settings": vault.settings}
        (home / "new.json").write_text(json.dumps(document))
        file_reader.replace(home / "new.json", home / "dynamic-mcp.json")
        while "Fresh" not in json.dumps(await program.request("tools/list")):
            await program.hears("notifications/tools/list_changed")

        assert text_of(await program.call("up", "process")) == before

    assert vault.asked == ["a"]


async def test_a_locked_vault_keeps_its_own_server_down_and_no_other(vault: Vault, home: Path) -> None:
    vault.answers("sys.exit('locked')")
    servers = {"locked": odd(env={"COLOUR": "${vault:x}"}, retry={"attempts": 1}), "free": odd()}
    async with serving(home, servers, settings=vault.settings) as program:
        refused = text_of(await program.call("locked", "env"))
        assert "COLOUR" not in json.loads(text_of(await program.call("free", "env")))

    assert "exited with code 1: locked" in refused
    assert vault.asked == ["x"]


async def test_it_is_asked_again_at_the_next_try(vault: Vault, home: Path) -> None:
    vault.answers("sys.exit('locked') if len((folder / 'asked').read_text().split()) < 2 else print('open now')")
    async with serving(home, {"up": odd(env={"COLOUR": "${vault:x}"})}, settings=vault.settings) as program:
        await program.call("up", "env")
        answer = await program.call("up", "env")
        while answer.get("isError"):
            await asyncio.sleep(0)
            answer = await program.call("up", "env")

    assert json.loads(text_of(answer))["COLOUR"] == "open now"
    assert vault.asked == ["x", "x"]


async def test_what_a_failing_server_says_is_shown_without_its_secrets_and_no_file_has_them(
    vault: Vault, home: Path
) -> None:
    server = odd("tells", "it is $COLOUR here", env={"COLOUR": "${vault:x}"}, retry={"attempts": 1})
    servers = {"up": server, "other": odd(env={"COLOUR": "${vault:x}"})}
    settings = {**vault.settings, "audit": True}
    async with serving(home, servers, settings=settings) as program:
        refused = text_of(await program.call("up", "env"))
        await program.call("other", "process")

    assert "it is *** here" in refused
    own_folders = Path(os.environ["HOME"]).parent
    files = [file for folder in (own_folders, home) for file in folder.rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if SECRET.encode() in file.read_bytes()]
