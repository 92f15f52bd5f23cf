"""Whether other groups go on as usual while one is at fault: every call carries a nonce, and gets it back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping

from tests.program import Json, Program, text_of

ROUNDS = 20


async def assert_alive(program: Program, *groups: str) -> None:
    """Each group answers with the nonce that it was given."""
    for nonce, group in enumerate(groups, start=41):
        result = await program.call(group, "echo", {"text": f"nonce {nonce}"})
        assert text_of(result) == f"nonce {nonce}"


async def beside(
    program: Program, faults: Mapping[str, Coroutine[Json, Json, dict[str, Json]]], *groups: str
) -> dict[str, dict[str, Json]]:
    """Return what calls that hang come to; others are answered before that, many times if there is the time."""
    hanging = [asyncio.create_task(fault) for fault in faults.values()]
    rounds = 0
    while rounds < ROUNDS:
        await assert_alive(program, *groups)
        if any(each.done() for each in hanging):
            break
        rounds += 1
    assert rounds > 0
    return dict(zip(faults, await asyncio.gather(*hanging), strict=True))
