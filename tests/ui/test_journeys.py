"""What people do at each section of the page, in a real browser at a real program, while an AI tool calls."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Route, expect

from dynamic_mcp.system import paths
from tests.fakes import text_of
from tests.http_client import HttpClient
from tests.mcp_client import McpClient
from tests.program import Json
from tests.ui import desk
from tests.ui.chromium import NARROW, WIDE, Visitor, page_of, visiting

pytestmark = [pytest.mark.full, pytest.mark.alone_only("the page over HTTP is one and the same")]

TOKEN = "token-of-ann-0123456789abcdef"
SETTINGS: Json = {
    "audit": {"arguments": "full"},
    "http": {"auth": [{"kind": "bearer", "tokens": [{"token": TOKEN, "subject": "ann", "roles": ["dev"]}]}]},
    "access": {"roles": {"dev": [{}], "reader": [{"only": "read"}]}},
}


@dataclass
class Office:
    """A program with a desk, an AI tool that is connected to it, and the browser of the local user."""

    visitor: Visitor
    tool: McpClient
    desk: Path

    def write(self, path: str) -> asyncio.Task[dict[str, Json]]:
        """Begin a call that waits for a person."""
        return asyncio.create_task(self.tool.call("desk", "write_file", {"path": path, "text": "hello"}))


@contextlib.asynccontextmanager
async def office(folder: Path, *, has_script: bool = True, is_narrow: bool = False) -> AsyncIterator[Office]:
    server = folder / "desk.py"
    shutil.copy(desk.__file__, server)
    entry: Json = {
        "command": sys.executable,
        "args": [str(server)],
        "description": "Files on a desk",
        "approve": ["write_file"],
        "definitions": "hold",
        "idle_timeout": "1s",
    }
    async with (
        page_of(folder, {"desk": entry}, settings=SETTINGS) as (program, config),
        HttpClient(program.url) as http,
    ):
        tool = McpClient(http, headers={"Authorization": f"Bearer {TOKEN}"})
        await tool.initialize(name="claude-code")
        await tool.call("desk", "find_file", {"name": "plan"})
        size = NARROW if is_narrow else WIDE
        async with visiting(program, config, has_script=has_script, size=size) as visitor:
            yield Office(visitor, tool, server)


# --- tools ------------------------------------------------------------------------------------------------


async def test_a_tool_is_found_as_the_model_finds_it_and_called_by_a_form(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        page = at.visitor.page
        await at.visitor.open("/tools?q=look+for+a+file")
        await page.get_by_role("link", name="find_file").first.click()
        await page.get_by_label("name").first.fill("letter")
        await page.get_by_role("button", name="Call it").click()

        await at.visitor.says("letter-0", "#result")
        await at.visitor.says("dynamic-mcp call desk find_file", "#result")
        assert await page.locator("#result details").count() > 0


async def test_a_picture_is_shown_and_an_error_is_one(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        page = at.visitor.page
        await at.visitor.open("/tools/desk/picture")
        await page.get_by_role("button", name="Call it").click()
        await page.locator("#result img").wait_for()
        assert await page.locator("#result img").evaluate("each => each.naturalWidth") == 2

        await at.visitor.open("/tools/desk/fail")
        await page.get_by_role("button", name="Call it").click()
        await at.visitor.says("the drawer is locked", "#result")


async def test_what_was_typed_is_not_lost_on_an_error(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        page = at.visitor.page
        at.visitor.may_fail = "422"
        await at.visitor.open("/tools/desk/find_file")
        await page.get_by_label("name").first.fill("letter")
        await page.get_by_label("most").first.fill("many")
        await page.get_by_role("button", name="Call it").click()

        await at.visitor.says("whole number")
        assert await page.get_by_label("name").first.input_value() == "letter"


# --- approvals --------------------------------------------------------------------------------------------


async def test_a_call_appears_on_the_first_page_and_is_allowed_there(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        page = at.visitor.page
        await at.visitor.open()
        call = at.write("/a")
        await at.visitor.says("1 call waits for you", "#needs")
        await expect(page).to_have_title(re.compile(r"^\(1\) "))

        await page.get_by_role("button", name="Allow once").click()

        assert text_of((await call)["result"]) == "wrote /a"
        await expect(page).to_have_title(re.compile("^Now"))


async def test_a_call_is_denied_with_a_reason_that_the_model_reads(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        page = at.visitor.page
        call = at.write("/a")
        await at.visitor.open("/approvals")
        await page.get_by_placeholder("Why, for the model to read").wait_for()
        await page.get_by_placeholder("Why, for the model to read").fill("not on a Friday")
        await page.get_by_role("button", name="Deny").click()

        assert "not on a Friday" in str(await call)


async def test_arguments_are_changed_before_a_call_is_allowed(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        page = at.visitor.page
        at.visitor.may_fail = "400"
        call = at.write("/a")
        await at.visitor.open("/approvals")
        await page.get_by_role("link", name="Change the arguments").first.click()
        field = page.locator("textarea").first
        await field.fill('{"path": "/b", "text": "hello"')
        await page.locator("main form:has(textarea) button").first.click()
        await page.locator("[role=alert]").first.wait_for()
        assert '"/b"' in await field.input_value()
        await field.fill('{"path": "/b", "text": "hello"}')
        await page.locator("main form:has(textarea) button").first.click()
        await page.locator(".diff").first.wait_for()
        await page.get_by_role("button", name="Allow").first.click()

        assert "wrote /b" in str(await call)


async def test_a_call_is_allowed_by_the_keyboard_alone(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        call = at.write("/a")
        await at.visitor.open("/approvals")
        page = at.visitor.page
        await page.get_by_role("button", name="Allow once").wait_for()
        for _ in range(40):
            await page.keyboard.press("Tab")
            if (await page.evaluate("document.activeElement.textContent")).strip() == "Allow once":
                break
        await expect(page.locator(".swapped")).to_have_count(0)  # what has just come cannot be sent yet
        await page.keyboard.press("Enter")

        assert text_of((await call)["result"]) == "wrote /a"


async def test_a_key_that_comes_too_early_is_answered_by_a_sentence(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        page = at.visitor.page
        await at.visitor.open("/approvals")
        await page.evaluate(
            "const seen = new MutationObserver(() => {"
            " const form = document.querySelector('.swapped form[method=post]');"
            " if (form) { seen.disconnect(); form.requestSubmit(); } });"
            " seen.observe(document.body, { childList: true, subtree: true });"
        )
        call = at.write("/a")
        await at.visitor.says("nothing was sent")
        await page.evaluate("location.reload()")
        await page.get_by_role("button", name="Allow once").click()

        assert text_of((await call)["result"]) == "wrote /a"


async def test_a_part_into_which_somebody_goes_while_it_is_fetched_is_not_exchanged(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        page = at.visitor.page
        call = at.write("/a")
        await at.visitor.open()
        button = page.get_by_role("button", name="Allow once")
        await button.wait_for()
        await expect(page.locator(".swapped")).to_have_count(0)
        was_fetched, may_answer = asyncio.Event(), asyncio.Event()

        async def answer_later(route: Route) -> None:
            was_fetched.set()
            await may_answer.wait()
            await route.continue_()

        await page.route(re.compile(r"/ui/?$"), answer_later)
        other = at.write("/b")
        await was_fetched.wait()
        await button.focus()
        may_answer.set()
        await page.locator("#news:not([hidden])").wait_for()
        assert await button.evaluate("(each) => document.activeElement === each")
        await page.keyboard.press("Enter")

        assert text_of((await call)["result"]) == "wrote /a"
        other.cancel()


async def test_a_call_is_allowed_and_a_tool_called_without_javascript(tmp_path: Path) -> None:
    async with office(tmp_path, has_script=False) as at:
        page = at.visitor.page
        call = at.write("/a")
        await asyncio.to_thread(wait_for_waiting)
        await at.visitor.open("/approvals", waits=False)
        await page.get_by_role("button", name="Allow once").click()
        assert text_of((await call)["result"]) == "wrote /a"

        await at.visitor.open("/tools/desk/find_file", waits=False)
        await page.get_by_label("name").first.fill("letter")
        await page.get_by_role("button", name="Call it").click()
        await page.wait_for_url("**result=*")
        await page.reload()
        await at.visitor.says("letter-0")


async def test_a_list_does_not_move_by_itself_but_says_that_there_is_something_new(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        page = at.visitor.page
        await at.visitor.open("/calls")
        before = await page.locator("#rows tr[data-row]").count()
        await at.tool.call("desk", "find_file", {"name": "another"})
        await page.locator("#news").wait_for(state="visible")
        assert await page.locator("#rows tr[data-row]").count() == before

        await page.keyboard.press("r")

        await expect(page.locator("#rows tr[data-row]")).to_have_count(before + 1)


# --- what there was and is --------------------------------------------------------------------------------


async def test_a_call_has_its_whole_story(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        await at.tool.call("desk", "fail")
        await at.visitor.open("/calls?outcome=errors&span=hour")
        await at.visitor.page.locator("#rows a").first.click()

        await at.visitor.says("claude-code")
        text = await at.visitor.text()
        assert "ann" in text
        assert "roles.dev[0]" in text


async def test_clients_have_readable_names_and_servers_their_memory(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        await at.visitor.open("/clients")
        await at.visitor.says("Claude Code")

        await at.visitor.page.get_by_role("link", name="Running servers").click()

        await at.visitor.says("desk")
        assert "MB" in await at.visitor.text()


async def test_a_cell_of_the_matrix_says_why(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        await at.visitor.open("/access")
        await at.visitor.page.get_by_role("link", name="deny").first.click()

        await at.visitor.page.wait_for_url("**/access/**")
        assert "reader" in await at.visitor.text()


# --- connect, pins, config --------------------------------------------------------------------------------


async def test_an_ai_tool_has_a_link_for_this_address(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        await at.visitor.open("/connect")
        await at.visitor.page.get_by_role("link", name="Cursor").first.click()

        await at.visitor.says("mcpServers")
        link = await at.visitor.page.get_by_role("link", name="Add to Cursor").get_attribute("href")
        assert link is not None
        assert link.startswith("cursor://")


async def test_a_token_is_made_shown_once_used_and_revoked(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        page = at.visitor.page
        page.on("dialog", lambda dialog: dialog.accept())
        await at.visitor.open("/connect/tokens")
        await page.get_by_label("For whom").fill("ben")
        await page.get_by_label("dev").check()
        await page.get_by_role("button", name="Make a token").click()
        token = (await page.locator("#made code").first.inner_text()).strip()
        async with HttpClient(at.visitor.program.url) as http:
            ben = McpClient(http, headers={"Authorization": f"Bearer {token}"})
            await ben.initialize()
            await at.visitor.open("/connect/tokens")
            assert token not in await page.content()
            await page.get_by_role("button", name="Revoke").click()
            await at.visitor.says("revoked")
            again = McpClient(http, headers={"Authorization": f"Bearer {token}"})
            response = await again.post(again.message("ping"))
            assert response.status == 401
            await response.read()


async def test_a_changed_definition_is_shown_and_approved(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        await asyncio.to_thread(change, at.desk)
        async with asyncio.timeout(60):
            while "held" not in str(await at.tool.call("desk", "picture")):  # noqa: ASYNC110 - it starts anew unseen
                await asyncio.sleep(1.2)
        await at.visitor.open()
        await at.visitor.says("held back", "#needs")
        await at.visitor.open("/pins/desk")
        await at.visitor.says("A picture that was sent away.", ".diff")

        await at.visitor.page.get_by_role("button", name="Approve").first.click()

        await at.visitor.says("approved", ".notice")
        assert "held" not in str(await at.tool.call("desk", "picture"))


async def test_a_change_of_the_config_is_shown_before_it_is_made_and_never_made(tmp_path: Path) -> None:
    async with office(tmp_path, is_narrow=True) as at:
        page = at.visitor.page
        file = tmp_path / "dynamic-mcp.json"
        before = file.read_bytes()
        await at.visitor.open("/config")
        text = await page.locator("textarea").first.input_value()
        assert TOKEN not in text
        await page.locator("textarea").first.fill(text.replace('"desk"', '"bureau"', 1))
        await page.get_by_role("button", name="Show what it would do").click()

        await at.visitor.says("bureau", "main")
        await page.locator(".diff, .notice, #preview").first.wait_for()
        assert file.read_bytes() == before


def change(server: Path) -> None:
    """Have the server describe a tool in another way when it starts again."""
    server.write_text(server.read_text().replace("A picture of the desk.", "A picture that was sent away."))


def wait_for_waiting() -> None:
    """Wait until a call waits, as its file shows."""
    ends_at = time.monotonic() + 30
    while not list((paths.state_dir() / "approvals").glob("*.json")):
        assert time.monotonic() < ends_at
        time.sleep(0.05)
