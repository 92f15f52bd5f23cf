"""What Windows does to end a program ends it, in order, and its servers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.journeys.remote_server import free_port
from tests.process.http_client import connected, serving_http, write_config
from tests.process.windows import pid_of
from tests.program import BOUND_S, odd, serving, text_of
from tests.windows import has_ended, send_console_event, send_session_end

pytestmark = [
    pytest.mark.skipif(sys.platform != "win32", reason="other systems have signals, and terminals"),
    pytest.mark.alone_only,
]
End = Callable[[int], None]
_CLOSE: End = partial(send_console_event, event=2)
_ENDS = {
    "Ctrl-Break": partial(send_console_event, event=1),
    "close": _CLOSE,
    "logoff of a service": partial(send_console_event, event=5),
    "shutdown of a service": partial(send_console_event, event=6),
    "end of the session": send_session_end,
}


@pytest.mark.parametrize("end", _ENDS.values(), ids=_ENDS)
async def test_an_end_that_windows_announces_ends_the_program_and_its_servers(tmp_path: Path, end: End) -> None:
    async with serving(tmp_path, {"odd": odd()}) as program:
        server = await pid_of(program, "odd")
        await asyncio.to_thread(end, program.process.pid)
        assert await program.ends() == 0
        assert await asyncio.to_thread(has_ended, server, BOUND_S)
    assert "stopped serving" in await program.stderr()


async def test_a_session_that_goes_on_since_another_program_prevents_its_end_goes_on_here(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd()}) as program:
        await asyncio.to_thread(send_session_end, program.process.pid, is_ending=False)
        assert text_of(await program.call("odd", "echo", {"text": "a"})) == "a"


@pytest.mark.parametrize("end", [_CLOSE, send_session_end], ids=["close", "end of the session"])
async def test_a_program_that_windows_ends_does_not_wait_for_calls_as_long_as_it_may(
    tmp_path: Path, end: End
) -> None:
    port = free_port()
    file = write_config(tmp_path, {"odd": odd()}, http={"shutdown_timeout": "10min"})
    async with serving_http(file, str(port)) as program:
        await program.says("over HTTP at")
        async with connected(f"http://127.0.0.1:{port}/mcp") as client:
            call = asyncio.create_task(client.call("odd", "sleep", {"seconds": 600}))
            await client.has_received("odd", "seconds")
            await asyncio.to_thread(end, program.process.pid)
            assert await program.ends() == 0
            call.cancel()
        assert "stopped serving" in await program.stderr()
