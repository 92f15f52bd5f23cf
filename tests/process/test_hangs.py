"""A server that hangs, deafens or runs wild is given up and replaced; the others notice nothing of it."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

import pytest

from tests.process.neighbours import assert_alive, beside
from tests.program import BOUND_S, Json, Program, odd, running, serving, text_of

WHOLE: dict[str, Json] = {"defaults": {"result_limit": "off"}}
_ids = itertools.count()
# A server that is given up soon, beside one that has all the time that it needs.
IMPATIENT = {"odd": odd(timeout={"tools": "1s"}), "good": odd()}


async def pid_of(program: Program, group: str) -> str:
    """Return the process id of a group's server."""
    return text_of(await program.call(group, "pid"))


async def ask_tools(program: Program, group: str, **more: str) -> list[Json]:
    """Return a group's tools as a model sees them."""
    asked = {"name": "get_dynamic_tools", "arguments": {"group": group, **more}}
    tools: list[Json] = json.loads(text_of((await program.request("tools/call", asked))["result"]))["tools"]
    return tools


# Row 14 of the fault matrix.


@pytest.mark.full
@pytest.mark.parametrize("kind", ["sigstop", "spin"])
async def test_a_server_that_answers_nothing_any_more_is_replaced(tmp_path: Path, kind: str) -> None:
    async with serving(tmp_path, IMPATIENT) as program:
        first = await pid_of(program, "odd")
        results = await beside(program, {"odd": program.call("odd", "fault", {"kind": kind})}, "good")
        assert "was not answered within 1 s" in text_of(results["odd"])
        await beside(program, {"odd": program.call("odd", "echo", {"text": "and again"})}, "good")
        while (pid := await program.call("odd", "pid")).get("isError"):  # until the ping has failed too
            await assert_alive(program, "good")
        assert text_of(pid) != first


# Row 13.


async def test_a_server_that_stops_reading_costs_no_memory_and_is_replaced(tmp_path: Path) -> None:
    settings: Json = {
        "settings": {"defaults": {"timeout": {"tools": "4s"}, **WHOLE["defaults"]}, "max_message_bytes": 4_000_000}
    }
    async with serving(tmp_path, {"odd": odd(), "good": odd()}, **settings) as program:
        first = await pid_of(program, "odd")
        await program.call("odd", "fault", {"kind": "stop_reading"})
        big = [program.call("odd", "echo", {"text": "x" * 2_000_000}) for _ in range(12)]
        results = await asyncio.gather(*big)
        await assert_alive(program, "good")
        assert "may have run" in text_of(results[0])
        assert text_of(results[-1]) == "x" * 2_000_000  # which the old server was not sent, but a new one was
        assert await pid_of(program, "odd") != first


# Row 9.


@pytest.mark.not_in_wine("its conhost.exe keeps what a server inherits, so a pipe that the server closes stays open")
async def test_a_server_that_closes_its_input_is_replaced_without_a_failed_call(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd(), "good": odd()}) as program:
        first = await pid_of(program, "odd")
        await program.call("odd", "fault", {"kind": "close_stdin"})
        results = [await program.call("odd", "pid") for _ in range(3)]
        assert all("may have run" in text_of(result) for result in results if result.get("isError"))
        assert text_of(results[-1]) != first
        await assert_alive(program, "good", "odd")


# Rows 10 and 12.


async def test_a_slow_server_works_and_delays_neither_the_client_nor_the_others(tmp_path: Path) -> None:
    modes = ("slow_init", "slow_list")
    async with serving(tmp_path, {**{mode: odd(mode, "1") for mode in modes}, "good": odd()}) as program:
        calls = {mode: program.call(mode, "echo", {"text": f"{mode} at last"}) for mode in modes}
        results = await beside(program, calls, "good")
        assert {mode: text_of(result) for mode, result in results.items()} == {
            mode: f"{mode} at last" for mode in modes
        }


# Row 21.


