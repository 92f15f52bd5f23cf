"""The whole program in front of remote servers that misbehave: it costs one call, and other groups notice nothing.

While each fault is on, calls of two other groups go on, each with a nonce and each answered exactly once. The numbers
are those of the kinds of faults in tests/upstreams/odd_http_faults.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.program import BOUND_S, Json, Program, odd, serving, text_of
from tests.upstreams.odd_http import OddHttp, message_event
from tests.upstreams.odd_http_faults import SECRET

SETTINGS = {"max_message_bytes": 1 << 20}
PATIENT: Json = {"timeout": {"tools": "30s"}}  # also on a slow machine, what comes in time is never too late
NONCES = itertools.count()


@contextlib.asynccontextmanager
async def beside_others(
    folder: Path, server: OddHttp, names: Sequence[str] = ("far",), **far: Json
) -> AsyncIterator[Program]:
    """Run the program in front of this server, under these names, and two good ones, whose calls go on meanwhile."""
    async with OddHttp(answers="events") as near:
        config = {"url": server.url, "headers": {"X-Api-Key": SECRET}, **PATIENT, **far}
        servers = {**dict.fromkeys(names, config), "near": {"url": near.url}, "good": odd()}
        async with serving(folder, servers, settings=SETTINGS) as program:
            going_on = asyncio.create_task(_call_on(program))
            try:
                yield program
                assert not going_on.done(), going_on
            finally:
                going_on.cancel()
                await asyncio.wait([going_on])
        assert SECRET not in await program.stderr()
    _assert_each_answered_once(program)


async def _call_on(program: Program) -> None:
    while True:
        for group in ("near", "good"):
            await assert_alive(program, group)


async def assert_alive(program: Program, group: str) -> None:
    """The group answers with the nonce that it was given."""
    nonce = f"nonce {next(NONCES)}"
    assert text_of(await program.call(group, "echo", {"text": nonce})) == nonce


def _assert_each_answered_once(program: Program) -> None:
    answers = [json.loads(line) for line in program.lines]
    ids = [answer["id"] for answer in answers if "method" not in answer]
    assert len(ids) == len(set(ids))


async def works(program: Program, group: str) -> None:
    """Wait until a group answers again."""
    async with asyncio.timeout(BOUND_S):
        while (await program.call(group, "echo", {"text": "x"})).get("isError"):
            pass


FAULTS = {
    "401": "auth login far",  # 36
    "403": "`files:write`",  # 37
    "404": "no longer knows the session",  # 38
    "429_bare": "429",  # 39
    "500": "500",  # 40
    "reset": "may have run",  # 41
    "close": "may have run",
    "truncated": "may have run",
    "bad_chunk": "may have run",
    "redirect_cross": "not followed",  # 43
    "redirect_meta": "not followed",
    "redirect_loop": "not followed",
    "redirect_302": "not followed",
    "html": "not an MCP message",  # 44
    "no_type": "not an MCP message",
    "gzip_bomb": "max_message_bytes",
    "big_body": "max_message_bytes",
    "bad_json": "does not answer the request",
    "bad_utf8": "does not answer the request",
    "empty": "sent an empty answer",
    "accepted": "with an empty body",
    "wrong_id": "does not answer the request",
    "drop": "may have run",  # 45
    "half_event": "may have run",
    "big_event": "max_message_bytes",
}
SLOW = ("slow_body", "slow_headers", "comments")  # 42
ODDLY_SENT = {
    "redirect_same": "/hop/3",  # 43
    "429": "fine",  # 39
    "indented": "fine",  # 44
    "drop_resumable": "resumed",  # 45
    "never_ends": "fine",
    "flood": "fine",
    "crlf": "fine",
    "many_lines": "fine",
}


@pytest.mark.both_hosts
async def test_a_fault_costs_its_call_alone(tmp_path: Path, subtests: pytest.Subtests) -> None:
    async with OddHttp() as server, beside_others(tmp_path, server) as program:
        for kind, said in FAULTS.items():
            with subtests.test(kind=kind):
                result = await program.call("far", "fault", {"kind": kind})
                assert_failed(result, "far", said)
                await works(program, "far")


async def test_an_answer_that_does_not_come_in_time_costs_its_call_alone(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    async with OddHttp() as server, beside_others(tmp_path, server, SLOW, timeout={"tools": "2s"}) as program:
        results = await asyncio.gather(*(program.call(kind, "fault", {"kind": kind}) for kind in SLOW))
        for kind, result in zip(SLOW, results, strict=True):
            with subtests.test(kind=kind):
                assert_failed(result, kind, "not answered within 2 s")
                await works(program, kind)


def assert_failed(result: Json, group: str, said: str) -> None:
    """The result is an error that says this of the group, and nothing of what is secret."""
    assert result["isError"] is True
    assert said in text_of(result)
    assert f"group `{group}`" in text_of(result)
    assert SECRET not in text_of(result)


async def test_an_answer_that_only_comes_oddly_arrives(tmp_path: Path, subtests: pytest.Subtests) -> None:
    async with OddHttp() as server, beside_others(tmp_path, server) as program:
        for kind, said in ODDLY_SENT.items():
            with subtests.test(kind=kind):
                assert text_of(await program.call("far", "fault", {"kind": kind})) == said


@pytest.mark.parametrize("how", ["no_session", "no_session_400"])
async def test_calls_in_a_lost_session_are_made_in_a_new_one_once(tmp_path: Path, how: str) -> None:  # 38
    async with OddHttp(forgets=[how]) as server, beside_others(tmp_path, server) as program:
        await assert_alive(program, "far")
        lists = len(server.matching_requests(lambda request: b"tools/list" in request.body))
        server.sessions.clear()
        await asyncio.gather(*(assert_alive(program, "far") for _ in range(10)))

        assert len(server.matching_requests(lambda request: b'"initialize"' in request.body)) == 2
        assert len(server.matching_requests(lambda request: b"tools/list" in request.body)) > lists


async def test_a_session_that_was_lost_before_its_first_call_is_renewed(tmp_path: Path) -> None:  # 38
    async with OddHttp() as server, beside_others(tmp_path, server) as program:
        await server.wait_for_message("tools/list")
        await program.request("tools/call", {"name": "get_dynamic_tools", "arguments": {"group": "far"}})
        server.sessions.clear()
        await assert_alive(program, "far")


async def test_a_server_that_goes_away_is_named_and_used_again_when_it_is_back(tmp_path: Path) -> None:  # 41
    async with OddHttp() as server, beside_others(tmp_path, server) as program:
        await assert_alive(program, "far")
        await server.stop()
        result = await program.call("far", "echo", {"text": "x"})
        assert "refuses connections" in text_of(result)
        await server.start()
        await works(program, "far")


async def test_a_server_that_restarts_between_two_calls_is_not_noticed(tmp_path: Path) -> None:  # 38
    async with OddHttp() as server, beside_others(tmp_path, server) as program:
        for _ in range(3):
            await assert_alive(program, "far")
            await server.stop()
            await server.start()
        await assert_alive(program, "far")


async def test_a_storming_stream_is_slowed_down_and_calls_go_on(tmp_path: Path) -> None:  # 46
    async with OddHttp(get="storm") as server, beside_others(tmp_path, server) as program:
        for _ in range(50):
            await assert_alive(program, "far")
        assert len(server.matching_requests(lambda request: request.method == "GET")) <= 3


async def test_a_changed_list_is_heard_of(tmp_path: Path) -> None:
    async with OddHttp(get="events") as server, beside_others(tmp_path, server) as program:
        await assert_alive(program, "far")
        await server.wait_for_request(lambda request: request.method == "GET")
        before = len(server.matching_requests(lambda request: b"tools/list" in request.body))
        (queue,) = server.sessions.values()
        queue.put_nowait(message_event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
        await server.wait_for_request(lambda request: b"tools/list" in request.body, before + 1)


async def test_an_older_server_works_and_is_connected_to_again_when_its_stream_drops(tmp_path: Path) -> None:  # 47
    async with OddHttp(older="yes") as server, beside_others(tmp_path, server, type="sse") as program:
        await assert_alive(program, "far")
        result = await program.call("far", "fault", {"kind": "drop"})
        assert "may have run" in text_of(result)
        await assert_alive(program, "far")


async def test_an_older_server_that_wants_messages_elsewhere_gets_none(tmp_path: Path) -> None:  # 47
    async with OddHttp(older="http://evil.test/m") as server, beside_others(tmp_path, server) as program:
        assert "elsewhere" in text_of(await program.call("far", "echo", {"text": "x"}))
        assert not server.matching_requests(lambda request: request.path != "/sse")


async def test_thirty_two_calls_in_flight_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with OddHttp() as server, beside_others(tmp_path, server) as program:
        held = [asyncio.create_task(program.call("far", "hold", {"key": f"{n}"})) for n in range(31)]
        await server.wait_for_request(lambda request: b'"hold"' in request.body, 31)
        await assert_alive(program, "far")
        for n in range(31):
            server.release(f"{n}")
        assert [text_of(await each) for each in held] == [f"{n}" for n in range(31)]


async def test_no_header_of_the_config_is_told_to_other_servers(tmp_path: Path) -> None:
    async with OddHttp() as server, OddHttp() as other:
        servers = {"far": {"url": server.url, "headers": {"X-Api-Key": SECRET}}, "other": {"url": other.url}}
        async with serving(tmp_path, servers) as program:
            await assert_alive(program, "far")
            await assert_alive(program, "other")
        assert all(request.headers["x-api-key"] == SECRET for request in server.requests)
        assert not other.matching_requests(lambda request: SECRET in str(request))
