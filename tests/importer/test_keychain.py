"""Secrets move into the system's keychain, and servers get them from there."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dynamic_mcp.config.read import read
from dynamic_mcp.config.resolved import Program, Remote
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.oauth import keychain
from dynamic_mcp.upstream.lookups import look_up
from tests.file_keychain import FileKeychain, use_file_keychain
from tests.importer.world import World
from tests.program import BOUND_S

TOKEN = "ghp_0123456789abcdef0123456789"
GITHUB = {"command": "npx", "args": ["x", "--api-key", "open-sesame-1"], "env": {"GITHUB_TOKEN": TOKEN}}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    return World(tmp_path, monkeypatch, capsys)


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileKeychain:
    return use_file_keychain(tmp_path / "keychain.json", monkeypatch)


async def upstreams(world: World) -> list[Program | Remote]:
    """Return the servers of the config as they are started."""
    found: list[Program | Remote] = []
    for group in read(world.output, os.environ).groups:
        assert isinstance(group.upstream, Program | Remote)
        async with asyncio.timeout(BOUND_S):
            upstream = (await look_up(group, group.upstream)).upstream
        assert isinstance(upstream, Program | Remote)
        found.append(upstream)
    return found


async def test_secrets_move_into_the_keychain_and_servers_get_them_from_there(
    world: World, chain: FileKeychain
) -> None:
    world.cursor(github=GITHUB, web={"url": "https://host", "headers": {"Authorization": "Bearer it's \\ me"}})

    ran = world.run("import", "cursor", "--secrets", "keyring")

    assert ran.code == 0
    assert set(chain.entries.values()) == {TOKEN, "open-sesame-1", "it's \\ me"}
    assert all(name in ran.err for name in chain.entries)
    text = world.output.read_text(encoding="utf-8")
    assert not [secret for secret in chain.entries.values() if secret in text + ran.out + ran.err]
    github, web = await upstreams(world)
    assert isinstance(github, Program)
    assert (github.env["GITHUB_TOKEN"], github.args[-1]) == (TOKEN, "open-sesame-1")
    assert isinstance(web, Remote)
    assert web.headers == {"Authorization": "Bearer it's \\ me"}


def test_a_secret_of_that_name_that_is_there_stays(world: World, chain: FileKeychain) -> None:
    chain.set_password("dynamic-mcp", "github/GITHUB_TOKEN", "of another config")
    world.cursor(github=GITHUB)

    world.run("import", "cursor", "--secrets", "keyring")

    assert chain.entries["github/GITHUB_TOKEN"] == "of another config"
    assert chain.entries["github/GITHUB_TOKEN-2"] == TOKEN
    assert "${keyring:github/GITHUB_TOKEN-2}" in world.output.read_text(encoding="utf-8")


def test_a_rehearsal_stores_nothing(world: World, chain: FileKeychain) -> None:
    world.cursor(github=GITHUB)
    world.run("import", "cursor", "--secrets", "keyring", "--dry-run")
    assert chain.entries == {}


def test_without_the_package_nothing_is_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    world.cursor(github=GITHUB)

    ran = world.run("import", "cursor", "--secrets", "keyring")

    assert ran.code == 1
    assert "the keychain requires a package" in ran.err
    assert not world.output.exists()


async def test_an_entry_that_is_not_there_is_named(world: World, chain: FileKeychain) -> None:
    world.output.write_text('{"mcpServers": {"a": {"command": "a", "env": {"A": "${keyring:a/b}"}}}}')
    with pytest.raises(Unreachable, match="the keychain has no entry `a/b`") as caught:
        await upstreams(world)
    assert "keyring set dynamic-mcp a/b" in caught.value.hint
    assert chain.entries == {}


@pytest.mark.parametrize("text", ["plain", "ümläut", "two\nlines", "ends with\n"])
async def test_an_entry_is_passed_on_as_it_is(world: World, chain: FileKeychain, text: str) -> None:
    keychain.write("a", text)
    world.output.write_text('{"mcpServers": {"a": {"command": "a", "env": {"A": "${keyring:a}"}}}}')
    [upstream] = await upstreams(world)
    assert isinstance(upstream, Program)
    assert upstream.env["A"] == text
    assert chain.entries == {"a": text}
