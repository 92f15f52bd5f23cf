"""Costly selections of one principal delay neither those of others nor the event loop."""

from __future__ import annotations

import asyncio
import threading

from msgspec import Raw

from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.selections import Selections
from tests.fakes import BOUND_S

ANN, BOB = Principal("test", "ann"), Principal("test", "bob")
RESULT = Raw(wire.encode({"content": [{"type": "text", "text": '{"a": 1}'}]}))


async def test_a_principal_has_one_selection_at_a_time_and_others_need_not_wait_for_it() -> None:
    selections, begun, may_end = Selections(), list[str](), threading.Event()

    def keep(text: str, media_type: str) -> str:
        begun.append(text)
        assert may_end.wait(BOUND_S)
        return "dynamic-mcp://results/x"

    async with asyncio.timeout(BOUND_S):
        costly = [asyncio.create_task(selections.select(ANN, RESULT, "$.missing", keep)) for _ in range(5)]
        for _ in range(3):
            found = await selections.select(BOB, RESULT, "$.a", keep)
            assert b'{\\"selected\\":1}' in bytes(found)
        assert len(begun) <= 1
        may_end.set()
        answers = await asyncio.gather(*costly)

    assert len(begun) == 5
    assert all(b"nothing matches" in bytes(each) for each in answers)


async def test_a_selection_that_is_given_up_lets_the_next_one_of_its_principal_begin() -> None:
    selections, may_end = Selections(), threading.Event()

    def keep(text: str, media_type: str) -> str:
        assert may_end.wait(BOUND_S)
        return "dynamic-mcp://results/x"

    async with asyncio.timeout(BOUND_S):
        costly = asyncio.create_task(selections.select(ANN, RESULT, "$.missing", keep))
        await asyncio.sleep(0)
        costly.cancel()
        assert b"selected" in bytes(await selections.select(ANN, RESULT, "$.a", keep))
        may_end.set()
