"""What two servers ask at the same time does not mix, though they ask under equal ids and report under equal tokens.

That both are open at once is no matter of luck: nobody is answered before all have asked.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.program import Json, Program, full, serving, text_of

GROUPS = ("a", "b")
SERVERS = {name: full("--name", name) for name in GROUPS}
CAPABILITIES: Json = {"elicitation": {}, "sampling": {}}
TOKEN = "same"

Reorder = Callable[[list[dict[str, Json]]], list[dict[str, Json]]]


def _as_asked(questions: list[dict[str, Json]]) -> list[dict[str, Json]]:
    return questions


def _reversed(questions: list[dict[str, Json]]) -> list[dict[str, Json]]:
    return questions[::-1]


def _shuffled(questions: list[dict[str, Json]]) -> list[dict[str, Json]]:
    return random.Random(7).sample(questions, len(questions))  # noqa: S311 - a fixed order, not a secret


def _asker(question: Mapping[str, Json]) -> str:
    """Return which group asked, which it says in its message."""
    name: str = question["params"]["message"].split()[0]
    return name


async def _all_open(program: Program, count: int) -> list[dict[str, Json]]:
    """Wait until so many questions are open at the same time, and return them in the order of their coming."""
    await program.hears("elicitation/create", times=count)
    questions = program.heard("elicitation/create")
    assert len(questions) == len({question["id"] for question in questions}) == count
    return questions


@pytest.mark.parametrize("reorder", [_as_asked, _reversed])
@pytest.mark.parametrize("first", GROUPS)
async def test_two_questions_that_are_open_at_once_get_each_its_own_answer(
    tmp_path: Path, first: str, reorder: Reorder
) -> None:
    async with serving(tmp_path, SERVERS, capabilities=CAPABILITIES) as program:
        second = next(group for group in GROUPS if group != first)
        calls: dict[str, asyncio.Task[dict[str, Json]]] = {}
        for n, group in enumerate((first, second), start=1):
            meta = {"progressToken": TOKEN}
            calls[group] = asyncio.create_task(program.call(group, "elicit", {"key": "k"}, _meta=meta))
            questions = await _all_open(program, n)
        assert [_asker(question) for question in questions] == [first, second]
        assert not any(call.done() for call in calls.values())

        for question in reorder(questions):
            program.reply(question, {"action": "accept", "content": {"answer": _asker(question)}})
        for group, call in calls.items():
            answer = json.loads(text_of(await call))
            # each server asked under its own first id, and under that it was answered
            assert answer == {"jsonrpc": "2.0", "id": 1, "result": {"action": "accept", "content": {"answer": group}}}


@pytest.mark.parametrize("order", [GROUPS, GROUPS[::-1]])
async def test_progress_under_equal_tokens_comes_from_both_calls_while_both_are_open(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    async with serving(tmp_path, SERVERS, capabilities=CAPABILITIES) as program:
        calls = [
            asyncio.create_task(program.call(group, "elicit", {"key": "k"}, _meta={"progressToken": TOKEN}))
            for group in GROUPS
        ]
        questions = await _all_open(program, 2)
        for step, group in enumerate(order, start=1):
            await program.call(group, "step", {"key": "k", "step": step})
        await program.hears("notifications/progress", times=2)
        reports = [message["params"] for message in program.heard("notifications/progress")]
        assert [(each["progressToken"], each["message"]) for each in reports] == [(TOKEN, group) for group in order]
        assert not any(call.done() for call in calls)
        for question in questions:
            program.reply(question, {"action": "decline"})
        await asyncio.gather(*calls)


async def test_progress_of_the_client_under_equal_tokens_reaches_the_server_that_asked(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS, capabilities=CAPABILITIES) as program:
        calls: list[asyncio.Task[dict[str, Json]]] = []
        for group in GROUPS:
            params: Json = {"messages": [], "of": group, "_meta": {"progressToken": TOKEN}}
            asking = program.call(group, "ask", {"method": "sampling/createMessage", "params": params})
            calls.append(asyncio.create_task(asking))
        await program.hears("sampling/createMessage", times=2)
        questions = program.heard("sampling/createMessage")
        for question in questions[::-1]:
            token = question["params"]["_meta"]["progressToken"]
            params = {"progressToken": token, "progress": 1, "message": question["params"]["of"]}
            program.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        for question in questions:
            program.reply(question, {"of": question["params"]["of"]})
        assert [json.loads(text_of(await call))["result"] for call in calls] == [{"of": group} for group in GROUPS]

        for group in GROUPS:
            received = map(json.loads, json.loads(text_of(await program.call(group, "record"))))
            reports = [each["params"] for each in received if each.get("method") == "notifications/progress"]
            assert reports == [{"progressToken": TOKEN, "progress": 1, "message": group}]


@pytest.mark.parametrize("reorder", [_reversed, _shuffled])
async def test_many_questions_of_both_that_are_open_at_once_get_each_its_own_answer(
    tmp_path: Path, reorder: Reorder
) -> None:
    async with serving(tmp_path, SERVERS, capabilities=CAPABILITIES) as program:
        keys = [(group, str(n)) for n in range(25) for group in GROUPS]
        calls = [asyncio.create_task(program.call(group, "elicit", {"key": key})) for group, key in keys]
        for question in reorder(await _all_open(program, len(keys))):
            answer = f"{_asker(question)} {question['params']['x-first']}"
            program.reply(question, {"action": "accept", "content": {"answer": answer}})
        answers = [json.loads(text_of(await call))["result"]["content"]["answer"] for call in calls]
        assert answers == [f"{group} {key}" for group, key in keys]


@pytest.mark.both_hosts
async def test_a_call_that_is_cancelled_in_mid_question_leaves_the_other_its_answer(tmp_path: Path) -> None:
    async with serving(tmp_path, SERVERS, capabilities=CAPABILITIES) as program:
        for group in GROUPS:
            arguments = {"group": group, "name": "elicit", "args": {"key": "k"}}
            params = {"name": "call_dynamic_tool", "arguments": arguments}
            program.send({"jsonrpc": "2.0", "id": group, "method": "tools/call", "params": params})
        questions = {_asker(question): question for question in await _all_open(program, 2)}
        gone = {"requestId": "a", "reason": "the person left"}
        program.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": gone})
        for group in GROUPS:
            program.reply(questions[group], {"action": "accept", "content": {"answer": group}})

        answer = json.loads(await program.line(lambda line: b'"id":"b"' in line))
        assert '"answer": "b"' in text_of(answer["result"])
        received = list(map(json.loads, json.loads(text_of(await program.call("a", "record")))))
        call = next(each["id"] for each in received if each.get("params", {}).get("name") == "elicit")
        cancelled = [each["params"] for each in received if each.get("method") == "notifications/cancelled"]
        assert cancelled == [{"requestId": call, "reason": "the person left"}]
        assert not any(b'"id":"a"' in line for line in program.lines)
