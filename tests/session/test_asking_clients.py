"""What a session asks and tells its client, and how it ends."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.client_connection import ClientConnection
from dynamic_mcp.session.legacy import Session
from tests.fakes import BOUND_S, config_of, settled
from tests.session.desk import BATCHES, greeted_client, ignore_status, make_client

# --- requests to the client ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "capability"),
    [("sampling/createMessage", "sampling"), ("elicitation/create", "elicitation"), ("roots/list", "roots")],
)
async def test_a_client_is_asked_what_it_can_do(method: str, capability: str) -> None:
    client, _ = await greeted_client(capability)
    asking = asyncio.create_task(client.session.ask(Frame(method=method, params=Raw(b'{"n": 1.50}')), ignore_status))

    asked = await client.hears(method)
    client.send(b'{"jsonrpc":"2.0","id":%d,"result":{"ok": 1.50}}' % asked["id"])

    assert b'"params":{"n": 1.50}' in client.lines[0]
    assert bytes((await asking).result) == b'{"ok": 1.50}'


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list", "nobody/knows"])
async def test_a_client_is_not_asked_what_it_cannot_do(method: str) -> None:
    client, _ = make_client()

    answer = await client.session.ask(Frame(method=method), ignore_status)

    assert wire.members(answer.error)["code"] == Raw(b"-32601")
    assert client.lines == []


async def test_answers_of_the_client_are_matched_by_id_in_any_order() -> None:
    client, _ = await greeted_client("sampling")
    asking = [asyncio.create_task(client.request("ask", {"n": n})) for n in range(3)]
    await client.hears("sampling/createMessage", times=3)

    for asked in reversed(client.heard("sampling/createMessage")):
        client.send({"jsonrpc": "2.0", "id": str(asked["id"]), "result": "the id of another type"})
        client.send({"jsonrpc": "2.0", "id": asked["id"], "result": asked["params"]})

    assert [(await answer)["result"] for answer in asking] == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_a_client_is_told_when_its_answer_is_no_longer_needed() -> None:
    client, _ = await greeted_client("sampling")
    asking = asyncio.create_task(client.session.ask(Frame(method="sampling/createMessage"), ignore_status))
    asked = await client.hears("sampling/createMessage")

    asking.cancel()

    cancelled = await client.hears("notifications/cancelled")
    assert cancelled["params"]["requestId"] == asked["id"]
    client.send({"jsonrpc": "2.0", "id": asked["id"], "result": "late"})


async def test_a_notification_to_the_client_passes_byte_for_byte() -> None:
    client, _ = make_client()

    client.session.notify(Frame(method="notifications/progress", params=Raw(b'{"progress":0.10,"x":[ ]}')))

    assert client.lines == [
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.10,"x":[ ]}}\n'
    ]


# --- the end -------------------------------------------------------------------------------------------


async def test_finishing_waits_for_what_is_in_flight() -> None:
    client, desk = make_client(BATCHES)
    client.send({"jsonrpc": "2.0", "id": 1, "method": "hold"})
    client.send([{"jsonrpc": "2.0", "id": 2, "method": "hold"}])
    finishing = asyncio.create_task(client.session.finish(within_s=BOUND_S))
    await settled()
    assert not finishing.done()

    desk.gate.set()
    await finishing

    assert len(client.lines) == 2


async def test_finishing_cancels_what_does_not_end_within_the_bound() -> None:
    client, desk = await greeted_client("sampling", version=BATCHES)
    client.send({"jsonrpc": "2.0", "id": 1, "method": "hold", "params": 1})
    client.send([{"jsonrpc": "2.0", "id": 2, "method": "hold", "params": 2}])
    asking = asyncio.create_task(client.session.ask(Frame(method="sampling/createMessage"), ignore_status))
    await settled()

    async with asyncio.timeout(BOUND_S):
        await client.session.finish(within_s=0.01)
        client.session.close()
        refused = await asking
    await settled()

    assert sorted(desk.given_up) == ["1", "2"]
    assert len(refused.error) > 0
    assert all("method" in json.loads(line) for line in client.lines)


async def test_a_closed_session_gives_up_everything_and_is_let_go_of() -> None:
    client, desk = await greeted_client("sampling")
    client.send({"jsonrpc": "2.0", "id": 1, "method": "hold", "params": 1})
    asking = asyncio.create_task(client.session.ask(Frame(method="sampling/createMessage"), ignore_status))
    await client.hears("sampling/createMessage")
    sent = len(client.lines)

    client.session.close()
    client.session.close()
    refused = await client.session.ask(Frame(method="sampling/createMessage"), ignore_status)
    client.session.notify(Frame(method="notifications/message"))
    await settled()

    assert desk.given_up == ["1"]
    assert desk.released == [client.session]
    assert len((await asking).error) > 0
    assert len(refused.error) > 0
    assert len(client.lines) == sent


async def test_finishing_with_nothing_in_flight_is_done_at_once() -> None:
    client, _ = make_client()

    await client.session.finish(within_s=0)

    assert client.lines == []


async def test_floods_are_dropped_while_the_client_does_not_read_and_what_matters_is_not() -> None:
    sent: list[bytes] = []
    session = Session(ClientConnection(sent.append, is_congested=lambda: True), Proxy(config_of()))

    for method in ("notifications/message", "notifications/progress", "notifications/tools/list_changed"):
        session.notify(Frame(method=method))

    assert [json.loads(line)["method"] for line in sent] == ["notifications/tools/list_changed"]
