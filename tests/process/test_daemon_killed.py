"""A daemon that dies: each request gets exactly one answer, and the session goes on as if nothing had been."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.process.neighbours import assert_alive
from tests.process.windows import has_received, pid_of, save, windows_of
from tests.program import BOUND_S, Program, full, odd, text_of

pytestmark = [
    pytest.mark.daemon_only,
    pytest.mark.posix_only(
        "they look for daemons in /proc and signal them; face/test_shared_daemon.py is for Windows too"
    ),
]

TEXT_OF_B = "dynamic-mcp://b/full%3A%2F%2Ftext"
LISTS = ("tools", "resources", "prompts")
MEGABYTE = 1_000_000


def kill_daemon(program: Program) -> None:
    os.kill(program.host, signal.SIGKILL)


async def go_on(*windows: Program) -> None:
    """Wait until another daemon serves these windows: it answers a ping that the one before has not answered."""
    await asyncio.gather(*(each.request("ping") for each in windows))


async def test_each_call_in_flight_gets_one_error_that_it_may_have_run_and_calls_work_again(tmp_path: Path) -> None:
    async with windows_of(save(tmp_path, {"odd": odd(), "good": odd()}), 3) as windows:
        held = [asyncio.create_task(each.call("odd", "hold", {"key": "k"})) for each in windows for _ in range(10)]
        await has_received(windows[0], "odd", '"hold"', 30)
        first = await pid_of(windows[0], "odd")
        kill_daemon(windows[0])
        for call in held:
            result = await call
            assert result["isError"] is True
            assert "may have run" in text_of(result)
        await asyncio.gather(*(assert_alive(each, "odd", "good") for each in windows))
        pids = set(await asyncio.gather(*(pid_of(each, "odd") for each in windows)))
        assert len(pids) == 1
        assert first not in pids


async def test_requests_that_change_nothing_are_answered_as_if_nothing_had_been(tmp_path: Path) -> None:
    async with windows_of(
        save(tmp_path, {"slow": full("--hang", "resources/list")}, timeout={"resources": "3s"}), 1
    ) as (program,):
        asked = [asyncio.create_task(program.request(f"{kind}/list")) for kind in LISTS]
        await program.request("ping")
        kill_daemon(program)
        assert [kind in answer["result"] for kind, answer in zip(LISTS, await asyncio.gather(*asked), strict=True)]


async def test_a_session_keeps_its_level_and_its_subscriptions_and_hears_that_lists_may_have_changed(
    tmp_path: Path,
) -> None:
    servers = {name: full("--name", name) for name in ("a", "b")}
    async with windows_of(save(tmp_path, servers), 1) as (program,):
        await program.request("resources/list")
        await program.request("logging/setLevel", {"level": "error"})
        await program.request("resources/subscribe", {"uri": TEXT_OF_B})
        program.lines.clear()

        kill_daemon(program)
        await go_on(program)
        for kind in LISTS:
            await program.hears(f"notifications/{kind}/list_changed")
        assert len([line for line in program.lines if b'"method"' not in line]) == 1  # the answer to the ping

        assert text_of(await program.call("b", "log", {"level": "debug"})) == "error"
        async with asyncio.timeout(BOUND_S):
            while text_of(await program.call("b", "update", {"uri": "full://text"})) != "full://text":
                pass  # the subscription is renewed beside what the client asks
        assert (await program.hears("notifications/resources/updated"))["params"]["uri"] == TEXT_OF_B


async def test_what_was_unsubscribed_stays_so(tmp_path: Path) -> None:
    async with windows_of(save(tmp_path, {"b": full("--name", "b")}), 1) as (program,):
        for act in ("subscribe", "unsubscribe"):
            assert "result" in await program.request(f"resources/{act}", {"uri": "full://text"})
        kill_daemon(program)
        await go_on(program)
        received = json.loads(text_of(await program.call("b", "record")))
        assert not [line for line in received if '"resources/subscribe"' in line]


async def test_a_question_is_withdrawn_and_a_late_answer_to_it_meets_no_new_one(tmp_path: Path) -> None:
    file = save(tmp_path, {"a": full("--name", "a")})
    async with windows_of(file, 1, capabilities={"elicitation": {}}) as (program,):
        call = asyncio.create_task(program.call("a", "elicit", {"key": "old"}))
        old = await program.hears("elicitation/create")
        kill_daemon(program)
        withdrawn = await program.hears("notifications/cancelled")
        assert withdrawn["params"]["requestId"] == old["id"]
        assert "may have run" in text_of(await call)

        call = asyncio.create_task(program.call("a", "elicit", {"key": "new"}))
        new = await program.hears("elicitation/create", times=2)
        assert new["id"] != old["id"]
        program.reply(old, {"action": "accept", "content": {"answer": "late"}})
        program.reply(new, {"action": "accept", "content": {"answer": "in time"}})
        assert json.loads(text_of(await call))["result"]["content"] == {"answer": "in time"}


@pytest.mark.parametrize("count", [2, pytest.param(5, marks=pytest.mark.full)])
async def test_a_session_survives_one_daemon_after_the_other(tmp_path: Path, count: int) -> None:
    async with windows_of(save(tmp_path, {"odd": odd()}), 2) as windows:
        for times in range(1, count + 1):
            await asyncio.gather(*(assert_alive(each, "odd") for each in windows))
            kill_daemon(windows[0])
            await asyncio.gather(*(each.hears("notifications/tools/list_changed", times) for each in windows))
            await go_on(*windows)
        await asyncio.gather(*(assert_alive(each, "odd") for each in windows))


# --- in mid-line -----------------------------------------------------------------------------------------------


async def test_an_argument_of_a_megabyte_that_is_half_sent_arrives_whole(tmp_path: Path) -> None:
    async with windows_of(save(tmp_path, {"odd": odd()}, result_limit="off"), 1) as (program,):
        await assert_alive(program, "odd")
        text = "".join(chr(97 + number % 26) for number in range(MEGABYTE))
        arguments = {"group": "odd", "name": "echo", "args": {"text": text}}
        params = {"name": "call_dynamic_tool", "arguments": arguments}
        line = json.dumps({"jsonrpc": "2.0", "id": "big", "method": "tools/call", "params": params}).encode() + b"\n"
        program.send(line[: MEGABYTE // 2])
        assert program.process.stdin is not None
        async with asyncio.timeout(BOUND_S):
            while program.process.stdin.transport.get_write_buffer_size():  # noqa: ASYNC110 - the window takes it
                await asyncio.sleep(0.01)
        kill_daemon(program)
        program.send(line[MEGABYTE // 2 :])
        answer = json.loads(await program.line(lambda line: b'"id":"big"' in line))
        assert text_of(answer["result"]) == text


async def test_a_result_of_a_megabyte_that_is_half_written_is_no_part_of_what_the_client_gets(tmp_path: Path) -> None:
    async with windows_of(save(tmp_path, {"odd": odd()}, result_limit="off"), 2) as (program, other):
        server = await pid_of(other, "odd")
        os.kill(server, signal.SIGSTOP)
        call = asyncio.create_task(program.call("odd", "big", {"bytes": MEGABYTE}))
        await asyncio.sleep(0)  # the call is written first
        await program.request("ping")  # so the daemon has the call
        os.kill(program.process.pid, signal.SIGSTOP)
        os.kill(server, signal.SIGCONT)
        await assert_alive(other, "odd")  # which the server answers after the call; no socket holds all of that
        kill_daemon(other)
        os.kill(program.process.pid, signal.SIGCONT)

        assert "may have run" in text_of(await call)
        assert [json.loads(line) for line in program.lines]
        assert not [line for line in program.lines if b"BBBB" in line]
        assert len(text_of(await program.call("odd", "big", {"bytes": MEGABYTE}))) == MEGABYTE
        await assert_alive(other, "odd")


# --- at any moment ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM"])
async def test_whenever_a_daemon_ends_each_call_is_answered_once_with_its_own_answer_or_an_error(
    tmp_path: Path, end: str
) -> None:
    async with windows_of(save(tmp_path, {"odd": odd(), "good": odd()}, result_limit="off"), 3) as windows:
        stopped = asyncio.Event()
        going_on = [
            asyncio.create_task(_call_on(window, group, size, stopped))
            for window in windows
            for group in ("odd", "good")
            for size in (1, 100_000)
        ]
        for times in range(1, 4):
            await asyncio.gather(*(assert_some_pass(each) for each in windows))
            os.kill(windows[0].host, signal.Signals[end])
            await asyncio.gather(*(each.hears("notifications/tools/list_changed", times) for each in windows))
            await go_on(*windows)
        stopped.set()
        counts = await asyncio.gather(*going_on)
        assert min(passed for passed, _ in counts) > 0
        await asyncio.gather(*(assert_alive(each, "odd", "good") for each in windows))


async def assert_some_pass(window: Program) -> None:
    """Wait for a few calls of a window, so that those of the others are at any point."""
    for number in range(5):
        result = await window.call("odd", "nonce", {"n": number})
        assert text_of(result) == str(number) or "may have run" in text_of(result)


async def _call_on(window: Program, group: str, size: int, stopped: asyncio.Event) -> tuple[int, int]:
    """Call until stopped; return how many calls passed, and how many may have run."""
    passed = failed = 0
    while not stopped.is_set():
        text = f"{id(window)} {group} {size} {passed} {failed} " + "x" * size
        result = await window.call(group, "echo", {"text": text})
        if result.get("isError"):
            assert "may have run" in text_of(result)
            failed += 1
        else:
            assert text_of(result) == text
            passed += 1
    return passed, failed
