"""The section with the config: without secrets, and what a change would do, which is never written."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.config.read import read
from dynamic_mcp.system.shell import quote
from dynamic_mcp.ui.config_view import ConfigSection
from dynamic_mcp.ui.now import NowSection
from tests.fakes import Json
from tests.ui.site import Answer, Browser, Site, bearer_http, site_of

SECRET = "hunter2-of-ann-9x"
SERVERS: Json = {
    "one": {"command": "one", "args": ["-v"], "env": {"API_KEY": SECRET}},
    "two": {"command": "two"},
}
SETTINGS: Json = {"ui": {"operators": ["admins"]}}


@contextlib.asynccontextmanager
async def config_site(folder: Path, servers: Json = SERVERS, settings: Json = SETTINGS) -> AsyncIterator[Site]:
    file = folder / "config.json"
    file.write_text(json.dumps({"mcpServers": servers, "settings": settings}, indent=2))
    file.chmod(0o600)
    config = read(file, os.environ)
    async with site_of(folder, config, sections=[NowSection, ConfigSection]) as site:
        yield site


async def try_text(browser: Browser, servers: Json, settings: Json = SETTINGS) -> Answer:
    text = json.dumps({"mcpServers": servers, "settings": settings}, indent=2)
    return await browser.act("/ui/config/try", {"text": text})


def with_server(name: str, entry: Json) -> Json:
    masked = {**SERVERS, "one": {**SERVERS["one"], "env": {"API_KEY": "***"}}}
    return {key: each for key, each in {**masked, name: entry}.items() if each is not None}


async def test_the_text_is_shown_without_secrets(tmp_path: Path) -> None:
    async with config_site(tmp_path) as site:
        browser = await site.local_user()
        page = await browser.get("/ui/config")
        assert SECRET not in page.document.html
        assert '"API_KEY": "***"' in page.text
        assert "looks like a secret in plain text" in page.text
        download = await browser.get("/ui/config/text")
        assert SECRET.encode() not in download.response.body


async def test_what_is_masked_means_unchanged(tmp_path: Path) -> None:
    async with config_site(tmp_path) as site:
        page = await try_text(await site.local_user(), with_server("two", SERVERS["two"]))
        assert "This changes nothing." in page.text
        assert SECRET not in page.document.html


@pytest.mark.parametrize(
    ("name", "entry", "effect", "command"),
    [
        (
            "three",
            {"command": "three", "args": ["a b"]},
            "Added three",
            "add three -c {file} -- three " + quote("a b"),
        ),
        ("far", {"url": "https://far.example/mcp"}, "Added far", "add far -c {file} --url https://far.example/mcp"),
        ("two", None, "Removed two", "remove two -c {file}"),
        ("two", {"command": "two", "enabled": False}, "Removed two", "disable two -c {file}"),
        ("two", {"command": "other"}, "Started again two", "add two -c {file} --replace -- other"),
    ],
)
async def test_a_change_of_servers_is_said_with_the_command_that_makes_it(
    tmp_path: Path, name: str, entry: Json, effect: str, command: str
) -> None:
    async with config_site(tmp_path) as site:
        page = await try_text(await site.local_user(), with_server(name, entry))
        assert effect in page.text
        assert "dynamic-mcp " + command.format(file=site.config.file) in page.text
        assert "by hand" not in page.text


async def test_what_no_command_makes_is_a_difference_to_apply_by_hand(tmp_path: Path) -> None:
    async with config_site(tmp_path) as site:
        entry = {"command": "two", "tools": {"include": ["look_*"]}}
        page = await try_text(await site.local_user(), with_server("two", entry))
        assert "Shown otherwise two" in page.text
        assert "Kept running 1 server" in page.text
        assert "Change the file by hand" in page.text
        assert 'added: + "include": [' in page.text
        assert SECRET not in page.document.html


async def test_errors_are_said_with_their_places(tmp_path: Path) -> None:
    async with config_site(tmp_path) as site:
        browser = await site.local_user()
        page = await try_text(browser, {"one": {"comand": "one"}, "two": {"command": 3}})
        assert "mcpServers.one" in page.text
        assert "mcpServers.two.command" in page.text
        page = await browser.act("/ui/config/try", {"text": "{\n  oops"})
        assert "line 2, column 3" in page.text
        page = await try_text(browser, {"new": {"command": "x", "env": {"API_KEY": "***"}}})
        assert "stands for no value that is there" in page.text


async def test_nothing_is_ever_written(tmp_path: Path) -> None:
    async with config_site(tmp_path) as site:
        before = contents(tmp_path)
        browser = await site.local_user()
        await try_text(browser, {"evil": {"command": "touch", "args": [str(tmp_path / "made")]}})
        await browser.get("/ui/config")
        assert contents(tmp_path) == before
        assert not (tmp_path / "made").exists()
        assert [group.name for group in site.proxy.groups] == ["one", "two"]


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*.json") if "ui" not in file.parts}


async def test_only_an_operator_sees_the_config(tmp_path: Path) -> None:
    async with config_site(tmp_path) as site:
        site.configure(site.config, bearer_http())
        for name in ("bob", "eve"):
            browser = await site.person(name)
            assert (await browser.get("/ui/config")).status == 404
            assert (await browser.get("/ui/config/text")).status == 404
            assert (await browser.act("/ui/config/try", {"text": "{}"})).status == 404
        assert (await (await site.person("ann")).get("/ui/config")).status == 200


async def test_a_large_config_is_a_download(tmp_path: Path) -> None:
    servers = {f"server-{n}": {"command": f"program-{n}", "args": ['"<&>"'] * 5} for n in range(500)}
    async with config_site(tmp_path, servers) as site:
        browser = await site.local_user()
        page = await browser.get("/ui/config")
        assert len(page.response.body) < 50_000
        assert "Download it, without secrets" in page.text
        page = await browser.act("/ui/config/try", {"text": '{"mcpServers": {}}'})
        assert len(page.response.body) < 50_000
        assert "Removed server-0" in page.text


async def test_a_file_that_is_broken_is_shown_and_can_be_mended(tmp_path: Path) -> None:
    async with config_site(tmp_path) as site:
        site.config.file.write_text('{"mcpServers": {"one": {"env": {"API_KEY": "' + SECRET + '"}}')
        browser = await site.local_user()
        page = await browser.get("/ui/config")
        assert page.status == 200
        assert SECRET not in page.document.html
        page = await try_text(browser, {"one": {"command": "one"}})
        assert "Removed two" in page.text


async def test_hostile_texts_stay_text(tmp_path: Path) -> None:
    harm = "</textarea><script>alert(1)</script>"
    async with config_site(tmp_path, {harm: {"command": harm}}) as site:
        page = await (await site.local_user()).get("/ui/config")
        assert page.document.find("script") == page.document.find("script", type="module")
        assert len(page.document.find("textarea")) == 1


async def test_the_part_alone_is_what_scripts_exchange(tmp_path: Path) -> None:
    async with config_site(tmp_path) as site:
        browser = await site.local_user()
        token = (await browser.get("/ui/config")).document.form_token
        fields = {"csrf": token, "text": '{"mcpServers": {}}'}
        part = await browser.post("/ui/config/try", fields, {"x-fragment": "try"})
        assert part.status == 200
        assert part.document.find("section", id="try")
