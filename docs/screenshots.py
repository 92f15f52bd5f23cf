"""Take the pictures of the page in `docs/page`: a small team at work, in a real browser.

python docs/screenshots.py

It needs Chromium on the PATH. It serves a config of its own in a temporary directory, with the servers of the examples.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.request import urlopen

import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import Implementation
from playwright.async_api import Page, async_playwright

HERE = Path(__file__).resolve().parent
PICTURES = HERE / "page"
SERVERS = HERE.parent / "examples" / "servers"
PORT = 8931
ORIGIN = f"http://127.0.0.1:{PORT}"
TOKENS = {"ann": "token-of-ann-0123456789", "ben": "token-of-ben-0123456789"}
STARTS_WITHIN_S = 30.0
SIZE = {"width": 1200, "height": 780}


def config_for(folder: Path) -> dict[str, object]:
    python = sys.executable
    tokens = [
        {"token": TOKENS["ann"], "subject": "ann", "roles": ["developer"]},
        {"token": TOKENS["ben"], "subject": "ben", "roles": ["reader"]},
    ]
    return {
        "settings": {
            "audit": True,
            "http": {"listen": f"127.0.0.1:{PORT}", "auth": [{"kind": "bearer", "tokens": tokens}]},
            "access": {"roles": {"developer": [{}], "reader": [{"only": "read"}]}},
        },
        "mcpServers": {
            "notes": {
                "command": python,
                "args": [str(folder / "notes.py")],
                "description": "Notes of the team",
                "approve": ["remove_*", "delete_*"],
                "definitions": "hold",
            },
            "dates": {"command": python, "args": [str(folder / "dates.py")], "description": "Dates and working days"},
            "tickets": {"command": python, "args": [str(folder / "no-such.py")], "description": "Tickets", "connect": "eager"},
        },
    }


@contextlib.contextmanager
def serving(config: Path, home: Path) -> Iterator[None]:
    """Serve the config until the end of the context."""
    command = [sys.executable, "-m", "dynamic_mcp", "serve", str(config), "--http", f"127.0.0.1:{PORT}"]
    process = subprocess.Popen(command, env=environment(home), stderr=subprocess.DEVNULL)
    try:
        ends_at = time.monotonic() + STARTS_WITHIN_S
        while time.monotonic() < ends_at:
            with contextlib.suppress(OSError), urlopen(f"{ORIGIN}/health", timeout=1):
                break
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(STARTS_WITHIN_S)


def environment(home: Path) -> dict[str, str]:
    names = {"HOME": "", "XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state", "XDG_CACHE_HOME": "cache"}
    return {**os.environ, **{name: str(home / folder) for name, folder in names.items()}}


def make_link(config: Path, home: Path) -> str:
    command = [sys.executable, "-m", "dynamic_mcp", "ui", "--no-browser", "--config", str(config)]
    return subprocess.run(command, env=environment(home), check=True, capture_output=True, text=True).stdout.strip()


@contextlib.asynccontextmanager
async def person(name: str, tool: str) -> AsyncIterator[ClientSession]:
    """Connect as a person with an AI tool."""
    headers = {"Authorization": f"Bearer {TOKENS[name]}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120) as http,
        streamable_http_client(f"{ORIGIN}/mcp", http_client=http) as streams,
        ClientSession(streams[0], streams[1], client_info=Implementation(name=tool, version="2.1")) as session,
    ):
        await session.initialize()
        yield session


async def call(session: ClientSession, group: str, name: str, **args: object) -> None:
    await session.call_tool("call_dynamic_tool", {"group": group, "name": name, "args": args})


async def work(ann: ClientSession, ben: ClientSession) -> None:
    """Do what a team does, so that there is something to see."""
    for number in range(6):
        await call(ann, "notes", "add_note", title=f"Plan {number}", text="Deliver by the end of the week.")
        await call(ann, "dates", "add_working_days", start="2026-12-23", days=number)
        await call(ben, "notes", "list_notes")
        await call(ben, "dates", "days_between", start="2026-11-27", end="2026-12-24")
    await call(ben, "notes", "add_note", title="May not", text="A reader only reads.")
    await call(ann, "dates", "add_working_days", start="no date", days=3)


async def take(page: Page, name: str, path: str, *, is_dark: bool = False) -> None:
    await page.emulate_media(color_scheme="dark" if is_dark else "light")
    await page.goto(f"{ORIGIN}/ui{path}", wait_until="domcontentloaded")
    await page.wait_for_selector("html[data-stream=open]")
    await page.screenshot(path=PICTURES / f"{name}.png")
    print(f"{name}.png  {(PICTURES / f'{name}.png').stat().st_size / 1000:.0f} kB")
