"""Unfinished bodies have a bounded amount of memory together, and short messages pass whatever others send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from dynamic_mcp.face.http import limits
from dynamic_mcp.face.http.asgi import AsgiApp, Message
from dynamic_mcp.face.http.body_budget import BodyBudget, BodyHold
from dynamic_mcp.face.http.exchange import RequestHead
from dynamic_mcp.identity import LOCAL_USER, Authentication
from tests.face.http.parties import Reply
from tests.face.http.test_asgi import scope
from tests.face.http.ways_in import FakeCall, FakeHandler, OurServer, our_server, post
from tests.policy.rules import person
from tests.program import BOUND_S

ANN, BOB = person("ann"), person("bob")


@pytest.fixture
async def server() -> AsyncIterator[OurServer]:
    async with our_server() as opened:
        yield opened


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget that a test can use up in no time."""
    monkeypatch.setattr(limits, "COLLECTED_BYTES", 400_000)
    monkeypatch.setattr(limits, "COLLECTED_UNKNOWN_BYTES", 100_000)
    monkeypatch.setattr(limits, "UNCOUNTED_BYTES", 20_000)


def call_of(sender: Authentication | None, longest: int = 100_000) -> FakeCall:
    return FakeCall(RequestHead("POST", b"/hold", {}), Reply(), max_body_bytes=longest, sender=sender)


def hold(budget: BodyBudget, sender: Authentication | None, longest: int = 100_000) -> BodyHold:
    return BodyHold(budget, call_of(sender, longest))


async def test_a_long_body_too_many_is_refused_at_once_and_told_to_come_back(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        first, second, third = [await server.connect() for _ in range(3)]
        first.send(post("/echo", bytes(90_000))[:-1])
        await server.settle()

        second.send(post("/echo", bytes(90_000))[:-1])
        refused = await second.reply()

        assert (refused.status, int(refused.headers["retry-after"]) > 0) == (503, True)
        assert (await third.ask(post("/echo", bytes(5_000)))).status == 200
        first.send(bytes(1))
        assert (await first.reply()).status == 200
        assert (await third.ask(post("/echo", bytes(90_000)))).status == 200, "all is given back"


async def test_a_body_whose_client_goes_away_gives_all_back(server: OurServer) -> None:
    async with asyncio.timeout(BOUND_S):
        for _ in range(3):
            client = await server.connect()
            client.send(post("/echo", bytes(90_000))[:-1])
            call = await server.handler.next_call()
            await server.settle()
            await client.close()
            await call.gone.wait()
        client = await server.connect()
        assert (await client.ask(post("/echo", bytes(90_000)))).status == 200


async def test_a_mounted_application_has_the_same_bound() -> None:
    async with asyncio.timeout(BOUND_S):
        app, statuses = AsgiApp(FakeHandler()), list[int]()

        async def ask(pieces: asyncio.Queue[Message]) -> None:
            async def send(message: Message) -> None:
                statuses.extend([message["status"]] if "status" in message else [])

            await app(scope(method="POST"), pieces.get, send)

        waiting: asyncio.Queue[Message] = asyncio.Queue()
        waiting.put_nowait({"type": "http.request", "body": bytes(90_000), "more_body": True})
        first = asyncio.create_task(ask(waiting))
        while not waiting.empty():  # noqa: ASYNC110 - nothing tells when a piece was taken
            await asyncio.sleep(0)
        for last in (True, False):
            second: asyncio.Queue[Message] = asyncio.Queue()
            second.put_nowait({"type": "http.request", "body": bytes(90_000), "more_body": True})
            second.put_nowait({"type": "http.request", "body": b"", "more_body": False})
            second.put_nowait({"type": "http.disconnect"})
            await ask(second)
            if last:
                waiting.put_nowait({"type": "http.request", "body": b"", "more_body": False})
                await first

        assert statuses == [503, 200, 200]


def test_one_principal_has_half_and_short_messages_are_not_counted() -> None:
    budget = BodyBudget()

    assert [hold(budget, ANN).grow(120_000) for _ in range(3)] == [True, True, False]
    assert hold(budget, ANN).grow(20_000), "a short one"
    assert hold(budget, BOB).grow(120_000)
    assert hold(budget, None).grow(100_000), "what is not known yet has a budget of its own"
    assert not hold(budget, None).grow(1)


def test_the_local_user_may_have_all_and_two_of_the_longest_always_fit() -> None:
    budget = BodyBudget()
    assert hold(budget, LOCAL_USER).grow(400_000)
    assert not hold(budget, LOCAL_USER).grow(400_000)

    budget = BodyBudget()
    assert [hold(budget, ANN, longest=10**6).grow(10**6) for _ in range(3)] == [True, True, False]


def test_a_body_is_counted_for_its_sender_once_that_is_known_and_until_it_is_taken() -> None:
    budget, call = BodyBudget(), call_of(None)
    body = BodyHold(budget, call)
    assert body.grow(100_000)
    body.settle()
    assert not hold(budget, None).grow(1), "it waits in memory"

    call.sender = ANN
    assert body.grow(150_000)
    assert repr(budget) == "<BodyBudget 130000 bytes, 0 of unknown senders>"
    body.settle()
    assert repr(budget) == "<BodyBudget 0 bytes, 0 of unknown senders>"
