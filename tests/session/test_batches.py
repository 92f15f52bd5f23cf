"""Batches, which are part of one revision of the protocol."""

from __future__ import annotations

import json

import pytest

from dynamic_mcp.mcp import wire
from tests.fakes import settled
from tests.session.desk import BATCHES, cancel, make_client, next_json

# --- batches -------------------------------------------------------------------------------------------


async def test_a_batch_is_answered_with_one_array() -> None:
    client, desk = make_client(BATCHES)
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "echo", "params": [1]},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": "two", "method": "missing"},
        {"jsonrpc": "1.0", "id": 3, "method": "echo"},
        {"jsonrpc": "2.0", "id": 77, "result": "to nothing that was asked"},
        {"jsonrpc": "2.0", "id": 4, "method": "hold"},
    ]

    client.send(batch)
    await settled()
    assert client.lines == []
    desk.gate.set()

    answers = {answer["id"]: answer for answer in await next_json(client)}
    assert answers[1]["result"] == [1]
    assert answers["two"]["error"]["code"] == -32602
    assert answers[3]["error"]["code"] == -32600
    assert answers[4]["result"] == {"held": True}
    assert len(answers) == 4
    assert desk.heard == ["notifications/initialized"]
    assert len(client.lines) == 1


@pytest.mark.parametrize("item", [b"1", b"[]", b"null", b'"text"', b"{}", b'{"foo":"boo"}', b'{"method":1}'])
async def test_an_invalid_item_of_a_batch_is_answered_in_the_array(item: bytes) -> None:
    client, _ = make_client(BATCHES)

    client.send(b"[" + item + b',{"jsonrpc":"2.0","id":1,"method":"echo"}]')
    await settled()

    [line] = client.lines
    by_id = {answer["id"]: answer for answer in json.loads(line)}
    assert by_id[None]["error"]["code"] == -32600
    assert by_id[1]["result"] is None


async def test_a_batch_of_notifications_is_not_answered() -> None:
    client, desk = make_client(BATCHES)

    client.send([{"jsonrpc": "2.0", "method": "notifications/initialized"}] * 2)
    await client.request("echo")

    assert len(desk.heard) == 2
    assert len(client.lines) == 1


async def test_an_empty_batch_is_an_invalid_request() -> None:
    client, _ = make_client(BATCHES)

    client.send(b"[]")

    answer = await next_json(client)
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)


async def test_a_request_of_a_batch_that_is_cancelled_is_not_in_the_array() -> None:
    client, _ = make_client(BATCHES)
    client.send([{"jsonrpc": "2.0", "id": id, "method": method} for id, method in [(1, "hold"), (2, "echo")]])
    await settled()

    cancel(client, 1)

    assert [answer["id"] for answer in await next_json(client)] == [2]


@pytest.mark.parametrize("count", [wire.MAX_BATCH + 1, 2_000_000])
@pytest.mark.parametrize("version", ["2025-03-26", "2025-11-25"])
async def test_a_batch_of_too_many_messages_gets_one_error(version: str, count: int) -> None:
    client, _ = make_client(version)

    client.send(b"[" + b",".join([b"1"] * count) + b"]")
    await settled()

    [line] = client.lines
    assert json.loads(line)["error"]["code"] == -32600
