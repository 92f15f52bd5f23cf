"""Which signals a serving process takes, and on Windows, which events of its console."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import pytest

from dynamic_mcp.host.signals import SignalHandlers
from tests.program import BOUND_S

# Handles the events of a console of its own, and sends them to itself.
WINDOWS = """
import asyncio, ctypes, sys
from dynamic_mcp.host.signals import SignalHandlers

async def main(event):
    ended = asyncio.Event()
    with SignalHandlers(asyncio.get_running_loop(), end=ended.set, reload=ended.set) as signals:
        assert ctypes.windll.kernel32.GenerateConsoleCtrlEvent(event, 0)
        async with asyncio.timeout(20):
            await ended.wait()
        print("in order", signals.has_received_end, flush=True)
        if len(sys.argv) == 3:
            ctypes.windll.kernel32.GenerateConsoleCtrlEvent(event, 0)
            await asyncio.sleep(20)

asyncio.run(main(int(sys.argv[1])))
print("to the end", flush=True)
"""

# Handles the end of its console, whose handlers Windows calls in a new thread, and which ends the process with it.
CLOSED = """
import asyncio, ctypes, threading
from dynamic_mcp.host.signals import SignalHandlers

async def main():
    ended = asyncio.Event()
    with SignalHandlers(asyncio.get_running_loop(), end=ended.set, reload=ended.set):
        thread = threading.Thread(target=ctypes.windll.kernelbase.CtrlRoutine, args=(2,), daemon=True)
        thread.start()
        async with asyncio.timeout(20):
            await ended.wait()
    print("held off:", thread.is_alive(), flush=True)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
@pytest.mark.parametrize(("name", "is_end"), [("SIGTERM", True), ("SIGINT", True), ("SIGHUP", False)])
async def test_a_signal_ends_or_reloads_and_has_its_default_again_afterwards(name: str, *, is_end: bool) -> None:
    number = signal.Signals[name]
    loop, ended, reloaded = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    before = signal.getsignal(number)
    try:
        with SignalHandlers(loop, end=ended.set, reload=reloaded.set) as signals:
            signal.raise_signal(number)
            async with asyncio.timeout(BOUND_S):
                await (ended if is_end else reloaded).wait()
            assert (ended.is_set(), reloaded.is_set(), signals.has_received_end) == (is_end, not is_end, is_end)
        assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)
    finally:
        signal.signal(number, before)


@pytest.mark.skipif(sys.platform != "win32", reason="events of a console of Windows")
@pytest.mark.parametrize(
    "event",
    [
        pytest.param(0, id="Ctrl-C"),
        pytest.param(
            1,
            id="Ctrl-Break",
            marks=pytest.mark.not_in_wine("GenerateConsoleCtrlEvent refuses Ctrl-Break, which Windows sends"),
        ),
    ],
)
def test_an_event_of_the_console_ends_serving_in_order_and_a_second_one_at_once(event: int) -> None:
    assert _run_with_console(WINDOWS, str(event)) == "in order True\nto the end\n"
    assert _run_with_console(WINDOWS, str(event), "twice") == "in order True\n"


@pytest.mark.skipif(sys.platform != "win32", reason="events of a console of Windows")
def test_the_end_of_the_console_is_held_off_until_serving_has_ended() -> None:
    assert _run_with_console(CLOSED) == "held off: True\n"


def _run_with_console(code: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        stdout=subprocess.PIPE,
        timeout=BOUND_S,
        text=True,
        check=True,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )
    return done.stdout
