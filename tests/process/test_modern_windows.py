"""Modern clients as windows of a daemon: at once, beside a legacy one, and when the daemon dies under them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.modern_client import CAN_ALL, PREFIX, call_of, retry_of
from tests.process.windows import save, windows_of
from tests.program import BOUND_S, Json, Program, full, running, text_of

pytestmark = pytest.mark.daemon_only

LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"


class ModernWindow:
    """A window whose client says with each request who it is."""

    def __init__(self, program: Program, name: str) -> None:
        self.program = program
        self.name = name
        self._ids = 0

    async def request(self, method: str, params: Json = None) -> dict[str, Json]:
        """Send a request and return its answer."""
        return await self.program.request(method, self._with_meta(params or {}))

    async def call(self, tool: str, args: Json = None, **params: Json) -> dict[str, Json]:
        """Call a tool of the group `a`, and return the answer."""
        return await self.request("tools/call", call_of("a", tool, args, **params))

    async def asked(self) -> str:
        """Be asked by a server in the middle of a call, answer with the name, and return what the server got."""
        asked = await self.call("elicit")
        form = {"action": "accept", "content": {"answer": self.name}}
        answered = await self.call("elicit", **retry_of(asked, form))
        answer: str = json.loads(text_of(answered["result"]))["result"]["content"]["answer"]
        return answer

    def listen(self, *uris: str) -> str:
        """Listen for these resources; returns the id of the request."""
        self._ids += 1
        params = self._with_meta({"notifications": {"resourceSubscriptions": uris}})
        self.program.send({"jsonrpc": "2.0", "id": f"listen {self._ids}", "method": LISTEN, "params": params})
        return f"listen {self._ids}"

    def _with_meta(self, params: Json) -> Json:
        meta = {
            f"{PREFIX}protocolVersion": "2026-07-28",
            f"{PREFIX}clientInfo": {"name": self.name, "version": "1"},
            f"{PREFIX}clientCapabilities": CAN_ALL,
        }
        return {**params, "_meta": {**meta, **params.get("_meta", {})}}


@contextlib.asynccontextmanager
async def modern_windows(file: Path, *names: str) -> AsyncIterator[list[ModernWindow]]:
    """Open a window for each of these clients at once."""
    async with contextlib.AsyncExitStack() as stack:
        windows = [ModernWindow(await stack.enter_async_context(running(str(file))), name) for name in names]
        await asyncio.gather(*(each.request("server/discover") for each in windows))
        yield windows
        for each in windows:
            each.program.assert_answered_once()


def kill_daemon(window: ModernWindow) -> None:
    os.kill(window.program.host, signal.SIGKILL)


async def test_two_windows_at_once_are_each_asked_in_the_middle_of_their_own_calls(tmp_path: Path) -> None:
    file = save(tmp_path, {"a": full()})
    async with modern_windows(file, "one", "two") as windows, windows_of(file, 1, capabilities=CAN_ALL) as (legacy,):
        await windows[0].asked()  # from here on it is known that this server asks
        legacy.answers["elicitation/create"] = b'{"action":"accept","content":{"answer":"three"}}'
        answers = await asyncio.gather(*(each.asked() for _ in range(5) for each in windows))
        asked = json.loads(text_of(await legacy.call("a", "elicit")))
    assert answers == ["one", "two"] * 5
    assert asked["result"]["content"]["answer"] == "three"


async def test_a_call_that_a_dead_daemon_had_gets_an_error_that_it_may_have_run_and_the_next_one_works(
    tmp_path: Path,
) -> None:
    async with modern_windows(save(tmp_path, {"a": full()}), "one", "two") as windows:
        held = [asyncio.create_task(each.call("wait", {"key": each.name})) for each in windows]
        await asyncio.gather(*(each.program.hears("notifications/vendor.example/waiting") for each in windows))
        kill_daemon(windows[0])
        for answer in await asyncio.gather(*held):
            assert answer["result"]["isError"] is True
            assert answer["result"]["resultType"] == "complete"
            assert "may have run" in text_of(answer["result"])
        # one after the other: until a server has asked, windows share it, and it cannot say whose call it asks about
        assert [await each.asked() for each in windows] == ["one", "two"]


async def test_a_parked_call_of_a_dead_daemon_is_refused_and_not_made_again(tmp_path: Path) -> None:
    async with modern_windows(save(tmp_path, {"a": full()}), "one") as (window,):
        asked = await window.call("elicit")
        kill_daemon(window)
        await window.request("server/discover")
        refused = await window.call("elicit", **retry_of(asked))
        assert refused["error"]["code"] == -32602
        assert refused["error"]["data"] == {"reason": "restarted"}
        record = text_of((await window.call("record"))["result"])
        assert '\\"elicit\\"' not in record
        assert await window.asked() == "one"


async def test_who_listened_to_a_dead_daemon_goes_on_to_hear(tmp_path: Path) -> None:
    async with modern_windows(save(tmp_path, {"a": full()}), "one") as (window,):
        await window.call("plain")
        id = window.listen("full://text")
        first = await window.program.hears(ACKNOWLEDGED)
        kill_daemon(window)
        await window.request("server/discover")
        async with asyncio.timeout(BOUND_S):
            while not window.program.heard(UPDATED):
                await window.call("update", {"uri": "full://text"})
        updated = await window.program.hears(UPDATED)
    assert first["params"]["notifications"] == {"resourceSubscriptions": ["full://text"]}
    assert updated["params"]["uri"] == "full://text"
    assert updated["params"]["_meta"][f"{PREFIX}subscriptionId"] == id
    assert not [line for line in window.program.lines if json.loads(line).get("id") == id and b'"error"' in line]
