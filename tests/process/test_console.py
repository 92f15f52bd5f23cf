"""What ends the console of a program on Windows ends the program, in order, and its servers."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.process.windows import pid_of
from tests.program import BOUND_S, odd, serving
from tests.windows import has_ended, send_console_event

pytestmark = [
    pytest.mark.skipif(sys.platform != "win32", reason="other systems have signals, and terminals"),
    pytest.mark.alone_only,
]


@pytest.mark.parametrize("event", [1, 2], ids=["Ctrl-Break", "close"])
async def test_an_event_of_the_console_ends_the_program_and_its_servers(tmp_path: Path, event: int) -> None:
    async with serving(tmp_path, {"odd": odd()}) as program:
        server = await pid_of(program, "odd")
        send_console_event(program.process.pid, event)
        assert await program.ends() == 0
        assert await asyncio.to_thread(has_ended, server, BOUND_S)
    assert "stopped serving" in await program.stderr()