@pytest.mark.full
async def test_an_answer_without_an_end_takes_no_memory_and_its_server_is_replaced(tmp_path: Path) -> None:
    settings: Json = {"settings": {"defaults": {"timeout": {"tools": "2s"}}, "max_message_bytes": 1_000_000}}
    async with serving(tmp_path, {"odd": odd(), "good": odd()}, **settings) as program:
        await assert_alive(program, "good", "odd")
        before = resident_mib(program)
        results = await beside(program, {"odd": program.call("odd", "fault", {"kind": "endless_line"})}, "good")
        assert results["odd"]["isError"]
        assert resident_mib(program) - before < 30
        while (await program.call("odd", "pid")).get("isError"):
            await assert_alive(program, "good")


def resident_mib(program: Program) -> float:
    """Return how much memory the program has touched at most."""
    status = Path(f"/proc/{program.host}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


# Row 29.


async def test_a_storm_of_changed_lists_is_a_few_readings(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd(), "good": odd()}) as program:
        await program.call("odd", "fault", {"kind": "storm"})
        await program.call("odd", "add_tool", {"name": "late"})
        while "late" not in [tool["name"] for tool in await ask_tools(program, "odd")]:
            await program.call("odd", "sleep", {"seconds": 0.1})
        received = json.loads(text_of(await program.call("odd", "record")))
        assert len([line for line in received if '"tools/list"' in line]) < 8
        assert len(program.heard("notifications/tools/list_changed")) < 8
        await assert_alive(program, "good", "odd")


# Row 61.


@pytest.mark.parametrize(
    ("count", "size"), [(3000, 2_000_000), pytest.param(10_000, 5_000_000, marks=pytest.mark.full)]
)
async def test_thousands_of_tools_and_a_description_of_megabytes_are_served(
    tmp_path: Path, count: int, size: int
) -> None:
    servers = {"many": odd("many", str(count)), "long": odd("long_description", str(size)), "good": odd()}
    last = f"tool_{count - 1}"
    async with serving(tmp_path, servers) as program:
        assert len(json.dumps(await ask_tools(program, "many"))) > 50_000
        assert (await ask_tools(program, "many", query=last))[0]["name"] == last
        assert text_of(await program.call("many", last)) == last
        assert "talkative" in [tool["name"] for tool in await ask_tools(program, "long")]
        (found, *_) = await ask_tools(program, "long", query="talkative", detail="full")
        assert len(found["description"]) == size
        await assert_alive(program, "good", "long")


# Rows 2 and 3.


async def test_a_server_whose_start_fails_once_comes_up_by_itself_and_the_client_hears_of_it(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"odd": odd("flaky", str(tmp_path / "second")), "good": odd()}}))
    async with running(str(file)) as program:
        await program.initialize()
        await program.line(lambda line: b"tools/list_changed" in line and is_down(tmp_path))
        await assert_alive(program, "good")
        while "Unavailable" in description(await program.request("tools/list")):
            await program.call("good", "sleep", {"seconds": 0.1})
        assert (tmp_path / "second").exists()
        assert program.heard("notifications/tools/list_changed")
        await assert_alive(program, "odd", "good")


def is_down(tmp_path: Path) -> bool:
    """Tell whether the first start of a flaky server is over."""
    return (tmp_path / "second").exists()


def description(answer: Json) -> str:
    """Return what a model reads about the groups."""
    text: str = answer["result"]["tools"][0]["description"]
    return text


async def test_a_server_that_ends_right_after_its_start_is_down_with_the_reason(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    modes = ("exit_after_init", "exit_after_list")
    async with serving(tmp_path, {**{mode: odd(mode) for mode in modes}, "good": odd()}) as program:
        await assert_alive(program, "good")
        for mode in modes:
            with subtests.test(mode=mode):
                result = await program.call(mode, "echo", {"text": "x"})
                assert result["isError"]
                assert "code 0" in text_of(result)
                for _ in range(20):  # a model that insists does not make it start twenty times
                    await program.call(mode, "echo", {"text": "x"})
                await assert_alive(program, "good")
        program.end_input()
        await program.ends()
        log = await program.stderr()
        assert [mode for mode in modes if log.count(f"group {mode}") >= 15] == []


# Row 28.


async def test_a_server_without_tools_is_a_group_without_tools(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd("no_tools"), "good": odd()}) as program:
        assert await ask_tools(program, "odd") == []
        await assert_alive(program, "good")


