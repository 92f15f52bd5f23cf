"""What an upstream does wrong costs that one call at most: its group lives on, and the others notice nothing."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from tests.process.neighbours import assert_alive, beside
from tests.program import Json, Program, odd, serving, text_of
from tests.windows import is_wine

SERVERS = {"odd": odd(), "good": odd()}


# Rows 15, 17 to 20, 22, 23, 25, 29 and 31 of the fault matrix.

ODDLY_WRITTEN = (
    "twice",
    "no_jsonrpc",
    "vendor_envelope",
    "garbage_before",
    "invalid_utf8",
    "lone_surrogate",
    "crlf",
    "bom",
    "pieces",
    "indented",
    "batch",
    "big_int",
    "stderr_flood",
    "flood",
)


async def test_an_answer_that_is_only_oddly_written_arrives(tmp_path: Path, subtests: pytest.Subtests) -> None:
    async with serving(tmp_path, SERVERS) as program:
        for kind in ODDLY_WRITTEN:
            with subtests.test(kind=kind):
                line = await program.call_line("odd", "fault", {"kind": kind})
                answer = json.loads(line, parse_int=str)
                assert not answer["result"].get("isError"), answer
                line.decode()  # what we write is UTF-8, whatever was read
                await assert_alive(program, "odd", "good")


# Rows 11, 23, 24 and 26.

NEVER_ANSWERED = ("never", "wrong_id", "string_id", "null_id_error", "late")


async def test_a_call_that_is_never_answered_fails_alone_and_is_cancelled_upstream(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    # servers that are given up soon, beside one that has all the time that it needs
    servers = {kind: odd(timeout={"tools": "2s"}) for kind in NEVER_ANSWERED}
    async with serving(tmp_path, {**servers, "good": odd()}) as program:
        faults = {kind: program.call(kind, "fault", {"kind": kind}) for kind in NEVER_ANSWERED}
        results = await beside(program, faults, "good", *NEVER_ANSWERED)
        for kind, result in results.items():
            with subtests.test(kind=kind):
                assert result["isError"] is True
                assert "was not answered within 2 s" in text_of(result)
                await assert_alive(program, kind, "good")
                await assert_cancelled(program, kind)


async def assert_cancelled(program: Program, kind: str) -> None:
    """The server of this name was told that its call is cancelled."""
    received = [json.loads(line) for line in json.loads(text_of(await program.call(kind, "record")))]
    cancelled = [each for each in received if each.get("method") == "notifications/cancelled"]
    calls = [each for each in received if each.get("params", {}).get("arguments") == {"kind": kind}]
    assert [note["params"]["requestId"] for note in cancelled] == [call["id"] for call in calls]


UNUSABLE = ("neither", "both", "odd_result", "odd_error", "odd_numbers", "deep")


async def test_an_answer_that_cannot_be_used_fails_its_call_alone(tmp_path: Path, subtests: pytest.Subtests) -> None:
    async with serving(tmp_path, SERVERS) as program:
        for kind in UNUSABLE:
            with subtests.test(kind=kind):
                result = await program.call("odd", "fault", {"kind": kind})
                assert result["isError"] is True
                assert "odd" in text_of(result)
                await assert_alive(program, "odd", "good")


# Rows 4, 5 and 9.


def _describe_end(name: str) -> str:
    """Return how the end by this signal is told; on Windows, its number is the exit code."""
    return f"code {signal.Signals[name].value}" if sys.platform == "win32" else name


ENDS = {
    "exit": "code 0",
    "exit_code": "code 3",
    "sigkill": _describe_end("SIGTERM" if sys.platform == "win32" else "SIGKILL"),
    "segfault": _describe_end("SIGSEGV"),
    "half_answer_then_exit": "exited",
    "close_stdout": "closed its output",
}
if is_wine():  # whose conhost.exe keeps what a server inherits, so a pipe that the server closes stays open
    del ENDS["close_stdout"]


@pytest.mark.both_hosts
async def test_a_server_that_ends_in_mid_call_fails_it_at_once_and_is_there_for_the_next(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    servers = {kind: odd() for kind in ENDS}
    async with serving(
        tmp_path, {**servers, "good": odd()}, settings={"defaults": {"timeout": {"tools": "1h"}}}
    ) as program:
        first = await asyncio.gather(*(program.call(kind, "pid") for kind in ENDS))
        results = await asyncio.gather(*(program.call(kind, "fault", {"kind": kind}) for kind in ENDS))
        for (kind, said), pid, result in zip(ENDS.items(), first, results, strict=True):
            with subtests.test(kind=kind):
                assert result["isError"] is True
                assert said in text_of(result)
                assert "may have run" in text_of(result)
                await assert_alive(program, "good", kind)
                assert text_of(await program.call(kind, "pid")) != text_of(pid)


async def test_the_last_words_of_a_server_are_part_of_the_reason(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS) as program:
        result = await program.call("odd", "fault", {"kind": "exit_code"})
        assert "; stderr: " in text_of(result)


async def test_an_answer_without_its_newline_counts_when_the_server_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS) as program:
        result = await program.call("odd", "fault", {"kind": "answer_without_newline_then_exit"})
        assert not result.get("isError")
        await assert_alive(program, "odd", "good")


# Row 20.


async def test_an_answer_over_the_bound_is_skipped_to_its_end_and_fails_its_call_alone(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS, settings={"max_message_bytes": 1_000_000}) as program:
        result = await program.call("odd", "fault", {"kind": "big_line", "size": 50_000_000})
        assert result["isError"] is True
        assert "max_message_bytes" in text_of(result)
        await assert_alive(program, "odd", "good")


async def test_an_answer_of_fifty_megabytes_arrives_whole_within_the_bound(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS, settings={"defaults": {"result_limit": "off"}}) as program:
        line = await program.call_line("odd", "big", {"bytes": 50_000_000})
        assert len(text_of(json.loads(line)["result"])) == 50_000_000


# Row 26.


async def test_the_error_of_an_upstream_shows_its_code_message_and_data(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS) as program:
        result = await program.call("odd", "fault", {"kind": "rpc_error"})
        assert result["isError"] is True
        text = text_of(result)
        assert "-3" in text
        assert "data: " in text


# Rows 13, 15, 31 and 61.


async def test_a_server_with_an_odd_start_works(tmp_path: Path, subtests: pytest.Subtests) -> None:
    modes = ("banner", "stderr_first", "paged", "bad_tools", "wrong_version")
    async with serving(tmp_path, {**{mode: odd(mode) for mode in modes}, "good": odd()}) as program:
        for mode in modes:
            with subtests.test(mode=mode):
                await assert_alive(program, mode, "good")


# Rows 1, 3, 10, 16 and 27.

FAILED_STARTS = {
    "exit_at_start": "code 3",
    "exit_in_init": "code",
    "init_error": "error",
    "hang_init": "initialize was not answered",
    "deaf": "initialize was not answered",
    "garbage_for_ever": "initialize was not answered",
}


async def test_a_server_that_cannot_start_is_down_with_the_reason_and_the_others_serve(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    servers = {mode: odd(mode, timeout={"connect": "2s"}) for mode in FAILED_STARTS}
    async with serving(tmp_path, {**servers, "good": odd()}) as program:
        await assert_alive(program, "good")
        results = await asyncio.gather(*(program.call(mode, "echo", {"text": "x"}) for mode in FAILED_STARTS))
        for (mode, reason), result in zip(FAILED_STARTS.items(), results, strict=True):
            with subtests.test(mode=mode):
                assert result["isError"] is True
                assert reason in text_of(result)
                await assert_alive(program, "good")


async def test_a_server_that_cannot_list_its_tools_serves_them_all_the_same(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    modes = ("hang_list", "fail_list")
    servers = {mode: odd(mode, timeout={"connect": "2s"}) for mode in modes}
    async with serving(tmp_path, {**servers, "good": odd()}) as program:
        for mode in modes:
            with subtests.test(mode=mode):
                await assert_alive(program, mode, "good")


# Row 60.


async def test_a_command_that_does_not_exist_or_cannot_run_is_named(tmp_path: Path) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("not a program")
    servers: Json = {
        "missing": {"command": "no-such-command-anywhere"},
        "plain": {"command": str(plain)},
        "nowhere": odd(cwd=str(tmp_path / "nowhere")),
        "good": odd(),
    }
    async with serving(tmp_path, servers) as program:
        why = "is not a program that" if sys.platform == "win32" else "not executable"
        expected = {"missing": "was not found", "plain": why, "nowhere": str(tmp_path / "nowhere")}
        for group, words in expected.items():
            assert words in text_of(await program.call(group, "echo"))
        await assert_alive(program, "good")
        listed = json.loads(await program.exchange("tools/list"))["result"]["tools"][0]["description"]
        available, unavailable = listed.split("Unavailable groups")
        assert "- good" in available
        assert all(f"- {group}" in unavailable for group in expected)


# Row 61.


async def test_lists_that_never_end_are_cut(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd("endless_pages"), "good": odd()}) as program:
        await assert_alive(program, "good")
        tools = {"name": "get_dynamic_tools", "arguments": {"group": "odd"}}
        listed = json.loads(text_of((await program.request("tools/call", tools))["result"]))["tools"]
        assert [tool["name"] for tool in listed] == [f"tool_{n}" for n in range(1, 101)]


# Row 35.


async def test_one_slow_call_delays_nothing_else(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS) as program:
        held = asyncio.create_task(program.call("odd", "hold", {"key": "k"}))
        await asyncio.gather(*(assert_alive(program, "odd", "good") for _ in range(20)))
        assert not held.done()
        await program.call("odd", "release", {"key": "k"})
        assert not (await held).get("isError")


async def test_a_thousand_calls_at_once_get_each_its_own_answer(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS) as program:
        results = await asyncio.gather(
            *(program.call(("odd", "good")[n % 2], "echo", {"text": f"nonce {n}"}) for n in range(1000))
        )
        assert [text_of(result) for result in results] == [f"nonce {n}" for n in range(1000)]
