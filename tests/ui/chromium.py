"""A real browser at the page of a real program. What breaks the page's policy, or is an error, fails the test.

It needs Chromium on the PATH or in $DYNAMIC_MCP_TEST_CHROMIUM; axe-core, which looks for what keeps people out, is in
the node_modules that $DYNAMIC_MCP_TEST_AXE names.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, ViewportSize, async_playwright

from dynamic_mcp.config.location import identify
from dynamic_mcp.system import paths
from dynamic_mcp.ui.links import PageLinks
from tests.http_program import HttpProgram, serving_http
from tests.program import Json

NARROW, WIDE = ViewportSize(width=360, height=800), ViewportSize(width=1280, height=900)
BOUND_MS = 30_000
# How many parsed elements, scripts of others, and changed globals a hostile text would leave.
_TRACES = "[document.querySelectorAll('main script, main iframe, main object').length, window.harmed === undefined]"


def find_chromium() -> str:
    """Return the path of a Chromium; skip the test if there is none."""
    found = os.environ.get("DYNAMIC_MCP_TEST_CHROMIUM") or shutil.which("chromium")
    if found is None:
        pytest.skip("Chromium is not installed, and $DYNAMIC_MCP_TEST_CHROMIUM names none")
    return found


class Visitor:
    """A person with a browser who is logged in at the page of a program. `faults` are what must not happen."""

    def __init__(self, context: BrowserContext, page: Page, program: HttpProgram) -> None:
        self.context = context
        self.page = page
        self.program = program
        self.faults: list[str] = []
        self.may_fail = ""  # a part of messages that a test expects
        page.on("console", lambda each: self._note(each.text) if each.type in ("error", "warning") else None)
        page.on("pageerror", lambda each: self._note(str(each)))
        page.on("request", lambda each: self._check_origin(each.url))

    def _note(self, text: str) -> None:
        if not self.may_fail or self.may_fail not in text:
            self.faults.append(text)

    def _check_origin(self, url: str) -> None:
        if not url.startswith((self.program.origin, "data:", "blob:")):
            self.faults.append(f"a request to another host: {url}")

    async def open(self, path: str = "", *, waits: bool = True) -> None:
        """Open a page below `/ui`, and wait until it hears of changes."""
        await self.page.goto(f"{self.program.origin}/ui{path}", wait_until="domcontentloaded", timeout=BOUND_MS)
        if waits:
            await self.page.wait_for_selector("html[data-stream=open]", timeout=BOUND_MS)

    async def text(self, selector: str = "main") -> str:
        return " ".join((await self.page.inner_text(selector)).split())

    async def says(self, words: str, selector: str = "main") -> None:
        """Wait until a part of the page has these words."""
        await self.page.locator(selector).filter(has_text=words).first.wait_for(timeout=BOUND_MS)

    async def excess_width(self) -> int:
        """Return by how much the page is wider than its window."""
        found: int = await self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return found

    async def find_harm(self) -> list[Any]:
        """Return the traces of scripts of others: `[0, True]` is none."""
        found: list[Any] = await self.page.evaluate(_TRACES)
        return found

    async def find_violations(self) -> list[str]:
        """Return what axe-core finds; skip the test if it is not there."""
        source = _read_axe()
        if source is None:
            pytest.skip("DYNAMIC_MCP_TEST_AXE does not name a folder with `axe-core`")
        run = "async (source) => { new Function(source)(); return (await axe.run()).violations; }"
        found = await self.page.evaluate(run, source)
        return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


def _read_axe() -> str | None:
    file = Path(os.environ.get("DYNAMIC_MCP_TEST_AXE", "nowhere"), "axe-core", "axe.min.js")
    return file.read_text(encoding="utf-8") if file.is_file() else None


@contextlib.asynccontextmanager
async def visiting(
    program: HttpProgram,
    config: Path,
    *,
    size: ViewportSize = WIDE,
    is_dark: bool = False,
    has_script: bool = True,
    is_logged_in: bool = True,
) -> AsyncIterator[Visitor]:
    """Log the local user in with a link, in a new browser."""
    async with async_playwright() as playwright:
        # tests may run as root, which Chromium's own sandbox refuses
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"] if sys.platform == "linux" else []
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=arguments)
        try:
            context = await browser.new_context(
                viewport=size, color_scheme="dark" if is_dark else "light", java_script_enabled=has_script
            )
            visitor = Visitor(context, await context.new_page(), program)
            if is_logged_in:
                link = PageLinks(paths.state_dir()).create(identify(config))
                await visitor.open(f"/login?link={link}", waits=has_script)
            yield visitor
            assert not visitor.faults
        finally:
            await browser.close()


@contextlib.asynccontextmanager
async def page_of(folder: Path, servers: Json, **root: Json) -> AsyncIterator[tuple[HttpProgram, Path]]:
    """Run the program over HTTP with these servers; return it and its config."""
    find_chromium()
    async with serving_http(folder, servers, **root) as program:
        yield program, folder / "dynamic-mcp.json"
