"""`dynamic-mcp ui` finds the page of what serves a config, or serves it itself, and logs its user in by a link."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dynamic_mcp.system import paths
from tests import own_process
from tests.http_program import serving_http
from tests.own_process import DEVNULL, PIPE
from tests.program import BOUND_S, Json
from tests.signals import interrupt
from tests.ui.site import Document
from tests.web import web_client

pytestmark = pytest.mark.alone_only("each test serves as it needs")
NO_SERVERS: Json = {}


def write_config(folder: Path, **settings: Json) -> Path:
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"files": {"command": "no-such"}}, "settings": settings}))
    return file


async def open_ui(config: Path, *options: str) -> tuple[int, str, str]:
    """Run the command to its end; return its exit code and what it has written."""
    command = ("ui", "--no-browser", "--config", str(config), *options)
    process = await own_process.start(*command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(BOUND_S):
        out, err = await process.communicate()
        return await process.wait(), out.decode(), err.decode()


async def visit(link: str) -> Document:
    """Open a link as a browser does, and return the page that it leads to."""
    async with web_client(follow_redirects=True, trust_env=False) as web:
        answer = await web.get(link)
        assert answer.status_code == 200, answer.text
        return Document(answer.text)


async def test_it_opens_the_page_of_what_serves_the_config_over_http(tmp_path: Path) -> None:
    async with serving_http(tmp_path, {"files": {"command": "no-such"}}) as program:
        code, link, _ = await open_ui(tmp_path / "dynamic-mcp.json")

        assert code == 0
        assert link.startswith(f"{program.own_origin}/ui/login?link=")
        assert "files" in (await visit(link.strip())).text


async def test_it_serves_the_page_itself_where_nothing_runs_until_it_is_interrupted(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    command = ("ui", "--no-browser", "--config", str(config))
    process = await own_process.start(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    assert process.stdout is not None
    async with asyncio.timeout(BOUND_S):
        link = (await process.stdout.readline()).decode().strip()
        page = await visit(link)
        interrupt(process.pid)
        await process.communicate()

        assert "files" in page.text
        assert await process.wait() == 0


async def test_the_address_that_it_serves_by_itself_is_no_way_to_the_servers(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    command = ("ui", "--no-browser", "--config", str(config))
    process = await own_process.start(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    assert process.stdout is not None
    async with asyncio.timeout(BOUND_S), web_client(trust_env=False) as web:
        parts = urlsplit((await process.stdout.readline()).decode().strip())
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
        headers = {"accept": "application/json, text/event-stream"}
        answer = await web.post(f"http://{parts.netloc}/mcp", json=hello, headers=headers)
        elsewhere = await web.get(f"http://{parts.netloc}/ui", headers={"host": "evil.example"})
        interrupt(process.pid)
        await process.communicate()
        await process.wait()

    assert parts.hostname == "127.0.0.1"
    assert (answer.status_code, elsewhere.status_code) == (404, 403)


async def test_the_daemon_of_a_config_serves_the_page_with_the_servers_that_it_runs(tmp_path: Path) -> None:
    config = write_config(tmp_path, daemon=True)
    assert (await run("daemon", "start", "--config", str(config))) == 0
    try:
        _, first, _ = await open_ui(config)
        _, second, _ = await open_ui(config)

        assert "files" in (await visit(first.strip())).text
        assert urlsplit(first).netloc == urlsplit(second).netloc
    finally:
        assert (await run("daemon", "stop", "--config", str(config))) == 0


async def test_a_config_that_turns_the_page_off_has_none(tmp_path: Path) -> None:
    settings = {"ui": False}
    async with serving_http(tmp_path, NO_SERVERS, settings=settings) as program, web_client(trust_env=False) as web:
        code, _, words = await open_ui(tmp_path / "dynamic-mcp.json")

        assert code == 1
        assert "turns the page off" in words
        assert (await web.get(f"{program.own_origin}/ui")).status_code == 404


@pytest.mark.posix_only("a browser that is a shell script, and modes of files")
async def test_the_file_that_leads_a_browser_to_the_link_is_private(tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    shown = tmp_path / "shown"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {shown}\n')
    browser.chmod(0o755)
    async with serving_http(tmp_path, NO_SERVERS):
        command = ("ui", "--config", str(tmp_path / "dynamic-mcp.json"))
        process = await own_process.start(
            *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env={**os.environ, "BROWSER": str(browser)}
        )
        async with asyncio.timeout(BOUND_S):
            out, _ = await process.communicate()
            assert await process.wait() == 0

        url = shown.read_text()
        assert url.startswith("file://")
        mode, text = read(Path(urlsplit(url).path))
        assert mode == 0o600
        assert str(paths.state_dir()) in url
        assert out.decode().strip() in text


def read(file: Path) -> tuple[int, str]:
    """Return the mode of a file, and its text."""
    return stat.S_IMODE(file.stat().st_mode), file.read_text()


async def run(*words: str) -> int:
    process = await own_process.start(*words, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    async with asyncio.timeout(BOUND_S):
        return await process.wait()
