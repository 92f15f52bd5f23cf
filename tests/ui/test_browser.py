"""The page in a real browser, of a real program: what people do there, by mouse, by keys, and without JavaScript."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http_client import HttpClient
from tests.http_program import HttpProgram
from tests.mcp_client import McpClient
from tests.program import Json
from tests.ui import desk
from tests.ui.chromium import NARROW, WIDE, Visitor, page_of, visiting

pytestmark = [pytest.mark.full, pytest.mark.alone_only("the page over HTTP is one and the same")]

DESK: Json = {"command": sys.executable, "args": [desk.__file__], "description": "Files and a picture."}
HOSTILE: Json = {"command": sys.executable, "args": [desk.__file__, "hostile"], "description": desk.HARM}
SERVERS: Json = {"desk": DESK, "down": {"command": "no-such-program-at-all", "connect": "eager"}}
SIZES = {"wide": WIDE, "narrow": NARROW}


Program = tuple[HttpProgram, Path]


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[Program]:
    async with page_of(tmp_path, SERVERS) as program, HttpClient(program[0].url) as http:
        await McpClient(http).initialize()  # starts what is to be started with the first client
        yield program


# --- the first page ---------------------------------------------------------------------------------------


async def test_the_first_page_shows_what_is_down_and_changes_without_a_reload(program: Program) -> None:
    async with visiting(*program) as visitor:
        await visitor.open()
        await visitor.says("1 server is down", "#needs")

        await visitor.page.get_by_role("button", name="Connect again").click()

        await visitor.says("no-such-program-at-all", ".notice")
        assert await visitor.page.locator("#rows tr[data-row]").count() == 2


async def test_without_a_login_there_is_only_how_to_log_in(program: Program) -> None:
    async with visiting(*program, is_logged_in=False) as visitor:
        visitor.may_fail = "401"
        await visitor.open(waits=False)

        assert "dynamic-mcp ui" in await visitor.text()
        assert "desk" not in await visitor.page.content()


async def test_logging_out_is_a_button(program: Program) -> None:
    async with visiting(*program) as visitor:
        await visitor.page.get_by_role("button", name="Log out").click()

        await visitor.says("You are logged out")


async def test_it_works_without_javascript(program: Program) -> None:
    async with visiting(*program, has_script=False) as visitor:
        await visitor.open("?q=des", waits=False)
        assert await visitor.page.locator("#rows tr[data-row]").count() == 1

        await visitor.open(waits=False)
        await visitor.page.get_by_role("button", name="Connect again").click()

        await visitor.says("no-such-program-at-all", ".notice")


async def test_the_keyboard_alone_does(program: Program) -> None:
    async with visiting(*program) as visitor:
        await visitor.open()
        keyboard = visitor.page.keyboard

        await keyboard.press("?")
        await visitor.says("next and previous row", "dialog")
        await keyboard.press("Escape")
        await keyboard.press("/")
        await keyboard.type("desk")
        await keyboard.press("Enter")
        await visitor.page.wait_for_url("**/ui?q=desk")
        await visitor.page.wait_for_selector("html[data-stream=open]")
        await keyboard.press("j")

        assert await visitor.page.evaluate("document.activeElement.textContent") == "desk"
        assert await visitor.page.evaluate("document.activeElement.matches(':focus-visible')")


async def test_the_first_tab_skips_the_navigation(program: Program) -> None:
    async with visiting(*program) as visitor:
        await visitor.open()

        await visitor.page.keyboard.press("Tab")
        await visitor.page.keyboard.press("Enter")

        assert await visitor.page.evaluate("document.activeElement.id") == "main"


# Clicks on what has come in the place of a list of calls, as the second click of two would.
CLICK_AGAIN = """() => {
    const before = document.getElementById("waiting");
    new MutationObserver((_, observer) => {
        const now = document.getElementById("waiting");
        if (now === before) return;
        observer.disconnect();
        document.documentElement.dataset.clicked = "again";
        [...now.querySelectorAll("button")].find((each) => each.textContent === "Allow once").click();
    }).observe(document.querySelector("main"), {childList: true});
}"""


async def test_a_second_click_does_not_decide_about_the_call_that_has_moved_up(tmp_path: Path) -> None:
    servers = {"desk": {**DESK, "approve": ["*"]}}
    async with (
        page_of(tmp_path, servers) as program,
        HttpClient(program[0].url) as http,
        visiting(*program) as visitor,
    ):
        client = McpClient(http)
        await client.initialize()
        async with asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(client.call("desk", "find_file", {"name": f"{name}-letter"})) for name in "ab"]
            await visitor.open("/approvals")
            await visitor.says("2 waiting", ".side nav")
            await visitor.open("/approvals")
            await visitor.page.evaluate(CLICK_AGAIN)

            await visitor.page.get_by_role("button", name="Allow once").first.click()
            await visitor.page.wait_for_selector("html[data-clicked=again]")
            await visitor.says("1 waiting", ".side nav")
            await visitor.open("/approvals")
            await visitor.page.get_by_role("button", name="Deny").click()

            await visitor.says("is denied", ".notice")
        assert sorted("letter" in str(each.result()) for each in calls) == [False, True]


# --- every page -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
async def test_every_page_fits_and_keeps_nobody_out(program: Program, size: str, *, is_dark: bool) -> None:
    async with visiting(*program, size=SIZES[size], is_dark=is_dark) as visitor:
        for path in await pages_of(visitor):
            await visitor.open(path)

            assert await visitor.excess_width() <= 0, path
            assert await visitor.find_violations() == [], path


async def test_nothing_that_servers_say_does_anything(tmp_path: Path) -> None:
    servers = {f"bad{desk.HARM}"[:60]: HOSTILE, "bad": HOSTILE}
    async with page_of(tmp_path, servers) as program, visiting(*program) as on:
        for path in await pages_of(on):
            await on.open(path)

            assert await on.find_harm() == [0, True], path


async def pages_of(visitor: Visitor) -> list[str]:
    """Return the paths of all sections that the navigation names."""
    await visitor.open()
    names = "all => all.map(each => each.getAttribute('href'))"
    links = await visitor.page.locator(".side nav a").evaluate_all(names)
    return [link.removeprefix("/ui") for link in links]
