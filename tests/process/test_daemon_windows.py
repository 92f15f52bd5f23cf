"""What one window does to its daemon, and to the other windows: nothing, however it ends or behaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.hosting import daemons
from tests.process.neighbours import assert_alive
from tests.process.test_end import is_running
from tests.process.windows import has_received, pid_of, save, windows_of
from tests.program import BOUND_S, UPSTREAMS, Json, Program, odd, running, text_of

pytestmark = pytest.mark.daemon_only

ENDS = ["eof", *(pytest.param(name, marks=pytest.mark.full) for name in ("SIGTERM", "SIGINT")), "SIGKILL"]
MANY = 5000  # more than a session may have in flight


def end_window(program: Program, end: str) -> None:
    if end == "eof":
        program.end_input()
    else:
        program.process.send_signal(signal.Signals[end])


def send_call(program: Program, id: str, name: str, args: Json) -> None:
    """Send a call whose answer nobody waits for."""
    params = {"name": "call_dynamic_tool", "arguments": {"group": "odd", "name": name, "args": args}}
    program.send({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})


@pytest.mark.parametrize("end", ENDS)
async def test_the_calls_of_a_window_that_ends_are_cancelled_and_those_of_others_are_not(
    tmp_path: Path, end: str
) -> None:
    async with windows_of(save(tmp_path, {"odd": odd()}), 2) as (goes, stays):
        send_call(goes, "lost", "hold", {"key": "goes"})
        held = asyncio.create_task(stays.call("odd", "hold", {"key": "stays"}))
        calls = await has_received(stays, "odd", '"hold"', 2)
        end_window(goes, end)
        assert await goes.ends() == (-signal.SIGKILL if end == "SIGKILL" else 0)

        (cancelled,) = await has_received(stays, "odd", "notifications/cancelled")
        (lost,) = [call["id"] for call in calls if call["params"]["arguments"]["key"] == "goes"]
        assert cancelled["params"]["requestId"] == lost
        assert text_of(await stays.call("odd", "release", {"key": "stays"})) == "1"
        assert text_of(await held) == "released"


@pytest.mark.parametrize("end", ENDS)
async def test_a_window_takes_its_own_servers_with_it_and_leaves_the_shared_ones(tmp_path: Path, end: str) -> None:
    servers = {"own": odd(share="session"), "shared": odd()}
    async with windows_of(save(tmp_path, servers), 2) as (goes, stays):
        own, other = await pid_of(goes, "own"), await pid_of(stays, "own")
        shared = await pid_of(goes, "shared")
        assert own != other
        assert await pid_of(stays, "shared") == shared
        end_window(goes, end)
        async with asyncio.timeout(BOUND_S):
            while is_running(own):  # noqa: ASYNC110 - it is nobody's child
                await asyncio.sleep(0.01)
        assert await pid_of(stays, "own") == other
        assert await pid_of(stays, "shared") == shared


@contextlib.asynccontextmanager
async def ai_tools(file: Path) -> AsyncIterator[list[Program]]:
    """Open a window of each of two AI tools, which differ in all that they say of themselves."""
    async with running(str(file)) as ide, running(str(file)) as cli:
        await ide.initialize("2025-11-25", {"roots": {"listChanged": True}, "elicitation": {}}, name="ide")
        await cli.initialize("2025-06-18", {"sampling": {}}, name="cli")
        yield [ide, cli]


async def test_different_ai_tools_share_a_server_that_is_known_to_make_no_difference(tmp_path: Path) -> None:
    server = tmp_path / "mcp-server-time"
    server.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{UPSTREAMS / 'odd.py'}'\n")
    server.chmod(0o755)
    async with ai_tools(save(tmp_path, {"time": {"command": str(server)}})) as windows:
        assert len({await pid_of(each, "time") for each in windows}) == 1


async def test_different_ai_tools_share_a_server_once_it_has_offered_them_the_same(tmp_path: Path) -> None:
    file = save(tmp_path, {"odd": odd(), "own": odd(share="session")})
    async with ai_tools(file) as windows:
        assert len({await pid_of(each, "odd") for each in windows}) == 2
        async with asyncio.timeout(BOUND_S):
            shared = False
            while not shared:  # comparing them takes a moment, of which nobody is told
                async with ai_tools(file) as others:
                    shared = len({await pid_of(each, "odd") for each in others}) == 1
                    assert len({await pid_of(each, "own") for each in others}) == 2


async def test_a_hangup_ends_no_window(tmp_path: Path) -> None:
    async with windows_of(save(tmp_path, {"odd": odd()}), 2) as windows:
        server = await pid_of(windows[0], "odd")
        for each in windows:
            os.kill(each.process.pid, signal.SIGHUP)
        assert [await pid_of(each, "odd") for each in windows] == [server] * 2


async def test_the_requests_before_the_end_of_input_are_answered(tmp_path: Path) -> None:
    async with windows_of(save(tmp_path, {"odd": odd()}), 2) as (goes, stays):
        for number in range(50):
            send_call(goes, f"n{number}", "sleep", {"seconds": 0.3})
        goes.end_input()
        assert await goes.ends() == 0
        answered = {json.loads(line).get("id") for line in goes.lines if b"slept" in line}
        assert answered == {f"n{number}" for number in range(50)}
        await assert_alive(stays, "odd")


async def test_a_window_that_floods_delays_no_other_server_and_each_of_its_requests_is_answered_once(
    tmp_path: Path,
) -> None:
    async with windows_of(save(tmp_path, {"odd": odd(), "good": odd()}), 2) as (floods, other):
        arguments = {"group": "odd", "name": "sleep", "args": {"seconds": 0.1}}
        params = {"name": "call_dynamic_tool", "arguments": arguments}
        requests = [asyncio.create_task(floods.request("tools/call", params)) for _ in range(MANY)]
        for _ in range(20):
            await assert_alive(other, "good")
        answers = await asyncio.gather(*requests)
        refusals = [each["error"]["message"] for each in answers if "error" in each]
        assert set(refusals) <= {"too many requests: 4096 are in flight"}
        assert len(refusals) <= MANY - 4096
        await assert_alive(floods, "odd", "good")


@pytest.mark.parametrize("size", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.full)])
async def test_a_window_whose_client_reads_nothing_costs_the_others_nothing(tmp_path: Path, size: int) -> None:
    async with windows_of(save(tmp_path, {"odd": odd(), "good": odd()}, result_limit="off"), 2) as (deaf, other):
        deaf.reads.clear()
        for number in range(40):
            send_call(deaf, f"n{number}", "big", {"bytes": size})
        for _ in range(20):
            await assert_alive(other, "good", "odd")
        deaf.process.kill()
        await deaf.ends()
        await assert_alive(other, "good", "odd")


async def test_a_window_that_hangs_costs_the_others_nothing_and_goes_on_when_it_can(tmp_path: Path) -> None:
    async with windows_of(save(tmp_path, {"odd": odd()}), 2) as (hangs, other):
        os.kill(hangs.process.pid, signal.SIGSTOP)
        call = asyncio.create_task(hangs.call("odd", "echo", {"text": "later"}))
        for _ in range(20):
            await assert_alive(other, "odd")
        assert not call.done()
        os.kill(hangs.process.pid, signal.SIGCONT)
        assert text_of(await call) == "later"


@pytest.mark.parametrize("end", ["eof", "SIGTERM", "SIGINT", "SIGKILL"])
@pytest.mark.parametrize("mode", ["ok", pytest.param("ignore_term", marks=pytest.mark.full)])
async def test_the_daemon_ends_with_its_last_window_however_that_ends(tmp_path: Path, mode: str, end: str) -> None:
    async with windows_of(save(tmp_path, {"odd": odd(mode)}), 1) as (program,):
        server = await pid_of(program, "odd")
        end_window(program, end)
        await program.ends()
        async with asyncio.timeout(BOUND_S):
            while daemons() or is_running(server):  # noqa: ASYNC110 - it is nobody's child
                await asyncio.sleep(0.01)
