"""Whether other groups go on as usual while one is at fault: every call carries a nonce, and gets it back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from tests.program import Json, Program, text_of

ROUNDS = 20


async def assert_alive(program: Program, *groups: str) -> None:
    """Each group answers with the nonce that it was given."""
    for nonce, group in enumerate(groups, start=41):
        result = await program.call(group, "echo", {"text": f"nonce {nonce}"})
        assert text_of(result) == f"nonce {nonce}"


async def beside(program: Program, fault: Coroutine[Json, Json, dict[str, Json]], *groups: str) -> dict[str, Json]:
    """Return what a call that hangs comes to; others are answered many times before that."""
    hanging = asyncio.create_task(fault)
    for _ in range(ROUNDS):
        await assert_alive(program, *groups)
    assert not hanging.done()
    return await hanging
