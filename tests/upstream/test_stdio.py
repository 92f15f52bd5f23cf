"""What one server says is taken in turns with everybody else."""

from __future__ import annotations

import asyncio

from dynamic_mcp.upstream.stdio import LinePacer
from tests.fakes import settled


def nothing() -> None:
    """Stand where a source is paused."""


async def test_a_flood_is_taken_in_order_and_others_have_their_turns_meanwhile() -> None:
    seen: list[bytes | str] = []
    paused: list[bool] = []
    pacer = LinePacer(seen.append, pause=lambda: paused.append(True), resume=lambda: paused.append(False))
    asyncio.get_running_loop().call_soon(seen.append, "somebody else")

    pacer.take([b"%d" % number for number in range(1000)])
    await settled()

    assert [each for each in seen if each != "somebody else"] == [b"%d" % number for number in range(1000)]
    assert seen.index("somebody else") < 100
    assert paused == [True, False]


async def test_a_few_lines_are_passed_on_at_once() -> None:
    seen: list[bytes] = []
    paused: list[bool] = []
    pacer = LinePacer(seen.append, pause=lambda: paused.append(True), resume=lambda: paused.append(False))

    pacer.take([b"a", b"b"])

    assert (seen, paused) == ([b"a", b"b"], [])


async def test_what_comes_while_lines_wait_comes_after_them_and_the_end_leaves_none() -> None:
    seen: list[bytes] = []
    pacer = LinePacer(seen.append, pause=nothing, resume=nothing)

    pacer.take([b"%d" % number for number in range(200)])
    pacer.take([b"last"])
    pacer.finish()

    assert (len(seen), seen[-1]) == (201, b"last")
    await settled()
    assert len(seen) == 201