# Row 34.


async def test_a_call_that_the_client_cancels_is_cancelled_upstream_and_never_answered(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd(), "good": odd()}) as program:
        arguments = {"group": "odd", "name": "fault", "args": {"kind": "late"}}
        params = {"name": "call_dynamic_tool", "arguments": arguments}
        await assert_alive(program, "odd")
        program.send({"jsonrpc": "2.0", "id": "mine", "method": "tools/call", "params": params})
        program.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "nobody's"}})
        await recorded(program, "fault")
        program.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "mine"}})
        sent = await recorded(program, "notifications/cancelled")
        (call,) = [each for each in sent if each["method"] == "tools/call" and each["params"]["name"] == "fault"]
        (cancelled,) = [each for each in sent if each["method"] == "notifications/cancelled"]
        assert cancelled["params"]["requestId"] == call["id"]
        await assert_alive(program, "odd", "good")
        assert not [line for line in program.lines if b'"id":"mine"' in line]


async def recorded(program: Program, what: str) -> list[Json]:
    """Return what a server was sent, once there is something with this word in it."""
    while True:
        lines = json.loads(text_of(await program.call("odd", "record")))
        if any(f'"{what}"' in line for line in lines):
            return [json.loads(line) for line in lines]


# Row 33.


async def test_a_call_that_is_under_way_when_the_client_is_gone_still_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd()}) as program:
        await assert_alive(program, "odd")
        slept = asyncio.create_task(program.call("odd", "sleep", {"seconds": 0.5}))
        await assert_alive(program, "odd")
        program.end_input()
        assert text_of(await slept) == "slept 0.5 s"
        assert await program.ends() == 0


# Row 32.


@pytest.mark.parametrize("size", [40_000, pytest.param(100_000, marks=pytest.mark.full)])
async def test_a_client_that_stops_reading_delays_its_own_answers_and_no_server(tmp_path: Path, size: int) -> None:
    async with serving(tmp_path, {"odd": odd(), "good": odd()}, line_bytes=1 << 20, settings=WHOLE) as program:
        await assert_alive(program, "odd", "good")
        program.reads.clear()
        flood = asyncio.create_task(program.call("odd", "fault", {"kind": "flood", "size": size}))
        calls = [asyncio.create_task(program.call("good", "big", {"bytes": 500_000})) for _ in range(40)]
        for group in ("odd", "good"):
            await served(program, group, tmp_path / group)
        assert not [call for call in calls if call.done()][4:]

        program.reads.set()
        assert {len(text_of(await call)) for call in calls} == {500_000}
        assert not (await flood).get("isError")
        assert len(program.heard("notifications/message")) < size


async def test_a_client_that_never_reads_again_does_not_keep_the_program(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd()}, line_bytes=1 << 20, settings=WHOLE) as program:
        await assert_alive(program, "odd")
        program.reads.clear()
        for _ in range(20):
            send_call(program, "odd", "big", {"bytes": 500_000})
        program.end_input()
        assert await program.ends() == 0


async def served(program: Program, group: str, file: Path) -> None:
    """Wait until a group's server, which takes one call after the other, has seen to all that it was asked."""
    send_call(program, group, "touch", {"path": str(file)})
    async with asyncio.timeout(BOUND_S):
        while not file.exists():  # noqa: ASYNC110, ASYNC240 - nothing is read that could tell
            await asyncio.sleep(0.01)


def send_call(program: Program, group: str, name: str, args: Json) -> None:
    """Send a call whose answer nobody waits for, under an id of its own."""
    call = {"name": "call_dynamic_tool", "arguments": {"group": group, "name": name, "args": args}}
    program.send({"jsonrpc": "2.0", "id": f"unread-{next(_ids)}", "method": "tools/call", "params": call})
